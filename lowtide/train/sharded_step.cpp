#include "lowtide/train/sharded_step.h"

#include <algorithm>
#include <utility>

#include "lowtide/ranks/tree_sum.h"

namespace lowtide {
namespace {

// Neighbouring parts of one flat tensor, one after the other.
class Parts {
 public:
  explicit Parts(const torch::Tensor& flat) : flat_(flat) {}
  torch::Tensor next(const torch::Tensor& like) {
    const std::int64_t begin = std::exchange(begin_, begin_ + like.numel());
    return flat_.narrow(0, begin, like.numel()).view(like.sizes());
  }

 private:
  const torch::Tensor& flat_;
  std::int64_t begin_ = 0;
};

void add_counts(StepResult& sum, const StepResult& shard) {
  sum.items += shard.items;
  sum.judged += shard.judged;
  if (shard.correct.defined())
    sum.correct = sum.correct.defined() ? sum.correct + shard.correct : shard.correct;
  sum.macs.resize(std::max(sum.macs.size(), shard.macs.size()));
  for (std::size_t i = 0; i < shard.macs.size(); ++i) sum.macs[i] += shard.macs[i];
}

}  // namespace

ShardWork work_of(Task& task) {
  return {task.model(), task.execution(), [&task] { task.draw_batch(); },
          [&task] { return task.compute_step(); }, task.layers().size()};
}

ShardedStep::ShardedStep(ShardWork work, std::shared_ptr<Ranks> ranks, std::int64_t shards)
    : work_(std::move(work)),
      ranks_(std::move(ranks)),
      shards_(ranks_->shards_of(shards)),
      parameters_(work_.model.parameters()),
      buffers_(work_.model.buffers()) {
  for (const auto& tensors : {parameters_, buffers_}) {
    for (const torch::Tensor& tensor : tensors) numbers_ += tensor.numel();
  }
  ++numbers_;
}

StepResult ShardedStep::run(int signal) {
  TreeSum sum(shards_.count);
  StepResult batch;
  for (std::int64_t shard = shards_.first; shard < shards_.end(); ++shard) {
    work_.execution.shard = static_cast<std::uint32_t>(shard);
    work_.draw_batch();
    if (shard == shards_.first) {
      buffers_before_.clear();
      for (const torch::Tensor& buffer : buffers_) buffers_before_.push_back(buffer.clone());
    }
    const StepResult result = work_.compute_step();
    sum.add(leaf_of(result));
    add_counts(batch, result);
    work_.model.zero_grad(/*set_to_none=*/true);
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(buffers_before_[i]);
  }
  spread(ranks_->sum(sum.take_nodes()), batch);
  add_other_ranks(batch, signal);
  return batch;
}

// Whole numbers, in one message of the same length on all ranks.
void ShardedStep::add_other_ranks(StepResult& batch, int signal) {
  agreed_signal_ = signal;
  if (ranks_->size() == 1) return;
  const torch::Tensor none =
      torch::zeros({}, torch::TensorOptions(torch::kInt64).device(batch.loss.device()));
  const bool counts_macs = !batch.macs.empty();
  std::vector<std::int64_t> mine{signal, batch.items, batch.judged, counts_macs ? 1 : 0,
                                 batch.correct.defined() ? batch.correct.item<std::int64_t>() : 0};
  batch.macs.resize(work_.layers);
  mine.insert(mine.end(), batch.macs.begin(), batch.macs.end());
  std::vector<std::int64_t> sum(mine.size());
  agreed_signal_ = 0;
  for (const std::vector<std::int64_t>& of_rank : ranks_->gather(mine)) {
    if (agreed_signal_ == 0) agreed_signal_ = static_cast<int>(of_rank[0]);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += of_rank[i];
  }
  batch.items = sum[1];
  batch.judged = sum[2];
  batch.correct = none + sum[4];
  batch.macs.assign(sum.begin() + 5, sum.end());
  if (sum[3] == 0) batch.macs.clear();
}

// Buffers by what the shard moved them: what does not move stays as it is, to the bit.
torch::Tensor ShardedStep::leaf_of(const StepResult& shard) const {
  const torch::NoGradGuard no_grad;
  torch::Tensor leaf = torch::zeros({numbers_}, parameters_[0].options().requires_grad(false));
  if (shard.items == 0) return leaf;
  Parts parts(leaf);
  for (const torch::Tensor& parameter : parameters_) {
    torch::Tensor gradient = parts.next(parameter);
    if (parameter.grad().defined()) gradient.copy_(parameter.grad());
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    parts.next(buffers_[i]).copy_(buffers_[i]).sub_(buffers_before_[i]);
  parts.next(shard.loss).copy_(shard.loss);
  return leaf.mul_(shard.share);
}

void ShardedStep::spread(const torch::Tensor& sum, StepResult& batch) const {
  const torch::NoGradGuard no_grad;
  Parts parts(sum);
  for (const torch::Tensor& parameter : parameters_)
    parameter.mutable_grad() =
        at::empty_like(parameter, parameter.options().requires_grad(false)).copy_(parts.next(parameter));
  for (const torch::Tensor& buffer : buffers_) buffer.add_(parts.next(buffer));
  batch.loss = sum[numbers_ - 1].clone();
}

}  // namespace lowtide
