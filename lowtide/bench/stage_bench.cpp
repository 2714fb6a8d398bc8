#include "lowtide/bench/stage_bench.h"

#include <torch/utils.h>

#include <memory>
#include <utility>

#include "lowtide/base/cuda_graphs.h"
#include "lowtide/base/torch.h"
#include "lowtide/bench/step_bench.h"
#include "lowtide/bench/timing.h"
#include "lowtide/bench/work_recorder.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {
namespace {

// Of a timing, so that waiting for the device is little of it.
constexpr int kReplays = 20;
constexpr int kChain = 4;

bool reads_its_own_result(const ConvShape& s) {
  return s.input[1] == s.weight[0] && s.input[2] == s.output_height() && s.input[3] == s.output_width();
}

// Equal stages, each of which reads the one before it.
class Chain {
 public:
  Chain(const ConvShape& shape, Bits bits, const torch::Device& device)
      : shape_(shape), bits_(bits), stages_(reads_its_own_result(shape) ? kChain : 1) {
    torch::manual_seed(1);
    const torch::Tensor x = contiguous(torch::relu(torch::randn(shape.input))).to(device);
    input_ = encode(x, range_of(x), bits.forward);
    for (int i = 0; i < stages_; ++i)
      weights_.push_back(
          {contiguous(torch::randn(shape.weight)).to(device), bits.forward, shape.groups, shape.stride[0]});
    gradient_ = contiguous(torch::randn({shape.input[0], shape.weight[0], shape.output_height(),
                                         shape.output_width()}))
                    .to(device);
    const auto floats = torch::TensorOptions(torch::kFloat).device(device);
    const std::int64_t channels = shape.weight[0];
    norm_ = {.weight = torch::ones({channels}, floats),
             .bias = torch::zeros({channels}, floats),
             .running_mean = torch::zeros({channels}, floats),
             .running_variance = torch::ones({channels}, floats),
             .uses_batch = true,
             .momentum = 0.1};
  }

  int stages() const { return stages_; }

  void forward(const Engine& engine) {
    passes_.clear();
    const auto prepared = engine.prepare_convs(weights_, /*keeps=*/true);
    Quantized input = input_;
    for (const auto& weight : prepared) {
      ConvNormCall call;
      call.input = input;
      call.conv = weight;
      call.shape = shape_;
      call.norm = norm_;
      passes_.push_back(engine.conv_norm(call));
      input = is_float_bits(bits_.forward) ? passes_.back()->encode({}, bits_.forward)
                                           : passes_.back()->encode_measured(bits_.forward).codes;
    }
    output_ = input;
  }

  void backward(const Engine& engine) {
    weight_gradients_.clear();
    NormGradients at = passes_.back()->norm_gradient(gradient_, error_format(passes_.size()), false);
    for (std::size_t i = passes_.size(); i-- > 0;) {
      weight_gradients_.push_back(passes_[i]->weight_gradient(at.error.for_weight));
      if (i > 0) {
        at = passes_[i]->producer_gradient(at.error.for_input, {}, *passes_[i - 1], error_format(i), false);
      } else {
        input_gradient_ = passes_[i]->input_gradient(at.error.for_input, {}, nullptr);
      }
    }
    engine.finish_gradients();
  }

 private:
  Range range_of(const torch::Tensor& x) const {
    return is_float_bits(bits_.forward) ? Range{} : measure_range(x, RangeGroup::kTensor);
  }
  ErrorFormat error_format(std::size_t stage) const {
    return {.bits = bits_.backward,
            .noise = Noise::drawn({.seed = 1, .step = 1, .tensor = static_cast<std::uint32_t>(stage)})};
  }

  ConvShape shape_;
  Bits bits_;
  int stages_;
  Quantized input_, output_;
  std::vector<ConvWeight> weights_;
  torch::Tensor gradient_, input_gradient_;
  NormParameters norm_;
  std::vector<std::unique_ptr<ConvNorm>> passes_;
  std::vector<torch::Tensor> weight_gradients_;
};

LeastWork share_of(LeastWork work, int stages) {
  return {work.bytes / stages, work.byte_macs / stages, work.float_macs / stages};
}

StageEngineTiming time_engine(const StageBenchOptions& options, const ConvShape& shape,
                              const std::string& name, const torch::Device& device) {
  const bool is_fp32 = name == "fp32";
  allow_tf32(is_timed_with_tf32(name) && device.is_cuda());
  const auto engine = make_engine(choose_engine(is_fp32 ? "simulated" : name, options.device));
  Chain chain(shape, is_fp32 ? Bits{} : options.bits, device);
  CudaGraphs graphs(device);
  const auto forward = [&] { chain.forward(*engine); };
  const auto both = [&] {
    chain.forward(*engine);
    chain.backward(*engine);
  };
  const auto time = [&](const std::string& key, const std::function<void()>& work) {
    const double all = fastest(device, options.repeat, [&] {
      for (int i = 0; i < kReplays; ++i) graphs.run(key, work);
    });
    return all / (kReplays * chain.stages());
  };
  StageEngineTiming timing;
  timing.engine = name;
  timing.forward.milliseconds = time("forward", forward);
  timing.backward.milliseconds = time("both", both) - timing.forward.milliseconds;

  const WorkRecorder recorder;
  chain.forward(recorder);
  timing.forward.least = share_of(recorder.work(), chain.stages());
  chain.backward(recorder);
  timing.backward.least = share_of(recorder.work(), chain.stages()).minus(timing.forward.least);
  return timing;
}

}  // namespace

StageBench bench_stages(const StageBenchOptions& options) {
  const torch::NoGradGuard no_grad;
  const torch::Device device = device_of({.device = options.device});
  StageBench bench{measure_peaks(device), {}};
  for (ModelShape& of : model_shapes(options.models, options.batch)) {
    StageLayer& layer = bench.layers.emplace_back(StageLayer{of.shape, std::move(of.models), {}});
    for (const std::string& engine : options.engines) {
      layer.engines.push_back(time_engine(options, of.shape, engine, device));
      const bool tf32 = is_timed_with_tf32(engine);
      for (StageTiming* timing : {&layer.engines.back().forward, &layer.engines.back().backward})
        timing->least_milliseconds = least_milliseconds(timing->least, bench.peaks, tf32);
    }
  }
  return bench;
}

}  // namespace lowtide
