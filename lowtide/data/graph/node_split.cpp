#include "lowtide/data/graph/node_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/random.h"

namespace lowtide {
namespace {

// Shuffles `nodes` and deals them out: `train` and `valid` of them to those, the others to test.
void deal(std::vector<std::int32_t> nodes, std::size_t train, std::size_t valid, RandomStream random,
          NodeSplit& split) {
  for (std::size_t i = nodes.size(); i > 1; --i) {
    std::swap(nodes[i - 1], nodes[random.below(static_cast<std::uint32_t>(i))]);
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    (i < train ? split.train : i < train + valid ? split.valid : split.test).push_back(nodes[i]);
  }
}

void sort_all(NodeSplit& split) {
  for (auto* part : {&split.train, &split.valid, &split.test}) std::sort(part->begin(), part->end());
}

// Streams of their own: hold_out() has the first.
constexpr std::uint32_t kByShare = 1, kByClass = 2;

}  // namespace

NodeSplit split_by_share(std::int64_t nodes, double train_share, double valid_share, std::uint64_t seed) {
  const auto count = [&](double share) {
    return share > 0 && share < 1 ? std::llround(share * static_cast<double>(nodes)) : 0;
  };
  const std::int64_t train = count(train_share), valid = count(valid_share);
  if (train < 1 || valid < 1 || train + valid >= nodes) {
    throw UserError(
        fmt::format("{} of {} nodes to train and {} to validate; expected shares between 0 and 1 that leave "
                    "some for each and for the test",
                    train_share, nodes, valid_share));
  }
  std::vector<std::int32_t> all(static_cast<std::size_t>(nodes));
  std::iota(all.begin(), all.end(), 0);
  NodeSplit split;
  deal(std::move(all), static_cast<std::size_t>(train), static_cast<std::size_t>(valid),
       RandomStream(seed, RandomPurpose::kSplit, 0, kByShare), split);
  sort_all(split);
  return split;
}

NodeSplit split_by_class(std::span<const std::int32_t> labels, int classes, std::int64_t train_per_class,
                         std::int64_t valid_per_class, std::uint64_t seed) {
  LOWTIDE_CHECK(train_per_class >= 1 && valid_per_class >= 0, "nodes of a class");
  std::vector<std::vector<std::int32_t>> of_class(static_cast<std::size_t>(classes));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    of_class[static_cast<std::size_t>(labels[i])].push_back(static_cast<std::int32_t>(i));
  }
  NodeSplit split;
  for (std::size_t label = 0; label < of_class.size(); ++label) {
    if (static_cast<std::int64_t>(of_class[label].size()) < train_per_class + valid_per_class) {
      throw UserError(fmt::format(
          "class {} has {} nodes; expected at least {}, {} to train and {} to validate", label,
          of_class[label].size(), train_per_class + valid_per_class, train_per_class, valid_per_class));
    }
    deal(std::move(of_class[label]), static_cast<std::size_t>(train_per_class),
         static_cast<std::size_t>(valid_per_class),
         RandomStream(seed, RandomPurpose::kSplit, label, kByClass), split);
  }
  sort_all(split);
  return split;
}

}  // namespace lowtide
