#include "lowtide/study/loop_bits.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "lowtide/cost/ledger.h"
#include "lowtide/io/safetensors.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

BitTable table_of(const std::vector<TableRun>& runs) {
  BitTable table;
  for (const TableRun& run : runs) table.append(run);
  return table;
}

std::map<int, std::int64_t> steps_by_bits(const BitTable& table) {
  std::map<int, std::int64_t> steps;
  for (const TableRun& run : table.runs()) steps[run.bits] += run.steps;
  return steps;
}

void write_ledger_checkpoint(const RunPaths& run, std::int64_t step, const Ledger& ledger) {
  make_folders(run.checkpoints());
  const Json state{{"format", 1}, {"step", step}, {"total_steps", step}, {"ledger", ledger.state()}};
  write_safetensors(run.checkpoint(step), {}, {{"lowtide", state.dump()}});
}

class LoggedBits : public testing::Test {
 protected:
  void write(const std::string& lines) const { std::ofstream(run_.metrics()) << lines; }

  const ScratchFolder folder_;
  const RunPaths run_{folder_.path()};
};

TEST_F(LoggedBits, AreThoseOfTheLinesOfTraining) {
  write(R"({"step":10,"bits":5,"loss":1,"seconds":1}
{"step":10,"split":"probe","bits":7,"coarse_bits":5,"seconds":1}
{"step":30,"bits":4,"loss":1,"seconds":2}
{"step":30,"split":"valid","bits":8,"loss":1,"seconds":2}
{"step":31,"bits":4,"loss":1,"seconds":2}
{"step":40,"bits":8,"loss":1,"seconds":3}
)");
  EXPECT_EQ(to_string(logged_bits(run_, 40)), "5x10 4x21 8x9");
}

TEST_F(LoggedBits, OfLayersAreInTheLedgersOrder) {
  write(R"({"step":10,"bits":5,"loss":1,"seconds":1}
{"step":10,"split":"layers","b.bits":4,"a.bits":6,"a.sensitivity":2,"took":1,"seconds":1}
{"step":15,"split":"layers","a.clipped":0.1,"took":1,"seconds":1}
{"step":25,"split":"layers","b.bits":5,"a.bits":6,"took":0,"seconds":1}
{"step":30,"bits":5,"loss":1,"seconds":2}
{"step":40,"split":"layers","b.bits":5,"a.bits":7,"took":0,"seconds":1}
{"step":40,"bits":6,"loss":1,"seconds":3}
)");
  EXPECT_TRUE(contains(user_error([&] { logged_bits(run_, 40); }), "no checkpoint is left"));
  Ledger ledger;
  ledger.add_layer("a", 10);
  ledger.add_layer("fc", 10, {LayerPrecision::Kind::kFp32, 0});
  ledger.add_layer("b", 10);
  write_ledger_checkpoint(run_, 40, ledger);
  EXPECT_EQ(to_string(logged_bits(run_, 40)), "5[6/5/4]x10 5[6/5/5]x15 5[7/5/5]x5 6[7/6/5]x10");
}

TEST_F(LoggedBits, OfARunThatIsNotWholeAreRefused) {
  write(R"({"step":10,"bits":5,"loss":1,"seconds":1}
)");
  EXPECT_TRUE(contains(user_error([&] { logged_bits(run_, 40); }), "the bits of 10 steps, not of 40"));
  write(R"({"step":40,"bits":0,"loss":1,"seconds":1}
)");
  EXPECT_TRUE(contains(user_error([&] { logged_bits(run_, 40); }), "not a number of bits"));
}

TEST(ShuffledBits, AreTheSameInAnotherOrder) {
  const BitTable bits = table_of({{3, 500}, {5, 1200}, {8, 300}});
  const BitTable one = shuffled(bits, 1), again = shuffled(bits, 1), other = shuffled(bits, 2);
  EXPECT_EQ(one, again);
  EXPECT_NE(one, other);
  EXPECT_EQ(steps_by_bits(one), steps_by_bits(bits));
  EXPECT_EQ(steps_by_bits(other), steps_by_bits(bits));
  // Of 2000 steps in any order some 2000 · (1 - 0.25² - 0.6² - 0.15²) differ from the one before: 1110, within 5 deviations.
  EXPECT_NEAR(static_cast<double>(one.runs().size()), 1110, 5 * 22);
  EXPECT_EQ(shuffled(table_of({{4, 7}}), 1), table_of({{4, 7}}));
}

std::map<std::vector<std::uint8_t>, std::int64_t> steps_by_layers(const BitTable& table) {
  std::map<std::vector<std::uint8_t>, std::int64_t> steps;
  for (const TableRun& run : table.runs()) steps[run.layers] += run.steps;
  return steps;
}

TEST(ShuffledBits, OfLayersAreInAnOrderOfStepsToo) {
  BitTable bits;
  for (int i = 0; i < 40; ++i) bits.append(read_table_run(fmt::format("5[{}/4]x{}", 3 + i % 5, 10 + i)));
  const BitTable one = shuffled(bits, 1);
  EXPECT_EQ(one, shuffled(bits, 1));
  EXPECT_NE(one, shuffled(bits, 2));
  EXPECT_EQ(one.steps(), bits.steps());
  EXPECT_EQ(steps_by_layers(one), steps_by_layers(bits));
  // Of 1180 steps with one of five nearly equally frequent bits four fifths differ from the one before: 944, within 5 deviations.
  EXPECT_NEAR(static_cast<double>(one.runs().size()), 944, 5 * 14);
}

// ResNet-74 on the papers' 64,000 steps: as text a step has some 160 characters, and a recipe has room for 1 MiB.
TEST(ShuffledBits, OfLongRunsMoveByAFewSteps) {
  BitTable bits;
  for (int i = 0; i < 640; ++i) {
    std::string layers = fmt::format("{}", 3 + i % 6);
    for (int layer = 1; layer < 75; ++layer) layers += fmt::format("/{}", 3 + (i + layer) % 6);
    bits.append(read_table_run(fmt::format("5[{}]x100", layers)));
  }
  const BitTable one = shuffled(bits, 1);
  EXPECT_EQ(steps_by_layers(one), steps_by_layers(bits));
  EXPECT_LT(to_string(one).size(), std::size_t{1} << 20);
  EXPECT_GT(one.runs().size(), 2000u);
  // A table of more steps than a table has runs.
  const BitTable long_one = shuffled(table_of({{3, 100'000}, {5, 60'000}}), 1);
  EXPECT_EQ(steps_by_bits(long_one), (std::map<int, std::int64_t>{{3, 100'000}, {5, 60'000}}));
}

}  // namespace
}  // namespace lowtide
