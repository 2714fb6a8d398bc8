// lowtide._lowtide: what the Python package is made of. It computes nothing that the library does not.
#include <pybind11/stl.h>

#include "lowtide/base/error.h"
#include "lowtide/engine/engine.h"
#include "python/module/bind.h"

PYBIND11_MODULE(_lowtide, module) {
  namespace py = pybind11;
  module.doc() = "Schedules, layers and run folders of lowtide's C++ library.";
  module.attr("version") = LOWTIDE_VERSION;
  py::register_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) std::rethrow_exception(raised);
    } catch (const lowtide::UserError& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });
  module.def("engine_names", &lowtide::engine_names);
  lowtide::python::bind_schedule(module);
  lowtide::python::bind_quantization(module);
  lowtide::python::bind_export(module);
  lowtide::python::bind_run(module);
}
