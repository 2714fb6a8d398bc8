#include "lowtide/train/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "lowtide/base/error.h"
#include "lowtide/io/safetensors.h"

namespace lowtide {
namespace {

DType dtype_of(const torch::Tensor& tensor) {
  if (tensor.scalar_type() == torch::kFloat32) return DType::kF32;
  if (tensor.scalar_type() == torch::kInt64) return DType::kI64;
  invariant_failed("float32 or int64", __FILE__, __LINE__, "a checkpoint of another type");
}

}  // namespace

void write_checkpoint(const std::filesystem::path& path, const NamedTensors& tensors, const Json& state) {
  std::vector<torch::Tensor> on_host;  // keeps the memory that the views point to
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    on_host.push_back(tensor.detach().to(torch::kCPU).contiguous());
    const torch::Tensor& host = on_host.back();
    views.push_back({name,
                     dtype_of(host),
                     host.sizes().vec(),
                     {static_cast<const std::byte*>(host.data_ptr()), host.nbytes()}});
  }
  write_safetensors(path, encode_sealed_safetensors(views, {{kCheckpointStateKey, state.dump()}}));
}

void read_checkpoint_tensors(const std::filesystem::path& path, const NamedTensors& tensors) {
  const torch::NoGradGuard no_grad;
  const SafetensorsFile file(path);
  if (checkpoint_state(file, path).at("format") > kUnsealedFormat)
    check_sealed_data(file.content(), path.string());
  for (const auto& [name, tensor] : tensors) {
    const TensorView& view = file.at(name);
    if (view.shape != tensor.sizes().vec() || view.dtype != dtype_of(tensor)) {
      throw UserError(fmt::format("{}: tensor {} is {} {}, expected {} {}; it belongs to another model",
                                  path.string(), name, dtype_name(view.dtype), view.shape,
                                  dtype_name(dtype_of(tensor)), tensor.sizes().vec()));
    }
    const torch::Tensor host = torch::empty(tensor.sizes(), tensor.scalar_type());
    std::memcpy(host.data_ptr(), view.data.data(), view.data.size());
    tensor.copy_(host);
  }
}

NamedTensors model_tensors(const torch::nn::Module& model) {
  NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace_back("model." + item.key(), item.value());
  for (const auto& item : model.named_buffers()) tensors.emplace_back("model." + item.key(), item.value());
  return tensors;
}

NamedTensors with_prefix(const std::string& prefix, const NamedTensors& tensors) {
  NamedTensors renamed;
  for (const auto& [name, tensor] : tensors) renamed.emplace_back(prefix + name, tensor);
  return renamed;
}

}  // namespace lowtide
