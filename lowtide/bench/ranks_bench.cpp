#include "lowtide/bench/ranks_bench.h"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>

#include "lowtide/base/error.h"
#include "lowtide/bench/timing.h"
#include "lowtide/tasks/image_setup.h"
#include "lowtide/tasks/setup.h"
#include "lowtide/train/optimizer.h"
#include "lowtide/train/sharded_step.h"

namespace lowtide {
namespace {

// An image model on one batch, in shards.
class ShardedCandidate {
 public:
  ShardedCandidate(const StepBenchOptions& options, const std::string& engine, std::int64_t shards,
                   const std::shared_ptr<Ranks>& ranks)
      : shards_(ranks->shards_of(shards)) {
    const ImageModelInfo& info = image_model(options.model);
    const int size = options.image_size > 0 ? options.image_size : info.input_size;
    Recipe recipe;
    recipe.precision.engine = engine == "fp32" ? "simulated" : engine;
    recipe.precision.recompute = options.recompute;
    execution_ = make_execution(recipe.precision, recipe.running, recipe.training.seed);
    execution_->bits = engine == "fp32" ? Bits{} : options.bits;
    model_ = make_image_model(options.model, {3, size, size, info.classes}, {}, execution_);
    torch::manual_seed(1);
    images_ = torch::randn({options.batch, 3, size, size}).contiguous(torch::MemoryFormat::ChannelsLast);
    labels_ = torch::randint(info.classes, {options.batch});
    optimizer_ = make_optimizer(recipe.training, *model_);
    sharded_ = std::make_unique<ShardedStep>(
        ShardWork{*model_, *execution_, [] {}, [this] { return compute(); }}, ranks, shards);
  }

  void step() {
    constexpr double kRate = 0.01;
    model_->zero_grad(/*set_to_none=*/true);
    sharded_->run();
    optimizer_->step(kRate, never_);
    ++execution_->step;
  }

  std::int64_t numbers() const { return sharded_->numbers(); }

 private:
  StepResult compute() const {
    const std::int64_t batch = images_.size(0), begin = shards_.begin_of(execution_->shard, batch),
                       items = shards_.begin_of(execution_->shard + 1, batch) - begin;
    const torch::Tensor loss = torch::cross_entropy_loss(model_->forward(images_.narrow(0, begin, items)),
                                                         labels_.narrow(0, begin, items));
    loss.backward();
    return {.loss = loss.detach(),
            .items = items,
            .share = static_cast<double>(items) / static_cast<double>(batch)};
  }

  Shards shards_;
  torch::Tensor images_, labels_;
  std::shared_ptr<Execution> execution_;
  std::shared_ptr<ImageModel> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<ShardedStep> sharded_;
  torch::Tensor never_ = torch::zeros({}, torch::kBool);  // halted
};

// A slice of each node to each of the others, and one sum of slices likewise (Ranks::sum).
std::int64_t bytes_sent(std::int64_t numbers, std::int64_t leaves, std::int64_t ranks) {
  while (leaves % 2 == 0) leaves /= 2;
  const std::int64_t slice = (numbers + ranks - 1) / ranks;
  return (leaves + 1) * slice * (ranks - 1) * std::int64_t{sizeof(float)};
}

RanksTiming time_engine(const StepBenchOptions& options, const std::string& engine, std::int64_t shards,
                        int threads, const std::shared_ptr<Ranks>& ranks) {
  const int own_threads = std::max(1, threads / ranks->size());
  const auto wait_for_all = [&] { ranks->gather(std::vector<std::int64_t>{0}); };
  ShardedCandidate together(options, engine, shards, ranks);
  std::unique_ptr<ShardedCandidate> by_itself;
  if (ranks->is_first()) by_itself = std::make_unique<ShardedCandidate>(options, engine, shards, alone());
  std::vector<double> alone_ms, ranks_ms, exchange_ms;
  const torch::Tensor node = torch::ones({together.numbers()});
  for (int round = -kWarmUpSteps; round < options.repeat; ++round) {
    at::set_num_threads(threads);
    const double solo = by_itself ? milliseconds_of(torch::kCPU, [&] { by_itself->step(); }) : 0;
    at::set_num_threads(own_threads);
    wait_for_all();
    const double shared = milliseconds_of(torch::kCPU, [&] { together.step(); });
    wait_for_all();
    const double exchange = milliseconds_of(torch::kCPU, [&] { ranks->sum({node.clone()}); });
    if (round < 0) continue;
    alone_ms.push_back(solo);
    ranks_ms.push_back(shared);
    exchange_ms.push_back(exchange);
  }
  return {engine, median(alone_ms), median(ranks_ms), median(exchange_ms),
          bytes_sent(together.numbers(), shards / ranks->size(), ranks->size())};
}

}  // namespace

std::vector<RanksTiming> bench_ranks(const StepBenchOptions& options, std::int64_t shards, int threads,
                                     const std::shared_ptr<Ranks>& ranks) {
  LOWTIDE_CHECK(options.batch % shards == 0 && shards % ranks->size() == 0, "a batch that can be shared out");
  std::vector<RanksTiming> timings;
  for (const std::string& engine : options.engines)
    timings.push_back(time_engine(options, engine, shards, threads, ranks));
  return timings;
}

}  // namespace lowtide
