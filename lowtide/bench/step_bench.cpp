#include "lowtide/bench/step_bench.h"

#include <torch/utils.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/tensor_memory.h"
#include "lowtide/base/torch.h"
#include "lowtide/bench/timing.h"
#include "lowtide/bench/work_recorder.h"
#include "lowtide/tasks/image_setup.h"
#include "lowtide/tasks/setup.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/optimizer.h"
#include "lowtide/train/simulated_layers.h"
#include "lowtide/train/step_graph.h"
#if defined(LOWTIDE_WITH_CUDA)
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace lowtide {
namespace {

// A network with its optimiser, ready to take steps.
class Candidate {
 public:
  virtual ~Candidate() = default;
  void step() {
    allow_tf32(tf32_);
    draw_batch();
    if (graph_) {
      graph_->run(
          kRate, [&] { compute_and_update(); }, batch_shape());
    } else {
      compute_and_update();
    }
    ++execution().step;
  }
  // Never from a graph, whose memory stays where it is.
  void step_as_it_is() {
    draw_batch();
    compute_and_update();
  }
  // What a step must do at the least, by a step of its own.
  LeastWork least_work() {
    const auto recorder = std::make_shared<WorkRecorder>();
    const auto engine = std::exchange(execution().engine, recorder);
    step_as_it_is();
    execution().engine = engine;
    LeastWork work = recorder->work();
    std::int64_t parameters = 0, optimizer_numbers = 0;
    for (const torch::Tensor& parameter : model().parameters()) parameters += parameter.numel();
    for (const auto& [name, tensor] : optimizer_->tensors()) optimizer_numbers += tensor.numel();
    work.bytes += least_update_bytes(parameters, optimizer_numbers);
    return work;
  }
  std::int64_t kernels() const { return graph_ ? graph_->kernels() : 0; }
  std::int64_t captures() const { return graph_ ? graph_->captures() : 0; }
  std::string simulated() { return simulated_text(model(), execution()); }
  torch::Device device() const { return halted_.device(); }
  void forget_gradients() { model().zero_grad(/*set_to_none=*/true); }
  bool tf32() const { return tf32_; }
  virtual std::int64_t items() const = 0;
  virtual std::string item_name() const = 0;
  virtual std::string data() const { return ""; }

 protected:
  virtual torch::nn::Module& model() = 0;
  virtual Execution& execution() = 0;
  virtual void draw_batch() {}
  virtual std::int64_t batch_shape() const { return 0; }
  virtual void compute_gradients() = 0;
  virtual bool is_capturable() const { return true; }
  void prepare(const Recipe& recipe, Bits bits) {
    execution().bits = bits;
    tf32_ = recipe.running.device == "cuda" && recipe.running.tf32;
    optimizer_ = make_optimizer(recipe.training, model());
    const torch::Device device = model().parameters()[0].device();
    halted_ = torch::zeros({}, torch::TensorOptions(torch::kBool).device(device));
    if (is_capturable() && StepGraph::is_possible(execution(), device))
      graph_ = std::make_unique<StepGraph>(model(), execution(), device);
  }

 private:
  static constexpr double kRate = 0.01;

  void compute_and_update() {
    model().zero_grad(/*set_to_none=*/true);
    compute_gradients();
    optimizer_->step(kRate, halted_, graph_ ? graph_->parameters() : nullptr);
  }

  bool tf32_ = false;
  torch::Tensor halted_;  // never true: every step is made whole
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepGraph> graph_;
};

// An image model on one batch.
class ImageCandidate final : public Candidate {
 public:
  ImageCandidate(const StepBenchOptions& options, const Recipe& recipe, Bits bits,
                 const torch::Tensor& images, const torch::Tensor& labels)
      : images_(images),
        labels_(labels),
        execution_(make_execution(recipe.precision, recipe.running, recipe.training.seed)) {
    const auto size = static_cast<int>(images.size(2));
    const ImageModelInfo& info = image_model(options.model);
    model_ = make_image_model(info.name, {3, size, size, info.classes}, {}, execution_);
    model_->to(images.device());
    prepare(recipe, bits);
  }
  std::int64_t items() const override { return images_.size(0); }
  std::string item_name() const override { return "images"; }

 protected:
  torch::nn::Module& model() override { return *model_; }
  Execution& execution() override { return *execution_; }
  void compute_gradients() override {
    torch::cross_entropy_loss(model_->forward(images_), labels_).backward();
  }

 private:
  torch::Tensor images_, labels_;
  std::shared_ptr<Execution> execution_;
  std::shared_ptr<ImageModel> model_;
};

// A recipe's task on its data.
class TaskCandidate final : public Candidate {
 public:
  TaskCandidate(const Recipe& recipe, Bits bits) : task_(make_task_or_drawn(recipe, assumed_)) {
    prepare(recipe, bits);
  }
  std::int64_t items() const override { return task_->items_per_step(); }
  std::string item_name() const override { return task_->item_name(); }
  std::string data() const override { return assumed_.empty() ? task_->describe() : assumed_; }

 protected:
  torch::nn::Module& model() override { return task_->model(); }
  Execution& execution() override { return task_->execution(); }
  void draw_batch() override { task_->draw_batch(); }
  std::int64_t batch_shape() const override { return task_->batch_shape(); }
  void compute_gradients() override { task_->compute_step(); }
  bool is_capturable() const override { return task_->is_capturable(); }

 private:
  std::string assumed_;
  std::unique_ptr<Task> task_;
};

using MakeCandidate = std::function<std::unique_ptr<Candidate>(const Recipe& recipe, Bits bits)>;

MakeCandidate image_candidates(const StepBenchOptions& options) {
  const ImageModelInfo& info = image_model(options.model);
  const int size = options.image_size > 0 ? options.image_size : info.input_size;
  const torch::Device device(options.device == "cuda" ? torch::kCUDA : torch::kCPU);
  torch::manual_seed(1);
  const torch::Tensor images =
      torch::randn({options.batch, 3, size, size}).contiguous(torch::MemoryFormat::ChannelsLast).to(device);
  const torch::Tensor labels = torch::randint(info.classes, {options.batch}).to(device);
  return [=](const Recipe& recipe, Bits bits) {
    return std::make_unique<ImageCandidate>(options, recipe, bits, images, labels);
  };
}

Recipe recipe_for(const StepBenchOptions& options, const std::string& engine) {
  Recipe recipe = options.recipe.value_or(Recipe{});
  recipe.precision.engine = engine == "fp32" ? "simulated" : engine;
  recipe.precision.recompute = options.recompute;
  recipe.running.device = options.device;
  if (is_timed_with_tf32(engine)) recipe.running.tf32 = true;
  return recipe;
}

std::int64_t peak_bytes_on_cpu(Candidate& candidate) {
  candidate.forget_gradients();
  const std::int64_t before = TensorMemory::current();
  TensorMemory::restart_peak();
  candidate.step();
  return TensorMemory::peak() - before;
}

std::int64_t peak_bytes_on_cuda([[maybe_unused]] Candidate& candidate) {
#if defined(LOWTIDE_WITH_CUDA)
  namespace allocator = c10::cuda::CUDACachingAllocator;
  constexpr auto kAll = 0;  // the statistic over all pools
  const auto device = c10::cuda::current_device();
  candidate.forget_gradients();
  allocator::resetPeakStats(device);
  const std::int64_t before = allocator::getDeviceStats(device).allocated_bytes[kAll].current;
  candidate.step_as_it_is();
  return allocator::getDeviceStats(device).allocated_bytes[kAll].peak - before;
#else
  invariant_failed("a build with CUDA", __FILE__, __LINE__, "a CUDA benchmark");
#endif
}

}  // namespace

bool is_timed_with_tf32(const std::string& engine) { return engine == "fp32" || engine == "cuda"; }

StepBench bench_step(const StepBenchOptions& options) {
  const bool on_cuda = device_of({.device = options.device}).is_cuda();
  const MakeCandidate make =
      options.recipe ? [](const Recipe& recipe, Bits bits) -> std::unique_ptr<Candidate> {
    return std::make_unique<TaskCandidate>(recipe, bits);
  }
  : image_candidates(options);
  std::vector<std::unique_ptr<Candidate>> candidates;
  std::vector<StepTiming> timings;
  for (const std::string& engine : options.engines) {
    candidates.push_back(make(recipe_for(options, engine), engine == "fp32" ? Bits{} : options.bits));
    Candidate& candidate = *candidates.back();
    for (int i = 0; i < kWarmUpSteps; ++i) candidate.step();
    timings.push_back({.engine = engine,
                       .tf32 = candidate.tf32(),
                       .data = candidate.data(),
                       .items = candidate.items(),
                       .item_name = candidate.item_name(),
                       .simulated = candidate.simulated(),
                       .peak_bytes = on_cuda ? peak_bytes_on_cuda(candidate) : peak_bytes_on_cpu(candidate)});
  }
  std::vector<std::vector<double>> samples(candidates.size());
  for (int round = 0; round < options.repeat; ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      Candidate& candidate = *candidates[i];
      samples[i].push_back(milliseconds_of(candidate.device(), [&] { candidate.step(); }));
    }
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    timings[i].milliseconds = median(samples[i]);
    timings[i].fastest = *std::min_element(samples[i].begin(), samples[i].end());
    timings[i].kernels = candidates[i]->kernels();
    timings[i].captures = candidates[i]->captures();
    timings[i].least = candidates[i]->least_work();
  }
  const MachinePeaks peaks = measure_peaks(candidates[0]->device());
  for (StepTiming& timing : timings)
    timing.least_milliseconds = least_milliseconds(timing.least, peaks, timing.tf32);
  return {peaks, timings};
}

}  // namespace lowtide
