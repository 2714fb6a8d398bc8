#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/schedule/plot.h"
#include "lowtide/study/runner.h"
#include "lowtide/study/study.h"

namespace lowtide {

// The precision range test (CPT, Fu et al., ICLR 2021): the lowest bits of a schedule are the
// first, from 2 upward, at which training moves.
struct RangeTestOptions {
  std::int64_t steps = 200;  // at each number of bits
  std::int64_t window = 25;  // steps that are averaged
  double threshold = 0.02;   // what counts as moving
};

struct RangeStep {
  int bits = 0;
  std::optional<double> first, last;  // the training metric averaged over the first window, and the last
  double gain = 0;      // how far it moved to the better: in points of a fraction, else relative
  std::string failure;  // why it did not train to the end
};

struct RangeTest {
  std::string metric;  // the one followed
  RangeTestOptions options;
  std::vector<RangeStep> steps;
  std::optional<int> lowest;  // the choice for q_min
};

RangeTestOptions range_options(const Study& study);

// Short runs at static bits, from 2 to the recipe's highest, as its training begins: the rate does not decay.
std::vector<Member> range_members(const Recipe& recipe, const RangeTestOptions& options);

// What came of them in their folder. UserError where none trained.
RangeTest read_range_test(const std::vector<Member>& members, const std::filesystem::path& folder,
                          const RangeTestOptions& options, const std::vector<FailedMember>& failed);

std::string to_text(const RangeTest& test, Charset charset);
Json to_json(const RangeTest& test);

}  // namespace lowtide
