// The GPU does what the CPU does: the same codes for the same numbers, the same products up to the order of
// sums.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include "lowtide/base/cuda_graphs.h"
#include "lowtide/base/torch.h"
#include "lowtide/engine/engine.h"
#include "lowtide/models/cifar_resnet.h"
#include "lowtide/models/image_model.h"
#include "lowtide/nn/attention.h"
#include "lowtide/nn/dropout.h"
#include "lowtide/nn/layer_norm.h"
#include "lowtide/nn/pointwise.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/nn/rounded_rows.h"
#include "lowtide/nn/row_sums.h"
#include "lowtide/nn/tensor_norm.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device, or a build without CUDA";
  }
};

torch::Tensor activation(std::int64_t seed) {
  torch::manual_seed(seed);
  return torch::randn({5, 7, 9, 11}).contiguous(torch::MemoryFormat::ChannelsLast);
}

// Ranges, and codes with and without noise, of the same numbers.
void expect_same_codes(const torch::Tensor& x, const torch::Tensor& on_gpu, RangeGroup group,
                       const std::string& what) {
  const Range here = measure_range(x, group), there = measure_range(on_gpu, group);
  EXPECT_TRUE(there.min.cpu().equal(here.min) && there.range.cpu().equal(here.range)) << what;
  for (const int bits : {1, 3, 8}) {
    for (const Noise& noise : {Noise::none(), Noise::drawn({.seed = 3, .step = 5, .tensor = 7})}) {
      const Quantized q = encode(x, here, bits, noise), p = encode(on_gpu, there, bits, noise);
      EXPECT_TRUE(p.code.cpu().equal(q.code) && p.scale.cpu().equal(q.scale))
          << what << ", " << bits << " bits, noise " << noise.is_drawn();
    }
  }
}

TEST_F(Cuda, SameCodesAsTheCpu) {
  const torch::Tensor x = activation(1), on_gpu = x.cuda();
  for (const RangeGroup group : {RangeGroup::kTensor, RangeGroup::kRow}) {
    const Range here = measure_range(x, group), there = measure_range(on_gpu, group);
    EXPECT_TRUE(there.min.cpu().equal(here.min));
    EXPECT_TRUE(there.range.cpu().equal(here.range));
    for (int bits = 2; bits <= 16; ++bits) {
      for (const Noise& noise : {Noise::none(), Noise::drawn({.seed = 3, .step = 5, .tensor = 7})}) {
        const Quantized q = encode(x, here, bits, noise), p = encode(on_gpu, there, bits, noise);
        EXPECT_TRUE(p.code.cpu().equal(q.code)) << bits << " bits";
        EXPECT_TRUE(p.scale.cpu().equal(q.scale)) << bits << " bits";
        EXPECT_TRUE(decode(p).cpu().equal(decode(q))) << bits << " bits";
      }
    }
  }
}

// Rows shorter and longer than a warp's, a block's and the noise's share, and their like; one alone is all of a tensor.
TEST_F(Cuda, SameCodesOfRows) {
  for (const std::int64_t rows : {1, 13}) {
    for (const std::int64_t length : {1, 7, 16, 31, 64, 99, 128, 200, 256, 1024, 2500}) {
      torch::manual_seed(length);
      const torch::Tensor x = torch::randn({rows, length});
      expect_same_codes(x, x.cuda(), RangeGroup::kRow, fmt::format("{} rows of {}", rows, length));
    }
  }
}

// Floats are read sixteen bytes at a time, but a part of a tensor may begin between.
TEST_F(Cuda, SameCodesOfAPart) {
  torch::manual_seed(5);
  const torch::Tensor x = torch::randn({5 * 133}), on_gpu = x.cuda();
  for (const RangeGroup group : {RangeGroup::kTensor, RangeGroup::kRow}) {
    for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{1, 133}, {4, 128}}) {
      for (std::int64_t first = 0; first < 5; ++first) {
        const auto part = [&](const torch::Tensor& of) {
          return of.narrow(0, first, sizes[0] * sizes[1]).view(sizes);
        };
        expect_same_codes(part(x), part(on_gpu), group,
                          fmt::format("{} x {} from {} on", sizes[0], sizes[1], first));
      }
    }
  }
}

TEST_F(Cuda, SameRangesOfPositions) {
  for (const std::int64_t length : {5, 12, 800}) {
    const torch::Tensor x = torch::randn({6, 9, length});
    const Range here = measure_position_ranges(x), there = measure_position_ranges(x.cuda());
    EXPECT_TRUE(there.min.cpu().equal(here.min) && there.range.cpu().equal(here.range)) << length;
  }
}

TEST_F(Cuda, SameRunningRangesHoweverManyMoveOne) {
  const auto moved = [](const torch::Device& device) {
    const auto numbers = [&](double first) {
      return torch::arange(100, torch::kFloat).mul(0.3).add(first).to(device);
    };
    const torch::Tensor low = numbers(-2), width = numbers(1);
    const torch::Tensor running = torch::zeros({4}).to(device);
    std::vector<RangeUpdate> updates;
    for (std::int64_t i = 0; i < 100; ++i)
      updates.push_back({running.narrow(0, i % 2, 1),
                         running.narrow(0, 2 + i % 2, 1),
                         {low.narrow(0, i, 1), width.narrow(0, i, 1)}});
    track(updates);
    return running.cpu();
  };
  EXPECT_TRUE(moved(torch::kCUDA).equal(moved(torch::kCPU)));
}

TEST_F(Cuda, SameDropout) {
  const auto execution = std::make_shared<Execution>();
  execution->seed = 11;
  DropoutImpl layer(0.3);
  layer.attach(execution, "dropout", 2);
  for (const std::int64_t size : {1, 127, 128, 1000, 100'000}) {
    torch::manual_seed(size);
    const torch::Tensor x = torch::randn({size}), error = torch::randn({size});
    std::vector<torch::Tensor> results;
    for (const torch::Device device : {torch::Device(torch::kCPU), torch::Device(torch::kCUDA)}) {
      execution->step = size;  // the same noise for both
      const torch::Tensor input = x.clone().to(device).requires_grad_();
      const torch::Tensor y = layer.forward(input);
      y.backward(error.to(device));
      results.push_back(torch::stack({y.detach().cpu(), input.grad().cpu()}));
      execution->step = 0;  // calls are counted anew in another step
      layer.noise_key();
    }
    EXPECT_TRUE(results[0].equal(results[1])) << size;
  }
}

TEST_F(Cuda, SameTensorNorm) {
  torch::manual_seed(8);
  const torch::Tensor x = torch::randn({301, 77}) + 3, error = torch::randn({301, 77});
  std::vector<torch::Tensor> results;
  for (const torch::Device device : {torch::Device(torch::kCPU), torch::Device(torch::kCUDA)}) {
    const torch::Tensor input = x.clone().to(device).requires_grad_();
    const torch::Tensor y = tensor_norm(input);
    y.backward(error.to(device));
    results.push_back(torch::stack({y.detach().cpu(), input.grad().cpu()}));
  }
  EXPECT_TRUE(close_to(results[1], results[0], 2e-6));
}

// Values and gradients of a function, made on both devices; inputs are drawn normally.
using Made = std::vector<torch::Tensor>;
template <typename Function>
std::vector<Made> on_both(const std::vector<std::vector<std::int64_t>>& sizes, const Function& function) {
  std::vector<Made> results;
  for (const torch::Device device : {torch::Device(torch::kCPU), torch::Device(torch::kCUDA)}) {
    torch::manual_seed(12);
    Made inputs;
    for (const auto& size : sizes) inputs.push_back(torch::randn(size).to(device).requires_grad_());
    const torch::Tensor y = function(inputs, device);
    y.backward(torch::randn(y.sizes()).to(device));
    Made made{y.detach().cpu()};
    for (const torch::Tensor& input : inputs) made.push_back(input.grad().cpu());
    results.push_back(made);
  }
  return results;
}

void expect_close(const std::vector<Made>& on_both_devices, double tolerance, const std::string& what) {
  for (std::size_t i = 0; i < on_both_devices[0].size(); ++i)
    EXPECT_TRUE(close_to(on_both_devices[1][i], on_both_devices[0][i], tolerance))
        << what << ", number " << i;
}

// Sums of up to 1,000 floats in another order: a few times 1e-7 of the largest.
constexpr double kAnotherOrder = 5e-6;

std::shared_ptr<Execution> seeded() {
  auto execution = std::make_shared<Execution>();
  execution->seed = 11;
  return execution;
}

// The first call of a step.
Dropout fresh_dropout(double share) {
  Dropout dropout(share);
  dropout->attach(seeded(), "dropout", 2);
  return dropout;
}

// Widths with a kernel, and one without.
TEST_F(Cuda, SameNormOfAResidual) {
  for (const std::int64_t width : {128, 768, 1024, 200}) {
    for (const double share : {0.0, 0.3}) {
      LayerNorm norm(width, 1e-5);
      const auto both = on_both(
          {{9, 31, width}, {9, 31, width}, {width}, {width}}, [&](const Made& in, const torch::Device&) {
            norm->weight = in[2];
            norm->bias = in[3];
            return norm->forward(in[0], in[1], fresh_dropout(share)) + norm->forward(in[1]);
          });
      expect_close(both, kAnotherOrder, fmt::format("width {}, dropout {}", width, share));
    }
  }
}

TEST_F(Cuda, SameWeightsOfAttention) {
  for (const std::int64_t length : {7, 64, 128, 256, 700}) {
    for (const double share : {0.0, 0.3}) {
      for (const bool causal : {false, true}) {
        Range ranges;
        const auto both = on_both({{6, length, length}}, [&](const Made& in, const torch::Device& device) {
          torch::Tensor mask = torch::zeros({causal ? 1 : 3, causal ? length : 1, length});
          const float never = -std::numeric_limits<float>::infinity();
          mask = causal ? torch::full_like(mask, never).triu(1)
                        : mask.index_fill(2, torch::tensor({length - 1}), never);
          const Activation weights = attention_weights(in[0], mask.to(device), 0.3, fresh_dropout(share), 3);
          ranges = weights.range;
          return weights.value;
        });
        expect_close(both, kAnotherOrder,
                     fmt::format("length {}, dropout {}, causal {}", length, share, causal));
        const torch::Tensor rows = both[1][0].view({-1, length});
        EXPECT_TRUE(ranges.min.cpu().equal(rows.amin(1)) &&
                    ranges.range.cpu().equal(rows.amax(1) - rows.amin(1)));
      }
    }
  }
}

// Heads of sizes with a kernel, and one without.
TEST_F(Cuda, SameProductsOfHeads) {
  for (const std::int64_t units : {32, 64, 128, 50}) {
    constexpr std::int64_t kItems = 3, kLength = 21, kHeads = 2;
    const auto both = on_both({{kItems, kLength, kHeads * units}, {kItems, kLength, kHeads * units}},
                              [&](const Made& in, const torch::Device& device) {
                                const auto execution = seeded();
                                execution->engine = make_engine(device.is_cpu() ? "simulated" : "cuda");
                                execution->bits = {8, 8};
                                QuantProduct product;
                                product->attach(execution, "product", 3);
                                return product->forward(ProductOperand::heads(in[0], kHeads, false),
                                                        ProductOperand::heads(in[1], kHeads, true), kItems);
                              });
    expect_close(both, kAnotherOrder, fmt::format("{} units", units));
  }
}

TEST_F(Cuda, SameNormOfATensorWithReluAndDropout) {
  for (const double share : {0.0, 0.3}) {
    const auto both = on_both({{301, 77}}, [&](const Made& in, const torch::Device&) {
      return relu_norm_dropout(in[0], fresh_dropout(share));
    });
    expect_close(both, kAnotherOrder, fmt::format("dropout {}", share));
  }
}

TEST_F(Cuda, SameGelu) {
  for (const std::int64_t size : {1, 7, 1000, 300'001}) {
    Range range;
    const auto both = on_both({{size}}, [&](const Made& in, const torch::Device&) {
      const Activation y = lowtide::gelu(in[0] * 3);
      range = y.range;
      return y.value;
    });
    expect_close(both, kAnotherOrder, fmt::format("{} numbers", size));
    const Range measured = measure_range(both[1][0], RangeGroup::kTensor);
    EXPECT_TRUE(range.min.cpu().equal(measured.min) && range.range.cpu().equal(measured.range)) << size;
  }
}

TEST_F(Cuda, SameRoundedRows) {
  torch::manual_seed(10);
  for (const std::int64_t columns : {4, 40, 512, 1000, 3072, 37}) {
    const torch::Tensor x = torch::randn({30, columns}), factor = torch::rand({30}),
                        bias = torch::randn({columns});
    for (const int bits : {3, 8, 12, 0}) {
      const torch::Tensor here = rounded_rows(x, factor, bias, bits),
                          there = rounded_rows(x.cuda(), factor.cuda(), bias.cuda(), bits);
      EXPECT_TRUE(there.cpu().equal(here)) << columns << " columns, " << bits << " bits";
      EXPECT_TRUE(rounded(bias.cuda(), bits).cpu().equal(rounded(bias, bits)))
          << columns << " columns, " << bits << " bits";
    }
  }
}

// Of few rows, as an LSTM's first hidden state is.
TEST_F(Cuda, ZerosGiveZeros) {
  torch::manual_seed(7);
  const auto quantised = [](const torch::Tensor& x, RangeGroup group) {
    return encode(x, measure_range(x, group), 8);
  };
  for (const RangeGroup group : {RangeGroup::kTensor, RangeGroup::kRow}) {
    const Quantized x = quantised(torch::zeros({5, 33}).cuda(), group),
                    w = quantised(torch::randn({7, 33}).cuda(), group);
    const torch::Tensor y = make_engine("cuda")->product(x, w, {.transpose_b = true});
    EXPECT_TRUE(y.cpu().equal(torch::zeros({5, 7})));
  }
}

// More matrices than a grid has room for in y and z.
TEST_F(Cuda, SameProductsOfManyMatrices) {
  torch::manual_seed(6);
  const torch::Tensor a = torch::randn({70'000, 2, 3}), b = torch::randn({70'000, 3, 5});
  for (const RangeGroup group : {RangeGroup::kTensor, RangeGroup::kRow}) {
    const Quantized left = encode(a, measure_range(a, RangeGroup::kTensor), 8),
                    right = encode(b, measure_range(b, group), 8);
    const auto on_gpu = [](const Quantized& q) {
      return Quantized{q.code.cuda(), q.scale.cuda(), q.offset.cuda(), q.bits};
    };
    EXPECT_TRUE(close_to(make_engine("cuda")->product(on_gpu(left), on_gpu(right), {}).cpu(),
                         make_engine("simulated")->product(left, right, {}), kAnotherOrder));
  }
}

TEST_F(Cuda, SameSumsOfCodes) {
  torch::manual_seed(9);
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{1, 1}, {63, 40}, {1000, 37}, {5000, 768}}) {
    const torch::Tensor x = torch::randn(sizes), factor = torch::rand({sizes[0]});
    for (const RangeGroup group : {RangeGroup::kTensor, RangeGroup::kRow}) {
      const Quantized q = encode(x, measure_range(x, group), 8);
      const Quantized there{q.code.cuda(), q.scale.cuda(), q.offset.cuda(), q.bits};
      EXPECT_TRUE(close_to(sum_rows(there).cpu(), sum_rows(q), kAnotherOrder));
      const DecodedRows here = decode_and_sum(q, factor), on_gpu = decode_and_sum(there, factor.cuda());
      EXPECT_TRUE(on_gpu.values.cpu().equal(here.values));
      EXPECT_TRUE(close_to(on_gpu.sums.cpu(), here.sums, kAnotherOrder));
    }
  }
}

TEST_F(Cuda, NotFiniteStaysVisible) {
  torch::Tensor x = activation(2).cuda();
  x[1][2][3][4] = std::numeric_limits<float>::quiet_NaN();
  const torch::Tensor y = decode(encode(x, measure_range(x, RangeGroup::kTensor), 8));
  EXPECT_TRUE(torch::isnan(y).all().item<bool>());
}

// What is thrown leaves nothing behind: the next launch is captured anew.
TEST_F(Cuda, AGraphWhoseCaptureThrew) {
  CudaGraphs graphs(torch::kCUDA);
  const torch::Tensor x = torch::zeros({3}, torch::kCUDA);
  int calls = 0;
  const auto work = [&] {
    x.add_(1);
    if (++calls == 3) throw std::runtime_error("broken");
  };
  for (int warm_up = 0; warm_up < 2; ++warm_up) graphs.run("work", work);
  EXPECT_THROW(graphs.run("work", work), std::runtime_error);
  for (int replay = 0; replay < 2; ++replay) graphs.run("work", work);
  EXPECT_EQ(graphs.captures(), 1);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(x.sum().item<float>(), 3 * 4);
}

// One training step of a ResNet-8 on both devices. Convolutions sum in another order, which moves codes that
// lie on a border: fp32 agrees to rounding, 8 bits to what a start one rounding away gives.
TEST_F(Cuda, SameStepAsTheCpu) {
  for (const Bits bits : {Bits{0, 0}, Bits{8, 8}}) {
    std::vector<torch::Tensor> logits;
    for (const torch::Device device : {torch::Device(torch::kCPU), torch::Device(torch::kCUDA)}) {
      const auto model = make_cifar_resnet(8, 3, 10);
      initialise(*model, 1);
      const auto execution = std::make_shared<Execution>();
      execution->engine = make_engine("simulated");
      execution->bits = bits;
      attach_layers(*model, execution, LayerRules(model->default_rules()));
      model->to(device);
      torch::manual_seed(4);
      const torch::Tensor x = torch::randn({16, 3, 32, 32}).contiguous(torch::MemoryFormat::ChannelsLast);
      const torch::Tensor y = model->forward(x.to(device));
      torch::cross_entropy_loss(y, torch::arange(16).remainder(10).to(device)).backward();
      for (const auto& parameter : model->parameters()) {
        ASSERT_TRUE(torch::isfinite(parameter.grad()).all().item<bool>());
      }
      logits.push_back(y.detach().cpu());
    }
    const double distance = ((logits[0] - logits[1]).norm() / logits[0].norm()).item<double>();
    EXPECT_LT(distance, bits.forward == 0 ? 1e-3 : 5e-3);  // TF32 convolutions have 10 bits of significand
  }
}

}  // namespace
}  // namespace lowtide
