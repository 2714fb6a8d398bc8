#include "lowtide/bench/step_bench.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>

#include "lowtide/base/error.h"
#include "lowtide/bench/memory_meter.h"
#include "lowtide/tasks/image_setup.h"
#include "lowtide/tasks/setup.h"
#include "lowtide/train/optimizer.h"
#if defined(LOWTIDE_WITH_CUDA)
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace lowtide {
namespace {

constexpr int kWarmUpSteps = 3;

// A network with its optimiser, ready to take steps on one batch.
class Candidate {
 public:
  Candidate(const StepBenchOptions& options, const std::string& engine, const torch::Tensor& images,
            const torch::Tensor& labels)
      : images_(images), labels_(labels) {
    Recipe recipe;
    recipe.model = options.model;
    recipe.engine = engine == "fp32" ? "simulated" : engine;
    recipe.recompute = options.recompute;
    recipe.device = options.device;
    execution_ = make_execution(recipe);
    execution_->bits = engine == "fp32" ? Bits{} : options.bits;
    const auto size = static_cast<int>(images.size(2));
    model_ = make_image_model(recipe, {3, size, size, image_model(options.model).classes}, execution_);
    model_->to(images.device());
    optimizer_ = make_optimizer(recipe, *model_);
    go_on_ = torch::zeros({}, torch::TensorOptions(torch::kBool).device(images.device()));
  }

  void step() {
    model_->zero_grad(/*set_to_none=*/true);
    torch::cross_entropy_loss(model_->forward(images_), labels_).backward();
    optimizer_->step(0.01, go_on_);
    ++execution_->step;
    if (images_.device().is_cuda()) torch::cuda::synchronize();
  }

  void forget_gradients() { model_->zero_grad(/*set_to_none=*/true); }

 private:
  torch::Tensor images_, labels_, go_on_;
  std::shared_ptr<Execution> execution_;
  std::shared_ptr<ImageModel> model_;
  std::unique_ptr<Optimizer> optimizer_;
};

double milliseconds_of(Candidate& candidate) {
  const auto before = std::chrono::steady_clock::now();
  candidate.step();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count();
}

std::int64_t peak_bytes_on_cpu(Candidate& candidate) {
  candidate.forget_gradients();
  const std::int64_t before = MemoryMeter::current();
  MemoryMeter::restart_peak();
  candidate.step();
  return MemoryMeter::peak() - before;
}

std::int64_t peak_bytes_on_cuda([[maybe_unused]] Candidate& candidate) {
#if defined(LOWTIDE_WITH_CUDA)
  namespace allocator = c10::cuda::CUDACachingAllocator;
  constexpr auto kAll = 0;  // the statistic over all pools
  const auto device = c10::cuda::current_device();
  candidate.forget_gradients();
  allocator::resetPeakStats(device);
  const std::int64_t before = allocator::getDeviceStats(device).allocated_bytes[kAll].current;
  candidate.step();
  return allocator::getDeviceStats(device).allocated_bytes[kAll].peak - before;
#else
  invariant_failed("a build with CUDA", __FILE__, __LINE__, "a CUDA benchmark");
#endif
}

}  // namespace

std::vector<StepTiming> bench_step(const StepBenchOptions& options) {
  const bool on_cuda = options.device == "cuda";
  if (on_cuda && !torch::cuda::is_available())
    throw UserError("device 'cuda': this build or this machine has none");
  const ImageModelInfo& info = image_model(options.model);
  const int size = options.image_size > 0 ? options.image_size : info.input_size;
  const torch::Device device(on_cuda ? torch::kCUDA : torch::kCPU);
  torch::manual_seed(1);
  const torch::Tensor images =
      torch::randn({options.batch, 3, size, size}).contiguous(torch::MemoryFormat::ChannelsLast).to(device);
  const torch::Tensor labels = torch::randint(info.classes, {options.batch}).to(device);
  std::vector<Candidate> candidates;
  std::vector<StepTiming> timings;
  for (const std::string& engine : options.engines) {
    candidates.emplace_back(options, engine, images, labels);
    for (int i = 0; i < kWarmUpSteps; ++i) candidates.back().step();
    const std::int64_t peak =
        on_cuda ? peak_bytes_on_cuda(candidates.back()) : peak_bytes_on_cpu(candidates.back());
    timings.push_back({.engine = engine, .peak_bytes = peak});
  }
  std::vector<std::vector<double>> samples(candidates.size());
  for (int round = 0; round < options.repeat; ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i) samples[i].push_back(milliseconds_of(candidates[i]));
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    std::sort(samples[i].begin(), samples[i].end());
    timings[i].milliseconds = samples[i][samples[i].size() / 2];
    timings[i].fastest = samples[i].front();
  }
  return timings;
}

}  // namespace lowtide
