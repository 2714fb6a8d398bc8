#include "lowtide/data/detection/boxes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lowtide {
namespace {

using ::testing::ElementsAre;

TEST(Boxes, IntersectionOverUnionByHand) {
  const BoundingBox square = {0, 0, 10, 10};
  EXPECT_EQ(intersection_over_union(square, square), 1);
  // Half of it: 50 of 100. A quarter overlaps: 25 of 175. Side by side: the common edge has no area.
  EXPECT_EQ(intersection_over_union(square, {0, 0, 5, 10}), 0.5);
  EXPECT_DOUBLE_EQ(intersection_over_union(square, {5, 5, 15, 15}), 25.0 / 175);
  EXPECT_EQ(intersection_over_union(square, {10, 0, 20, 10}), 0);
  EXPECT_EQ(intersection_over_union(square, {50, 50, 60, 60}), 0);
  EXPECT_EQ(intersection_over_union({3, 3, 3, 3}, {3, 3, 3, 3}), 0);  // nothing of nothing
  EXPECT_EQ(intersection_over_union(square, {8, 8, 2, 2}), 0);        // inside out
}

TEST(Boxes, ScaledFlippedClipped) {
  const BoundingBox box = {2, 3, 6, 9};
  EXPECT_EQ(scaled(box, 1.5), (BoundingBox{3, 4.5, 9, 13.5}));
  EXPECT_EQ(flipped(box, 10), (BoundingBox{4, 3, 8, 9}));
  EXPECT_EQ(flipped(flipped(box, 10), 10), box);
  EXPECT_EQ(clipped({-1, 2, 12, 20}, 10, 8), (BoundingBox{0, 2, 10, 8}));
  EXPECT_EQ(area(clipped({11, 2, 12, 5}, 10, 8)), 0);
}

std::vector<std::int32_t> kept(const std::vector<BoundingBox>& boxes, const std::vector<float>& scores,
                               const std::vector<std::int32_t>& labels, double threshold) {
  return suppress_non_maxima(boxes, scores, labels, threshold);
}

TEST(NonMaximumSuppression, KeepsTheHighestOfAHeap) {
  // 1 and 0 overlap by 81 / 119, 2 and 1 too, 2 and 0 by 64 / 136 = 0.47.
  const std::vector<BoundingBox> boxes = {{0, 0, 10, 10}, {1, 1, 11, 11}, {2, 2, 12, 12}, {50, 50, 60, 60}};
  EXPECT_THAT(kept(boxes, {0.9f, 0.8f, 0.7f, 0.1f}, {0, 0, 0, 0}, 0.5), ElementsAre(0, 2, 3));
  EXPECT_THAT(kept(boxes, {0.7f, 0.8f, 0.6f, 0.9f}, {0, 0, 0, 0}, 0.5), ElementsAre(3, 1));
  EXPECT_THAT(kept(boxes, {0.9f, 0.8f, 0.7f, 0.1f}, {0, 0, 0, 0}, 0.4), ElementsAre(0, 3));
}

TEST(NonMaximumSuppression, ClassesDoNotMeet) {
  const std::vector<BoundingBox> boxes(3, {0, 0, 10, 10});
  EXPECT_THAT(kept(boxes, {0.7f, 0.9f, 0.8f}, {1, 2, 1}, 0.5), ElementsAre(1, 2));
}

TEST(NonMaximumSuppression, TiesAndTheThresholdItself) {
  const std::vector<BoundingBox> boxes = {{0, 0, 10, 10}, {0, 0, 5, 10}};
  EXPECT_THAT(kept(boxes, {0.5f, 0.5f}, {0, 0}, 0.5), ElementsAre(0, 1));  // 0.5 is not more than 0.5
  EXPECT_THAT(kept(boxes, {0.5f, 0.5f}, {0, 0}, 0.49), ElementsAre(0));
  EXPECT_THAT(kept({}, {}, {}, 0.5), ElementsAre());
}

}  // namespace
}  // namespace lowtide
