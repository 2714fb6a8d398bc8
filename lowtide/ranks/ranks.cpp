#include "lowtide/ranks/ranks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/ranks/tree_sum.h"

namespace lowtide {
namespace {

class Alone final : public Ranks {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  bool is_alone() const override { return true; }
  void broadcast(const std::vector<torch::Tensor>&) override {}

 private:
  torch::Tensor all_gather(const torch::Tensor& row) override { return row.unsqueeze(0); }
  torch::Tensor all_to_all(const torch::Tensor& rows) override { return rows; }
  torch::Device device() const override { return torch::kCPU; }
};

torch::Tensor as_bytes(const std::string& text, std::int64_t length) {
  torch::Tensor bytes = torch::zeros({length}, torch::kUInt8);
  std::memcpy(bytes.data_ptr<std::uint8_t>(), text.data(), text.size());
  return bytes;
}

}  // namespace

std::shared_ptr<Ranks> alone() { return std::make_shared<Alone>(); }

Shards Ranks::shards_of(std::int64_t total) const {
  LOWTIDE_CHECK(total % size() == 0, "shards that the ranks can share out");
  return {.total = total, .first = total / size() * rank(), .count = total / size()};
}

// Every rank sums a slice of the nodes of all, and they tell each other the sums: as much is sent as by a sum in a ring.
torch::Tensor Ranks::sum(std::vector<torch::Tensor> nodes) {
  if (is_alone()) return tree_sum(std::move(nodes));
  const auto count = static_cast<std::int64_t>(nodes.size());
  const std::int64_t numbers = nodes[0].numel(), slice = (numbers + size() - 1) / size();
  torch::Tensor slices = torch::zeros({size(), count, slice}, nodes[0].options());
  for (std::int64_t node = 0; node < count; ++node) {
    const torch::Tensor flat = nodes[static_cast<std::size_t>(node)].reshape({-1});
    for (std::int64_t rank = 0, begin = 0; begin < numbers; ++rank, begin += slice) {
      const std::int64_t length = std::min(slice, numbers - begin);
      slices[rank][node].narrow(0, 0, length).copy_(flat.narrow(0, begin, length));
    }
  }
  const torch::Tensor mine = tree_sum(all_to_all(slices).view({-1, slice}).unbind(0));
  return all_gather(mine).view({-1}).narrow(0, 0, numbers).view_as(nodes[0]);
}

std::vector<torch::Tensor> Ranks::gather(const torch::Tensor& mine) {
  if (is_alone()) return {mine};
  return all_gather(mine.contiguous()).unbind(0);
}

std::vector<std::vector<std::int64_t>> Ranks::gather(const std::vector<std::int64_t>& mine) {
  if (is_alone()) return {mine};
  const torch::Tensor all = all_gather(torch::tensor(mine, torch::kInt64).to(device())).cpu();
  std::vector<std::vector<std::int64_t>> numbers;
  for (const torch::Tensor& row : all.unbind(0)) {
    const auto* first = row.data_ptr<std::int64_t>();
    numbers.emplace_back(first, first + row.numel());
  }
  return numbers;
}

std::vector<std::string> Ranks::gather(const std::string& mine) {
  if (is_alone()) return {mine};
  std::int64_t longest = 1;  // a tensor without elements is not sent
  std::vector<std::int64_t> lengths;
  for (const auto& length : gather(std::vector{static_cast<std::int64_t>(mine.size())})) {
    lengths.push_back(length[0]);
    longest = std::max(longest, length[0]);
  }
  const torch::Tensor all = all_gather(as_bytes(mine, longest).to(device())).cpu();
  std::vector<std::string> texts;
  for (std::int64_t rank = 0; rank < size(); ++rank) {
    const auto* first = reinterpret_cast<const char*>(all[rank].data_ptr<std::uint8_t>());
    texts.emplace_back(first, static_cast<std::size_t>(lengths[static_cast<std::size_t>(rank)]));
  }
  return texts;
}

}  // namespace lowtide
