#include "lowtide/trunk/trunk.h"
#include "tests/golden/image_names.h"
#include "tests/golden/layer_check.h"
#include "tests/golden/step_check.h"

namespace lowtide {
namespace {

Bits bits_of(const Recording& block) {
  const std::vector<std::int64_t> cfg = block.numbers("cfg");
  return {static_cast<int>(cfg[4]), static_cast<int>(cfg[5])};
}

class RecordedBlock {
 public:
  explicit RecordedBlock(const Recording& recorded) : recorded_(recorded) {
    const std::vector<std::int64_t> cfg = recorded.numbers("cfg");
    trunk_.append(register_block(block_, inverted_residual(cfg[0], cfg[1], cfg[2], cfg[3])));
    attach_layers(block_, execution, {});
    block_.to(device_under_test());
  }

  StepResult step(Bits bits) {
    load(block_, recorded_.under("init."), mobilenet_name);
    execution->bits = bits;
    block_.zero_grad();
    const torch::Tensor x = recorded_["x"].clone().requires_grad_();
    const torch::Tensor y = trunk_.forward(x);
    y.backward(recorded_["grad_y"]);
    StepResult result{
        y.detach(), {}, gradients_of(block_, mobilenet_name), buffers_of(block_, mobilenet_name)};
    result.gradients["x"] = x.grad();
    return result;
  }

  torch::Tensor evaluate(Bits bits) {
    const torch::NoGradGuard no_grad;
    load(block_, recorded_.under("final."), mobilenet_name);
    execution->bits = bits;
    block_.eval();
    return trunk_.forward(recorded_["x"]);
  }

  const std::shared_ptr<Execution> execution = execution_at({});

 private:
  const Recording& recorded_;
  torch::nn::Module block_{"block"};
  Trunk trunk_;
};

class GoldenMobileNetV2Block : public testing::Test {
 protected:
  const std::vector<Recording> blocks_ = Recording("mobilenetv2_block.pt").numbered("m");
};

TEST_F(GoldenMobileNetV2Block, EachConvolutionByItself) {
  for (const Recording& block : blocks_) {
    for (const std::string& layer : block.layers()) {
      const Recording io = block.under("io." + layer + ".");
      QuantConv2d conv = recorded_conv(block["init." + layer + ".weight"], io["x"], io["y"], bits_of(block));
      load_running_range(*conv, block.under("init."), layer);
      expect_conv(conv, io);
      const torch::Tensor& y = io["y"];
      EXPECT_TRUE(close_to(conv->weight.grad(), block["grad." + layer + ".weight"],
                           sum_tolerance(y.numel() / y.size(1))))
          << io.name();
      expect_running_range(*conv, block.under("final."), layer);
    }
  }
}

TEST_F(GoldenMobileNetV2Block, Step) {
  const Closeness closeness{.first_layers = {"conv1.", "bn1.", "shortcut.", "bn4."}};
  for (const Recording& block : blocks_) {
    SCOPED_TRACE(block.name());
    RecordedBlock network(block);
    StepResult ours;
    const bool same = has_recorded_codes(*network.execution, block, mobilenet_name,
                                         [&] { ours = network.step(bits_of(block)); });
    StepResult recorded{block["y"],
                        {},
                        block.under("grad.").tensors(),
                        recorded_like(ours.statistics, block.under("final."))};
    recorded.gradients["x"] = block["grad_x"];
    expect_step(recorded, ours, network.step({same ? bits_of(block).forward : kFineBits, kFineBits}),
                closeness);
  }
}

TEST_F(GoldenMobileNetV2Block, Evaluation) {
  for (const Recording& block : blocks_) {
    RecordedBlock network(block);
    EXPECT_TRUE(as_rounded(block["y_eval"], network.evaluate(bits_of(block)), network.evaluate(kFine), 1))
        << block.name();
  }
}

}  // namespace
}  // namespace lowtide
