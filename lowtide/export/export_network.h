#pragma once

#include "lowtide/export/network_writer.h"

namespace lowtide {

// A trained network as an ONNX graph, as it evaluates at the options' bits: inputs and outputs are named in docs/export.md, and
// the number of items is left open. `length` is the most words of a window, of a network that has positions for them. UserError
// for a network that has no such form.
OnnxGraph export_network(const torch::nn::Module& model, const std::string& name,
                         const ExportOptions& options, std::int64_t length = 0);

}  // namespace lowtide
