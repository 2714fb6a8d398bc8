#pragma once

#include <filesystem>
#include <vector>

#include "lowtide/base/torch.h"
#include "lowtide/io/onnx.h"

namespace lowtide {

// Whether Node and ONNX Runtime's package (scripts/setup.sh tests) are there.
bool has_onnxruntime();

// What ONNX Runtime computes of a graph that was written into the folder. Fails the test where it does not take it.
std::vector<torch::Tensor> run_in_onnxruntime(const OnnxGraph& graph,
                                              const std::vector<torch::Tensor>& inputs,
                                              const std::filesystem::path& folder);

}  // namespace lowtide
