target_sources(torch_tests PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/device_images_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/loader_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/real_data_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/detection/detection_loader_test.cpp)
