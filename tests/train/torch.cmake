target_sources(torch_tests PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/checkpoint_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/closed_loop.cpp
  ${CMAKE_CURRENT_LIST_DIR}/closed_loop_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/detection_run_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/keep_best_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/kept_best.cpp
  ${CMAKE_CURRENT_LIST_DIR}/layer_statistics_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/optimizer_cuda_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/optimizer_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/sharded_step_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/squares_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/step_graph_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/resume_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/resumed.cpp
  ${CMAKE_CURRENT_LIST_DIR}/waterfill_run_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/weight_average_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/weight_plane_test.cpp)
