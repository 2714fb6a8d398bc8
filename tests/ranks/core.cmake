target_sources(core_tests PRIVATE ${CMAKE_CURRENT_LIST_DIR}/environment_test.cpp ${CMAKE_CURRENT_LIST_DIR}/heartbeat_test.cpp)
