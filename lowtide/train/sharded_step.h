#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lowtide/base/shards.h"
#include "lowtide/base/torch.h"
#include "lowtide/ranks/ranks.h"
#include "lowtide/tasks/task.h"

namespace lowtide {

// What computes a shard: as a Task does, for which there is work_of().
struct ShardWork {
  torch::nn::Module& model;
  Execution& execution;
  std::function<void()> draw_batch;
  std::function<StepResult()> compute_step;
  std::size_t layers = 0;  // that count MACs
};
ShardWork work_of(Task& task);

// Steps whose batch is computed in shards, by one rank or several. A shard is a batch of its own, with its own ranges,
// statistics, noise and loss, and all shards begin with the same weights and buffers. Their gradients, their losses and what
// they moved the buffers by go through a fixed tree, each with its share of the batch as its weight: so the number of ranks
// changes no bit.
class ShardedStep {
 public:
  ShardedStep(ShardWork work, std::shared_ptr<Ranks> ranks, std::int64_t shards);

  // Computes the batch: leaves its gradients in the parameters and its running statistics in the buffers. `signal`: what
  // this rank was asked to stop by, or 0.
  StepResult run(int signal = 0);

  // What one of the ranks was asked to stop by before the last step ended, the same on all of them; or 0.
  int agreed_signal() const { return agreed_signal_; }

  // Floats that go through the tree: gradients, buffers' moves, loss.
  std::int64_t numbers() const { return numbers_; }

 private:
  torch::Tensor leaf_of(const StepResult& shard) const;
  void spread(const torch::Tensor& sum, StepResult& batch) const;
  void add_other_ranks(StepResult& batch, int signal);

  ShardWork work_;
  std::shared_ptr<Ranks> ranks_;
  Shards shards_;
  std::vector<torch::Tensor> parameters_, buffers_, buffers_before_;
  std::int64_t numbers_ = 0;
  int agreed_signal_ = 0;
};

}  // namespace lowtide
