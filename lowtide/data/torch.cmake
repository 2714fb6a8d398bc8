# The part of this room that makes tensors; read after libtorch has been found.
target_sources(lowtide_torch PRIVATE ${CMAKE_CURRENT_LIST_DIR}/device_images.cpp
                                     ${CMAKE_CURRENT_LIST_DIR}/loader.cpp
                                     ${CMAKE_CURRENT_LIST_DIR}/static_batches.cpp
                                     ${CMAKE_CURRENT_LIST_DIR}/detection/detection_loader.cpp)
if(LOWTIDE_CUDA)
  target_sources(lowtide_torch PRIVATE ${CMAKE_CURRENT_LIST_DIR}/device_images_cuda.cu)
endif()
