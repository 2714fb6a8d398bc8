# libtorch, and the library of the rooms that need it.

# PyTorch's CMake files turn CUDA on by themselves; a build without LOWTIDE_CUDA must not need nvcc.
if(LOWTIDE_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES native)
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
endif()
find_package(Torch REQUIRED)
if(LOWTIDE_CUDA AND Torch_VERSION VERSION_LESS 2.1)  # the first whose captures leave other threads alone
  message(FATAL_ERROR "LOWTIDE_CUDA needs PyTorch 2.1 or later; found ${Torch_VERSION}")
endif()
find_package(OpenMP REQUIRED)

# PyTorch's wheels ship headers of an fmt whose library they do not ship; the system's headers must be found before them.
get_target_property(fmt_headers fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
foreach(directory ${TORCH_INCLUDE_DIRS})
  if(EXISTS ${directory}/fmt AND NOT directory IN_LIST fmt_headers)
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/system-fmt)
    file(CREATE_LINK ${fmt_headers}/fmt ${PROJECT_BINARY_DIR}/system-fmt/fmt SYMBOLIC)
    target_include_directories(lowtide_flags BEFORE INTERFACE ${PROJECT_BINARY_DIR}/system-fmt)
    break()
  endif()
endforeach()

add_library(lowtide_torch STATIC)
target_link_libraries(lowtide_torch PUBLIC lowtide_core)
target_include_directories(lowtide_torch SYSTEM PUBLIC ${TORCH_INCLUDE_DIRS})
# PyTorch's wheels export parts of a standard library of their own: std::filesystem::remove_all of PyTorch 2.11 jumped to
# nowhere. The system's is loaded first, so that its functions are the ones that are found.
if(LOWTIDE_CUDA)
  target_link_libraries(lowtide_torch PUBLIC -Wl,--push-state,--no-as-needed -lstdc++ -Wl,--pop-state)
endif()
target_link_libraries(lowtide_torch PUBLIC ${TORCH_LIBRARIES} OpenMP::OpenMP_CXX)  # without it at::parallel_for is serial
# Debian's libtorch takes whatever BLAS is there. OpenBLAS with threads of its own fights with OpenMP's for the cores: a step
# of an LSTM took seven times as long as with the one that uses OpenMP. Loaded first, by its name, it is the one that libtorch
# gets.
find_library(LOWTIDE_OPENBLAS NAMES libblas.so.3
             PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH)
if(LOWTIDE_OPENBLAS)
  target_link_libraries(lowtide_torch PUBLIC -Wl,--push-state,--no-as-needed ${LOWTIDE_OPENBLAS} -Wl,--pop-state)
endif()
if(LOWTIDE_CUDA)
  target_compile_definitions(lowtide_torch PUBLIC LOWTIDE_WITH_CUDA)
  # The cuBLAS that PyTorch's wheels bring along, or that of the toolkit.
  file(GLOB wheels ${TORCH_INSTALL_PREFIX}/../nvidia/*/lib)
  find_library(LOWTIDE_CUBLAS NAMES cublas libcublas.so.13 libcublas.so.12 HINTS ${wheels} ${CUDAToolkit_LIBRARY_DIR}
               /usr/local/cuda/lib64 REQUIRED)
  target_link_libraries(lowtide_torch PUBLIC ${LOWTIDE_CUBLAS})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(lowtide_torch PUBLIC
    $<$<COMPILE_LANGUAGE:CXX>:SHELL:-include ${PROJECT_SOURCE_DIR}/cmake/ClangVector.h>)
endif()
# It would be read by every file for some 5 s.
target_precompile_headers(lowtide_torch PRIVATE ${PROJECT_SOURCE_DIR}/lowtide/base/torch.h)
