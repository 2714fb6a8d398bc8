// The GPU does what the CPU does: the same codes for the same numbers, the same products up to the order of
// sums.
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include "lowtide/base/torch.h"
#include "lowtide/engine/engine.h"
#include "lowtide/models/cifar_resnet.h"
#include "lowtide/models/image_model.h"
#include "lowtide/nn/dropout.h"
#include "lowtide/nn/quant_layer.h"
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

// Rows shorter and longer than a warp's, a block's and the noise's share, and their like.
TEST_F(Cuda, SameCodesOfRows) {
  for (const std::int64_t length : {1, 7, 16, 64, 99, 128, 200, 256, 1024, 2500}) {
    torch::manual_seed(length);
    const torch::Tensor x = torch::randn({13, length}), on_gpu = x.cuda();
    const Range here = measure_range(x, RangeGroup::kRow), there = measure_range(on_gpu, RangeGroup::kRow);
    EXPECT_TRUE(there.min.cpu().equal(here.min) && there.range.cpu().equal(here.range)) << length;
    for (const int bits : {1, 3, 8}) {
      for (const Noise& noise : {Noise::none(), Noise::drawn({.seed = 3, .step = 5, .tensor = 7})}) {
        const Quantized q = encode(x, here, bits, noise), p = encode(on_gpu, there, bits, noise);
        EXPECT_TRUE(p.code.cpu().equal(q.code) && p.scale.cpu().equal(q.scale))
            << "rows of " << length << ", " << bits << " bits, noise " << noise.is_drawn();
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

TEST_F(Cuda, NotFiniteStaysVisible) {
  torch::Tensor x = activation(2).cuda();
  x[1][2][3][4] = std::numeric_limits<float>::quiet_NaN();
  const torch::Tensor y = decode(encode(x, measure_range(x, RangeGroup::kTensor), 8));
  EXPECT_TRUE(torch::isnan(y).all().item<bool>());
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
