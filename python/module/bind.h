#pragma once

#include <pybind11/pybind11.h>

// What the parts of the module add to it.
namespace lowtide::python {

void bind_schedule(pybind11::module_& module);
void bind_quantization(pybind11::module_& module);
void bind_export(pybind11::module_& module);
void bind_run(pybind11::module_& module);

}  // namespace lowtide::python
