#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "lowtide/io/onnx.h"

namespace lowtide {

// Runs a graph as the format says, by libtorch on a CPU: to measure what an exported network is worth where there is no
// runtime. It knows the operators that this room and the Python package write.
class GraphRunner {
 public:
  // What depends on constants alone is computed here, once.
  explicit GraphRunner(OnnxGraph graph);

  // From all inputs to all outputs, in the graph's order.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const;

 private:
  OnnxGraph graph_;
  std::vector<std::vector<std::string>> last_read_;  // the values that nobody reads after each node
  std::map<std::string, at::Tensor> constants_;
};

}  // namespace lowtide
