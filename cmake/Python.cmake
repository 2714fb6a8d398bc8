# Python, and what a module that takes tensors needs. LOWTIDE_PYTHON_MISSING says what is not there.
#
# On Debian the interpreter is the system's, which has python3-torch: another may come first on the PATH. It must be the one
# whose torch the library is built against; `pip install .` and scripts/build-cuda.sh name theirs.
if(NOT Python3_EXECUTABLE AND EXISTS /usr/bin/python3)
  set(Python3_EXECUTABLE /usr/bin/python3)
endif()
find_package(Python3 COMPONENTS Interpreter Development.Module QUIET)
find_path(LOWTIDE_PYBIND11 pybind11/pybind11.h HINTS ${TORCH_INCLUDE_DIRS})  # PyTorch's wheels bring it along
find_library(LOWTIDE_TORCH_PYTHON torch_python HINTS ${TORCH_INSTALL_PREFIX}/lib)

set(LOWTIDE_PYTHON_MISSING "")
if(NOT Python3_Development.Module_FOUND)
  set(LOWTIDE_PYTHON_MISSING "python3-dev, Python's headers,")
elseif(NOT LOWTIDE_PYBIND11)
  set(LOWTIDE_PYTHON_MISSING "pybind11-dev")
elseif(NOT LOWTIDE_TORCH_PYTHON)
  set(LOWTIDE_PYTHON_MISSING "python3-torch, with libtorch_python,")
endif()
if(LOWTIDE_PYTHON_MISSING AND LOWTIDE_PYTHON STREQUAL "ON")
  message(FATAL_ERROR "${LOWTIDE_PYTHON_MISSING} is missing, which the Python package needs; "
                      "on Debian, scripts/setup.sh tests installs it")
elseif(LOWTIDE_PYTHON_MISSING)
  message(STATUS "${LOWTIDE_PYTHON_MISSING} is missing: the Python package is left out")
endif()

# A module in `folder`, under the name that the interpreter looks for.
function(lowtide_python_module target folder)
  python3_add_library(${target} MODULE WITH_SOABI ${ARGN})
  # The system's standard library before that of PyTorch's wheels, as in Torch.cmake.
  target_link_libraries(${target} PRIVATE -Wl,--push-state,--no-as-needed -lstdc++ -Wl,--pop-state
                                          lowtide_torch ${LOWTIDE_TORCH_PYTHON})
  target_include_directories(${target} SYSTEM PRIVATE ${LOWTIDE_PYBIND11})
  # The library's symbols stay inside: another module of the process may have them too.
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${folder})
endfunction()
