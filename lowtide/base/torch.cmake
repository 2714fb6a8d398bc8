# The part of this room that knows tensors; read after libtorch has been found.
target_sources(lowtide_torch PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/cuda_graphs.cpp
  ${CMAKE_CURRENT_LIST_DIR}/gpu.cpp
  ${CMAKE_CURRENT_LIST_DIR}/machine_error.cpp
  ${CMAKE_CURRENT_LIST_DIR}/tensor_memory.cpp)
if(LOWTIDE_CUDA)
  target_sources(lowtide_torch PRIVATE ${CMAKE_CURRENT_LIST_DIR}/cuda_launch.cu)
endif()
