# The part of this room that needs tensors; read after libtorch has been found.
target_sources(lowtide_torch PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/checkpoint.cpp
  ${CMAKE_CURRENT_LIST_DIR}/layer_statistics.cpp
  ${CMAKE_CURRENT_LIST_DIR}/layer_look.cpp
  ${CMAKE_CURRENT_LIST_DIR}/optimizer.cpp
  ${CMAKE_CURRENT_LIST_DIR}/sharded_step.cpp
  ${CMAKE_CURRENT_LIST_DIR}/simulated_layers.cpp
  ${CMAKE_CURRENT_LIST_DIR}/squares.cpp
  ${CMAKE_CURRENT_LIST_DIR}/step_graph.cpp
  ${CMAKE_CURRENT_LIST_DIR}/trainer.cpp
  ${CMAKE_CURRENT_LIST_DIR}/trainer_checkpoint.cpp
  ${CMAKE_CURRENT_LIST_DIR}/trainer_log.cpp
  ${CMAKE_CURRENT_LIST_DIR}/update_cpu.cpp
  ${CMAKE_CURRENT_LIST_DIR}/update_cuda.cpp
  ${CMAKE_CURRENT_LIST_DIR}/update_layout.cpp
  ${CMAKE_CURRENT_LIST_DIR}/update_masked.cpp
  ${CMAKE_CURRENT_LIST_DIR}/weight_average.cpp
  ${CMAKE_CURRENT_LIST_DIR}/weight_plane.cpp)
if(LOWTIDE_CUDA)
  target_sources(lowtide_torch PRIVATE ${CMAKE_CURRENT_LIST_DIR}/update_cuda.cu)
endif()
