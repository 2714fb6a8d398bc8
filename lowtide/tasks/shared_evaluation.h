#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowtide/base/torch.h"
#include "lowtide/ranks/ranks.h"

// The batches of an evaluation, shared out: batch i is rank i % size's. What comes of them is joined in the order of the
// batches, so that the sums have the bits that one rank would give them.

namespace lowtide {

// The items of this rank's batches, one batch after the other.
std::vector<std::int64_t> items_of_rank(const std::vector<std::int64_t>& items, std::int64_t batch,
                                        const Ranks& ranks);

// What every rank made of its batches, as bytes, in the batches' order.
std::vector<std::string> join_batches(Ranks& ranks, const std::vector<std::string>& mine);

// Losses and right answers.
class EvaluationSums {
 public:
  // Of this rank's next batch: the loss summed over its items, and how many were right; one number each, on the device.
  void add(const torch::Tensor& loss, const torch::Tensor& correct, std::int64_t items);

  struct Totals {
    double loss = 0;
    std::int64_t correct = 0, items = 0;
  };
  Totals over_all(Ranks& ranks) const;  // in the order of the batches

 private:
  std::vector<torch::Tensor> loss_, correct_;
  std::vector<std::int64_t> items_;
};

}  // namespace lowtide
