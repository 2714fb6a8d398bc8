#include "lowtide/models/anchors.h"
#include "lowtide/tasks/detection_loss.h"
#include "tests/golden/recording.h"

namespace lowtide {
namespace {

class GoldenDetection : public testing::Test {
 protected:
  // `recorded`: the objects, and the losses and gradients for them.
  void expect_losses(const Recording& recorded) const {
    const torch::Tensor probabilities = golden_["classification"].clone().requires_grad_();
    const torch::Tensor deltas = golden_["regression"].clone().requires_grad_();
    const DetectionLoss loss =
        detection_loss(probabilities, deltas, golden_["anchors"][0], recorded["annotations"]);
    (loss.classification + loss.box).backward();
    // Sums of some ten thousand terms without a sign, in pieces: 1e-6. The gradients are an element's own: some ten
    // roundings.
    EXPECT_TRUE(close_to(loss.classification.view({1}), recorded["loss_classification"], 2e-6));
    EXPECT_TRUE(close_to(loss.box.view({1}), recorded["loss_regression"], 2e-6));
    EXPECT_TRUE(close_to(probabilities.grad(), recorded["grad_classification"], 1e-6));
    EXPECT_TRUE(close_to(deltas.grad(), recorded["grad_regression"], 1e-6));
  }

  const Recording golden_{"detection_losses.pt"};
};

TEST_F(GoldenDetection, Anchors) {
  const std::vector<std::int64_t> size = golden_.numbers("image_size");
  // Computed in double there and here: alike to the last bit but one.
  EXPECT_TRUE(close_to(make_anchors(size[0], size[1]), golden_["anchors"][0], 1e-7));
}

TEST_F(GoldenDetection, LossesAndTheirGradients) { expect_losses(golden_); }

TEST_F(GoldenDetection, AnImageWithoutAnObject) { expect_losses(golden_.under("empty.")); }

TEST_F(GoldenDetection, DecodedBoxes) {
  // Edges up to 500 pixels from a centre and an exponential: three roundings.
  EXPECT_TRUE(close_to(decode_boxes(golden_["anchors"], golden_["regression"]), golden_["decoded"], 4e-7));
}

}  // namespace
}  // namespace lowtide
