#include "lowtide/tasks/find_objects.h"

#include <gtest/gtest.h>

#include "lowtide/base/torch.h"

namespace lowtide {
namespace {

// Anchors that are the boxes themselves: all deltas are 0.
class FindObjects : public testing::Test {
 protected:
  std::vector<Detection> find() const {
    const DetectorOutput output{probabilities_, torch::zeros({1, 4, 4})};
    return find_objects(output, anchors_, std::vector<ImageFit>{{1, 50, 60}}).at(0);
  }

  // The second lies within the first, the third beside them, the fourth reaches over the image of 60 × 50.
  torch::Tensor anchors_ = torch::tensor({0.f, 0.f, 20.f, 20.f, 0.f, 0.f, 20.f, 18.f, 30.f, 0.f, 40.f, 10.f,
                                          40.f, 40.f, 80.f, 90.f})
                               .view({4, 4});
  torch::Tensor probabilities_ = torch::zeros({1, 4, 3});
};

TEST_F(FindObjects, NothingWhereNothingIsSure) {
  probabilities_.fill_(0.05f);
  EXPECT_TRUE(find().empty());
}

TEST_F(FindObjects, TheSurestFirstWithoutRepetitions) {
  probabilities_[0][0][1] = 0.6f;
  probabilities_[0][1][1] = 0.9f;  // overlaps the first by 0.9: of the two it is kept
  probabilities_[0][2][1] = 0.7f;
  probabilities_[0][0][2] = 0.5f;  // another class
  const std::vector<Detection> found = find();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].box, (BoundingBox{0, 0, 20, 18}));
  EXPECT_FLOAT_EQ(found[0].score, 0.9f);
  EXPECT_EQ(found[1].box, (BoundingBox{30, 0, 40, 10}));
  EXPECT_EQ(found[2].label, 2);
}

TEST_F(FindObjects, BoxesEndWithTheImage) {
  probabilities_[0][3][0] = 0.8f;
  ASSERT_EQ(find().size(), 1u);
  EXPECT_EQ(find()[0].box, (BoundingBox{40, 40, 60, 50}));
  anchors_[3] = torch::tensor({70.f, 0.f, 90.f, 20.f});  // beside it, in the padding
  EXPECT_TRUE(find().empty());
}

TEST_F(FindObjects, NotANumberIsNoObject) {
  probabilities_.fill_(NAN);
  EXPECT_TRUE(find().empty());
}

}  // namespace
}  // namespace lowtide
