#include "lowtide/data/damaged.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

class WholeImages : public ImageDataset {
 public:
  WholeImages(std::shared_ptr<const ImageDataset> all, std::vector<std::int64_t> whole)
      : all_(std::move(all)), whole_(std::move(whole)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(whole_.size()); }
  int classes() const override { return all_->classes(); }
  std::string class_name(int label) const override { return all_->class_name(label); }
  int channels() const override { return all_->channels(); }
  int height() const override { return all_->height(); }
  int width() const override { return all_->width(); }
  int label(std::int64_t i) const override { return all_->label(place(i)); }
  Image image(std::int64_t i) const override { return all_->image(place(i)); }
  std::span<const std::uint8_t> pixels() const override {
    if (size() < all_->size()) return {};  // those that are left do not lie side by side
    return all_->pixels();
  }
  std::string item_name(std::int64_t i) const override { return all_->item_name(place(i)); }
  std::string describe() const override {
    const std::int64_t damaged = all_->size() - size();
    return damaged == 0 ? all_->describe()
                        : fmt::format("{}, {} of them damaged and left out", all_->describe(), damaged);
  }

 private:
  std::int64_t place(std::int64_t i) const { return whole_[static_cast<std::size_t>(i)]; }

  std::shared_ptr<const ImageDataset> all_;
  std::vector<std::int64_t> whole_;
};

}  // namespace

std::vector<DamagedItem> find_damaged(std::int64_t items, const std::function<void(std::int64_t)>& read) {
  std::vector<DamagedItem> damaged;
  std::exception_ptr failure;
  std::mutex mutex;
  std::atomic<std::int64_t> next = 0;
  const auto work = [&] {
    for (std::int64_t item = next++; item < items; item = next++) {
      try {
        read(item);
      } catch (const UserError& error) {
        const std::lock_guard lock(mutex);
        damaged.push_back({item, error.what()});
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
        next = items;
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
      workers.emplace_back(work);
  }
  if (failure) std::rethrow_exception(failure);
  // Which thread met which item first is chance.
  std::sort(damaged.begin(), damaged.end(),
            [](const DamagedItem& a, const DamagedItem& b) { return a.item < b.item; });
  return damaged;
}

std::shared_ptr<const ImageDataset> without_damaged(std::shared_ptr<const ImageDataset> dataset,
                                                    std::vector<std::string>& damaged) {
  const std::int64_t size = dataset->size();
  const std::vector<DamagedItem> found = find_damaged(size, [&](std::int64_t i) { dataset->image(i); });
  if (static_cast<std::int64_t>(found.size()) == size)
    throw UserError(fmt::format("all {} images are damaged, the first: {}", size, found.at(0).problem));
  std::vector<std::int64_t> whole;
  auto next = found.begin();
  for (std::int64_t i = 0; i < size; ++i) {
    if (next == found.end() || next->item != i) {
      whole.push_back(i);
    } else {
      damaged.push_back((next++)->problem);
    }
  }
  return std::make_shared<WholeImages>(std::move(dataset), std::move(whole));
}

}  // namespace lowtide
