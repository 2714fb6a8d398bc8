#include "lowtide/tasks/evaluation_graphs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lowtide {
namespace {

// Somebody who looks at layers is to be told of each batch; and a batch's own statistics are a probe's, which is listened to.
bool is_seen(const Execution& execution) {
  return execution.listener || execution.engine_of || execution.batch_statistics;
}

std::string key_of(const Execution& execution, const EvaluationGraphs::Tensors& inputs) {
  std::string key = fmt::format("{} {}", execution.bits.forward, execution.bits.backward);
  for (const torch::Tensor& input : inputs) key += fmt::format(" {}", fmt::join(input.sizes(), "x"));
  return key;
}

}  // namespace

EvaluationGraphs::Tensors EvaluationGraphs::run(const Execution& execution, const Tensors& inputs,
                                                const Work& work) {
  const torch::Device device = inputs.at(0).device();
  if (!device.is_cuda() || !execution.engine->is_capturable() || is_seen(execution)) return work(inputs);
  if (!graphs_) graphs_.emplace(device);
  const std::string key = key_of(execution, inputs);
  Batch& batch = batches_[key];
  if (batch.inputs.empty()) {
    for (const torch::Tensor& input : inputs) batch.inputs.push_back(torch::empty_like(input));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) batch.inputs[i].copy_(inputs[i], /*non_blocking=*/true);
  graphs_->run(key, [&] { batch.outputs = work(batch.inputs); });
  Tensors outputs;  // the next replay writes over those of this one
  for (const torch::Tensor& output : batch.outputs) outputs.push_back(output.clone());
  return outputs;
}

}  // namespace lowtide
