#include "tests/export/onnxruntime.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "lowtide/io/safetensors.h"
#include "lowtide/study/child.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

TensorView view_of(const std::string& name, const torch::Tensor& tensor) {
  const auto type = tensor.scalar_type() == torch::kLong ? DType::kI64 : DType::kF32;
  return {
      name, type, tensor.sizes().vec(), {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}};
}

int exit_code_of(Child& child) {
  std::optional<int> code;
  while (!(code = child.ended())) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return *code;
}

}  // namespace

bool has_onnxruntime() {
  return *LOWTIDE_NODE != '\0' &&
         fs::exists(fs::path(LOWTIDE_EXPORT_TESTS) / "node_modules/onnxruntime-node");
}

std::vector<torch::Tensor> run_in_onnxruntime(const OnnxGraph& graph,
                                              const std::vector<torch::Tensor>& inputs,
                                              const fs::path& folder) {
  const fs::path model = folder / "model.onnx", given = folder / "inputs", got = folder / "outputs";
  write_atomically(model, std::string_view(serialise(graph, {})));
  std::vector<torch::Tensor> whole;
  std::vector<TensorView> views;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    whole.push_back(inputs[i].contiguous());
    views.push_back(view_of(graph.inputs[i].name, whole.back()));
  }
  write_safetensors(given, views, {});
  Child child(LOWTIDE_NODE,
              {(fs::path(LOWTIDE_EXPORT_TESTS) / "run_onnx.mjs").string(), model.string(), given.string(),
               got.string()},
              folder / "log");
  if (exit_code_of(child) != 0) {
    ADD_FAILURE() << read_text_file(folder / "log");
    return {};
  }
  const SafetensorsFile file(got);
  std::vector<torch::Tensor> outputs;
  for (const OnnxValue& output : graph.outputs) {
    const TensorView& view = file.at(output.name);
    outputs.push_back(torch::empty(view.shape));
    std::memcpy(outputs.back().data_ptr(), view.data.data(), view.data.size());
  }
  return outputs;
}

}  // namespace lowtide
