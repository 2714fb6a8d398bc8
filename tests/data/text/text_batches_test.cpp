#include "lowtide/data/text/text_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/data/image_files.h"

namespace lowtide::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int32_t> numbers(int count) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(TextBatches, ColumnsAreReadSideBySide) {
  // 17 tokens in 3 columns of 5 rows: 0 5 10 / 1 6 11 / 2 7 12 / 3 8 13 / 4 9 14; 15 and 16 are left out.
  const auto tokens = numbers(17);
  TextBatches batches(tokens, 3, 2);
  EXPECT_EQ(batches.rows(), 5);
  EXPECT_EQ(batches.windows_per_epoch(), 2);
  TextWindow window = batches.next();
  EXPECT_TRUE(window.first);
  EXPECT_EQ(window.length, 2);
  EXPECT_THAT(window.inputs, ElementsAre(0, 5, 10, 1, 6, 11));
  EXPECT_THAT(window.targets, ElementsAre(1, 6, 11, 2, 7, 12));
  window = batches.next();
  EXPECT_FALSE(window.first);
  EXPECT_THAT(window.inputs, ElementsAre(2, 7, 12, 3, 8, 13));
  EXPECT_THAT(window.targets, ElementsAre(3, 8, 13, 4, 9, 14));
  window = batches.next();  // and again from the top
  EXPECT_TRUE(window.first);
  EXPECT_THAT(window.inputs, ElementsAre(0, 5, 10, 1, 6, 11));
  EXPECT_EQ(batches.position(), 3);
}

TEST(TextBatches, TheLastWindowMayBeShort) {
  const auto tokens = numbers(12);
  TextBatches batches(tokens, 2, 3);  // 6 rows, 5 of them with targets
  EXPECT_EQ(batches.windows_per_epoch(), 2);
  EXPECT_EQ(batches.next().length, 3);
  const TextWindow last = batches.next();
  EXPECT_EQ(last.length, 2);
  EXPECT_THAT(last.inputs, ElementsAre(3, 9, 4, 10));
  EXPECT_THAT(last.targets, ElementsAre(4, 10, 5, 11));
}

TEST(TextBatches, OneWindowLongerThanTheText) {
  const auto tokens = numbers(4);
  TextBatches batches(tokens, 2, 35);
  EXPECT_EQ(batches.windows_per_epoch(), 1);
  EXPECT_TRUE(batches.next().first);
  EXPECT_TRUE(batches.next().first);
}

TEST(TextBatches, TooFewTokens) {
  const auto tokens = numbers(5);
  EXPECT_THAT(user_error([&] { TextBatches(tokens, 3, 2); }),
              HasSubstr("a text of 5 tokens in 3 columns; expected at least 6"));
  EXPECT_EQ(TextBatches(tokens, 2, 2).rows(), 2);
}

TEST(TextBatches, ContinuesFromItsState) {
  const auto tokens = numbers(1003);
  TextBatches whole(tokens, 7, 10), resumed(tokens, 7, 10);
  for (int i = 0; i < 20; ++i) whole.next();
  resumed.restore(Json::parse(whole.state().dump()));
  EXPECT_EQ(resumed.position(), 20);
  for (int i = 0; i < 20; ++i) {
    const TextWindow expected = whole.next(), window = resumed.next();
    EXPECT_EQ(window.inputs, expected.inputs);
    EXPECT_EQ(window.targets, expected.targets);
    EXPECT_EQ(window.first, expected.first);
  }
}

TEST(TextBatches, RefusesTheStateOfAnother) {
  const auto tokens = numbers(100);
  TextBatches batches(tokens, 7, 10);
  batches.next();
  Json state = batches.state();
  TextBatches other(tokens, 5, 10);
  EXPECT_THAT(user_error([&] { other.restore(state); }),
              HasSubstr("expected 100 tokens, batch 5, length 10"));
  EXPECT_EQ(other.position(), 0);
  state["position"] = -1;
  EXPECT_THAT(user_error([&] { batches.restore(state); }), HasSubstr("position -1"));
  EXPECT_THAT(user_error([&] {
                batches.restore({{"tokens", 100}});
              }),
              HasSubstr("expected tokens, batch, length and position"));
}

}  // namespace
}  // namespace lowtide::testing
