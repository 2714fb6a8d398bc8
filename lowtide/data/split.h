#pragma once

#include <cstdint>
#include <vector>

namespace lowtide {

enum class Split { kTrain, kValid, kTest };

// As files and options name it.
constexpr const char* split_name(Split split) {
  return split == Split::kTrain ? "train" : split == Split::kValid ? "valid" : "test";
}

// Which items of a training set are trained on and which are held out to choose by. Both in rising order.
struct HeldOut {
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> valid;
};

// One split for all seeds of an experiment, unless the recipe says otherwise: else their results could not be
// compared.
constexpr std::uint64_t kDefaultSplitSeed = 0;

// Draws `validation` of `items` items. UserError when none would be left to train on.
HeldOut hold_out(std::int64_t items, std::int64_t validation, std::uint64_t split_seed = kDefaultSplitSeed);

// So many of `items`, the same each time, in their order; all where they are no more.
std::vector<std::int64_t> sample_of(const std::vector<std::int64_t>& items, std::int64_t count);

}  // namespace lowtide
