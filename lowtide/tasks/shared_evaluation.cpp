#include "lowtide/tasks/shared_evaluation.h"

#include <algorithm>
#include <cstring>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

void append_length(std::string& text, std::int64_t length) {
  text.append(reinterpret_cast<const char*>(&length), sizeof(length));
}

// What append_length() and the bytes after it say, one after the other.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    std::int64_t length = 0;
    std::memcpy(&length, text.data() + at, sizeof(length));
    at += sizeof(length);
    parts.push_back(text.substr(at, static_cast<std::size_t>(length)));
    at += static_cast<std::size_t>(length);
  }
  return parts;
}

}  // namespace

std::vector<std::int64_t> items_of_rank(const std::vector<std::int64_t>& items, std::int64_t batch,
                                        const Ranks& ranks) {
  if (ranks.size() == 1) return items;
  std::vector<std::int64_t> mine;
  const auto count = static_cast<std::int64_t>(items.size());
  for (std::int64_t begin = batch * ranks.rank(); begin < count; begin += batch * ranks.size())
    mine.insert(mine.end(), items.begin() + begin, items.begin() + std::min(begin + batch, count));
  return mine;
}

std::vector<std::string> join_batches(Ranks& ranks, const std::vector<std::string>& mine) {
  if (ranks.size() == 1) return mine;
  std::string sent;
  for (const std::string& batch : mine) {
    append_length(sent, static_cast<std::int64_t>(batch.size()));
    sent += batch;
  }
  std::vector<std::vector<std::string>> of_ranks;
  for (const std::string& text : ranks.gather(sent)) of_ranks.push_back(parts_of(text));
  std::vector<std::string> all;
  for (std::size_t i = 0; i < of_ranks[0].size(); ++i) {
    for (const std::vector<std::string>& of_rank : of_ranks) {
      if (i < of_rank.size()) all.push_back(of_rank[i]);  // the last round may not reach all of them
    }
  }
  return all;
}

void EvaluationSums::add(const torch::Tensor& loss, const torch::Tensor& correct, std::int64_t items) {
  loss_.push_back(loss);
  correct_.push_back(correct);
  items_.push_back(items);
}

EvaluationSums::Totals EvaluationSums::over_all(Ranks& ranks) const {
  std::vector<std::string> batches;
  if (!loss_.empty()) {
    const torch::Tensor loss = torch::stack(loss_).to(torch::kDouble).cpu(),
                        correct = torch::stack(correct_).cpu();
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const auto place = static_cast<std::int64_t>(i);
      const Totals batch{loss[place].item<double>(), correct[place].item<std::int64_t>(), items_[i]};
      batches.emplace_back(reinterpret_cast<const char*>(&batch), sizeof(batch));
    }
  }
  Totals all;
  for (const std::string& bytes : join_batches(ranks, batches)) {
    Totals batch;
    LOWTIDE_CHECK(bytes.size() == sizeof(batch), "the sums of a batch");
    std::memcpy(&batch, bytes.data(), sizeof(batch));
    all.loss += batch.loss;
    all.correct += batch.correct;
    all.items += batch.items;
  }
  return all;
}

}  // namespace lowtide
