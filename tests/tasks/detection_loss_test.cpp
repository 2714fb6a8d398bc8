#include "lowtide/tasks/detection_loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lowtide/models/anchors.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

struct Losses {
  double classification, box;
};

Losses losses(const torch::Tensor& probabilities, const torch::Tensor& deltas, const torch::Tensor& anchors,
              const torch::Tensor& objects) {
  const DetectionLoss loss = detection_loss(probabilities, deltas, anchors, objects);
  return {loss.classification.item<double>(), loss.box.item<double>()};
}

double focal(double alpha, double right) { return -alpha * (1 - right) * (1 - right) * std::log(right); }

// Four anchors of 10 × 10 and an object 10 wide: overlaps of 1, of 9 / 11, of 6 / 14 (left alone) and of none.
const torch::Tensor kAnchors =
    torch::tensor({0.f, 0.f, 10.f, 10.f, 1.f, 0.f, 11.f, 10.f, 4.f, 0.f, 14.f, 10.f, 50.f, 0.f, 60.f, 10.f})
        .view({4, 4});
const torch::Tensor kObject = torch::tensor({0.f, 0.f, 10.f, 10.f, 1.f}).view({1, 1, 5});

TEST(DetectionLoss, AsWorkedOutByHand) {
  const torch::Tensor probabilities = torch::full({1, 4, 2}, 0.2f);
  const Losses loss = losses(probabilities, torch::zeros({1, 4, 4}), kAnchors, kObject);
  // Two anchors find class 1 and not class 0, one is background in both classes, one does not count.
  EXPECT_NEAR(loss.classification, (2 * (focal(0.25, 0.2) + focal(0.75, 0.8)) + 2 * focal(0.75, 0.8)) / 2,
              1e-6);
  // The second anchor is a tenth of its width to the right: a target of -0.1 / 0.1.
  EXPECT_NEAR(loss.box, (1 - 0.5 / 9) / 4 / 2, 1e-6);
}

TEST(DetectionLoss, AnImageWithoutObjectsIsAllBackground) {
  const torch::Tensor probabilities = torch::full({1, 4, 2}, 0.3f).requires_grad_();
  const torch::Tensor deltas = torch::ones({1, 4, 4}).requires_grad_();
  const DetectionLoss loss = detection_loss(probabilities, deltas, kAnchors, torch::full({1, 3, 5}, -1.0f));
  EXPECT_NEAR(loss.classification.item<double>(), 8 * focal(0.75, 0.7), 1e-6);
  EXPECT_EQ(loss.box.item<double>(), 0);
  (loss.classification + loss.box).backward();
  EXPECT_TRUE(probabilities.grad().isfinite().all().item<bool>());
  EXPECT_TRUE(same(deltas.grad(), torch::zeros({1, 4, 4})));
}

TEST(DetectionLoss, PaddingChangesNothing) {
  const torch::Tensor probabilities = uniform({1, 4, 2}, 0.1, 0.9, 1), deltas = normal({1, 4, 4}, 2);
  const torch::Tensor padded = torch::cat({kObject, torch::full({1, 5, 5}, -1.0f)}, 1);
  const Losses plain = losses(probabilities, deltas, kAnchors, kObject);
  const Losses with_padding = losses(probabilities, deltas, kAnchors, padded);
  EXPECT_EQ(plain.classification, with_padding.classification);
  EXPECT_EQ(plain.box, with_padding.box);
}

TEST(DetectionLoss, CertaintyIsFinite) {
  for (const float p : {0.0f, 1.0f}) {
    const torch::Tensor probabilities = torch::full({1, 4, 2}, p).requires_grad_();
    const DetectionLoss loss = detection_loss(probabilities, torch::zeros({1, 4, 4}), kAnchors, kObject);
    loss.classification.backward();
    EXPECT_TRUE(std::isfinite(loss.classification.item<double>())) << p;
    EXPECT_TRUE(probabilities.grad().isfinite().all().item<bool>()) << p;
  }
}

TEST(DetectionLoss, NotANumberIsSeen) {
  torch::Tensor probabilities = torch::full({1, 4, 2}, 0.5f);
  probabilities[0][3][0] = NAN;
  EXPECT_TRUE(std::isnan(losses(probabilities, torch::zeros({1, 4, 4}), kAnchors, kObject).classification));
}

TEST(DetectionLoss, DoesNotDependOnTheNumberOfThreads) {
  const torch::Tensor anchors = make_anchors(320, 512);
  const std::int64_t count = anchors.size(0);
  const torch::Tensor probabilities = uniform({1, count, 20}, 0.01, 0.99, 1),
                      deltas = normal({1, count, 4}, 2);
  const torch::Tensor objects =
      torch::tensor({30.f, 40.f, 200.f, 180.f, 3.f, 100.f, 90.f, 300.f, 310.f, 7.f}).view({1, 2, 5});
  expect_independent_of_threads([&] {
    const DetectionLoss loss = detection_loss(probabilities, deltas, anchors, objects);
    return torch::stack({loss.classification, loss.box});
  });
}

TEST(Anchors, DecodingUndoesEncoding) {
  const torch::Tensor anchors = make_anchors(64, 64);
  const torch::Tensor boxes = torch::tensor({3.f, 5.f, 40.f, 60.f}).expand_as(anchors);
  // Differences of edges up to 600 pixels away: ten roundings of them.
  EXPECT_LT((decode_boxes(anchors, encode_boxes(anchors, boxes)) - boxes).abs().max().item<double>(),
            600 * 10 * 6e-8);
}

}  // namespace
}  // namespace lowtide
