target_sources(core_tests PRIVATE ${CMAKE_CURRENT_LIST_DIR}/bert_config_test.cpp)
