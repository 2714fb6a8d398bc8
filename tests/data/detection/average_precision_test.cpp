#include "lowtide/data/detection/average_precision.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lowtide {
namespace {

constexpr BoundingBox kBox = {0, 0, 10, 10};
constexpr BoundingBox kElsewhere = {100, 100, 110, 110};

double precision(const std::vector<Detection>& detections, const std::vector<GroundTruth>& objects,
                 PrecisionForm form) {
  return average_precisions(detections, objects, 1, form).at(0);
}

// Objects in images 0, 1, 2 …, one each.
std::vector<GroundTruth> one_in_each(std::int64_t images) {
  std::vector<GroundTruth> objects;
  for (std::int64_t i = 0; i < images; ++i) objects.push_back({i, 0, kBox, false});
  return objects;
}

TEST(AveragePrecision, ByHand) {
  // By falling score: right, wrong, right, wrong, right, of 3 objects. Precision 1, 1/2, 2/3, 2/4, 3/5 at recall
  // 1/3, 1/3, 2/3, 2/3, 1.
  const std::vector<Detection> detections = {{2, 0, 0.5f, kBox},
                                             {0, 0, 0.9f, kBox},
                                             {0, 0, 0.8f, kElsewhere},
                                             {1, 0, 0.6f, kElsewhere},
                                             {1, 0, 0.7f, kBox}};
  // Area: a third each of 1, 2/3 and 3/5.
  EXPECT_DOUBLE_EQ(precision(detections, one_in_each(3), PrecisionForm::kArea), (1 + 2.0 / 3 + 3.0 / 5) / 3);
  // Recalls 0 to 0.3 have precision 1, 0.4 to 0.6 have 2/3, 0.7 to 1 have 3/5.
  EXPECT_DOUBLE_EQ(precision(detections, one_in_each(3), PrecisionForm::kElevenPoints),
                   (4 * 1 + 3 * 2.0 / 3 + 4 * 3.0 / 5) / 11);
}

TEST(AveragePrecision, PrecisionIsTheBestAtAHigherRecall) {
  // Wrong, right, right of 2: precision 0, 1/2, 2/3. At recall 1/2 it counts as 2/3, which recall 1 has.
  const std::vector<Detection> detections = {
      {0, 0, 0.9f, kElsewhere}, {0, 0, 0.8f, kBox}, {1, 0, 0.7f, kBox}};
  EXPECT_DOUBLE_EQ(precision(detections, one_in_each(2), PrecisionForm::kArea), 2.0 / 3);
  EXPECT_DOUBLE_EQ(precision(detections, one_in_each(2), PrecisionForm::kElevenPoints), 2.0 / 3);
}

TEST(AveragePrecision, WhatIsNotFound) {
  // 3 of 10 found: 0.3 of the area; recalls 0, 0.1, 0.2 and 0.3 are reached, also the last.
  const std::vector<Detection> detections = {{0, 0, 0.9f, kBox}, {1, 0, 0.8f, kBox}, {2, 0, 0.7f, kBox}};
  EXPECT_DOUBLE_EQ(precision(detections, one_in_each(10), PrecisionForm::kArea), 0.3);
  EXPECT_DOUBLE_EQ(precision(detections, one_in_each(10), PrecisionForm::kElevenPoints), 4.0 / 11);
  EXPECT_EQ(precision({}, one_in_each(10), PrecisionForm::kArea), 0);
  EXPECT_EQ(precision({}, one_in_each(10), PrecisionForm::kElevenPoints), 0);
}

TEST(AveragePrecision, AnObjectIsFoundOnce) {
  // The second to find it is wrong. Recall 1 comes with precision 1, and what follows does not matter.
  const std::vector<Detection> twice = {{0, 0, 0.9f, kBox}, {0, 0, 0.8f, kBox}};
  EXPECT_DOUBLE_EQ(precision(twice, one_in_each(1), PrecisionForm::kArea), 1);
  // Of two objects: right, wrong (again the first), right: 1 and 2/3.
  const std::vector<Detection> more = {{0, 0, 0.9f, kBox}, {0, 0, 0.8f, kBox}, {1, 0, 0.7f, kBox}};
  EXPECT_DOUBLE_EQ(precision(more, one_in_each(2), PrecisionForm::kArea), (1 + 2.0 / 3) / 2);
}

TEST(AveragePrecision, TheNearestObjectOrNone) {
  // Two objects in one image. The second detection overlaps the first object by 90 / 110 and the second, which is
  // free, by 70 / 130 = 0.54: the nearest is taken already, so it is wrong.
  const std::vector<GroundTruth> objects = {{0, 0, {0, 0, 10, 10}, false}, {0, 0, {4, 0, 14, 10}, false}};
  const std::vector<Detection> detections = {{0, 0, 0.9f, {0, 0, 10, 10}}, {0, 0, 0.8f, {1, 0, 11, 10}}};
  EXPECT_DOUBLE_EQ(precision(detections, objects, PrecisionForm::kArea), 0.5);
}

TEST(AveragePrecision, OverlapOfAHalfIsEnough) {
  EXPECT_EQ(precision({{0, 0, 0.9f, {0, 0, 5, 10}}}, one_in_each(1), PrecisionForm::kArea), 1);
  EXPECT_EQ(precision({{0, 0, 0.9f, {0, 0, 4.99f, 10}}}, one_in_each(1), PrecisionForm::kArea), 0);
  EXPECT_EQ(precision({{1, 0, 0.9f, kBox}}, one_in_each(1), PrecisionForm::kArea), 0);  // in another image
}

TEST(AveragePrecision, DifficultObjectsAreLeftOut) {
  // Image 1 has a difficult one. Found, even twice, it counts for neither side: right (0), right (2) of 2.
  std::vector<GroundTruth> objects = one_in_each(3);
  objects[1].difficult = true;
  const std::vector<Detection> detections = {
      {1, 0, 0.9f, kBox}, {0, 0, 0.8f, kBox}, {1, 0, 0.7f, kBox}, {2, 0, 0.6f, kBox}};
  EXPECT_EQ(precision(detections, objects, PrecisionForm::kArea), 1);
  EXPECT_EQ(precision({{0, 0, 0.8f, kBox}, {2, 0, 0.6f, kBox}}, objects, PrecisionForm::kArea),
            1);  // or not found
  objects.erase(objects.begin());
  objects.pop_back();
  EXPECT_TRUE(std::isnan(precision(detections, objects, PrecisionForm::kArea)));
}

TEST(AveragePrecision, ClassesAreApart) {
  const std::vector<GroundTruth> objects = {{0, 0, kBox, false}, {0, 2, kBox, false}};
  const std::vector<Detection> detections = {
      {0, 0, 0.9f, kBox}, {0, 1, 0.9f, kBox}, {0, 2, 0.9f, kElsewhere}};
  const auto precisions = average_precisions(detections, objects, 3, PrecisionForm::kArea);
  EXPECT_EQ(precisions[0], 1);
  EXPECT_TRUE(std::isnan(precisions[1]));  // no object: neither good nor bad
  EXPECT_EQ(precisions[2], 0);
  EXPECT_EQ(mean_average_precision(precisions), 0.5);
  EXPECT_TRUE(std::isnan(mean_average_precision(average_precisions({}, {}, 3, PrecisionForm::kArea))));
}

TEST(AveragePrecision, EqualScoresKeepTheirOrder) {
  const std::vector<Detection> right_first = {{0, 0, 0.5f, kBox}, {0, 0, 0.5f, kElsewhere}};
  const std::vector<Detection> wrong_first = {{0, 0, 0.5f, kElsewhere}, {0, 0, 0.5f, kBox}};
  EXPECT_EQ(precision(right_first, one_in_each(1), PrecisionForm::kArea), 1);
  EXPECT_EQ(precision(wrong_first, one_in_each(1), PrecisionForm::kArea), 0.5);
}

}  // namespace
}  // namespace lowtide
