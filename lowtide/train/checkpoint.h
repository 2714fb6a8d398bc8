#pragma once

#include <filesystem>

#include "lowtide/base/json.h"
#include "lowtide/train/checkpoint_state.h"
#include "lowtide/train/optimizer.h"

namespace lowtide {

// A checkpoint is a sealed safetensors file: the tensors by name, and the rest of the state in its header. The same state
// gives the same bytes.
void write_checkpoint(const std::filesystem::path& path, const NamedTensors& tensors, const Json& state);

// Copies the file's tensors into these. UserError where one is missing or has another shape or type, or where a byte of
// the file is not the one that was written.
void read_checkpoint_tensors(const std::filesystem::path& path, const NamedTensors& tensors);

// Parameters and buffers of a model, named "model.…".
NamedTensors model_tensors(const torch::nn::Module& model);

NamedTensors with_prefix(const std::string& prefix, const NamedTensors& tensors);

}  // namespace lowtide
