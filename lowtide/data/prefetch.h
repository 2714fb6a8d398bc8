#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace lowtide {

// Results made ahead of their use by several threads, handed out in the order in which they were planned. At
// most `depth` are finished or under way at a time.
template <typename Work, typename Result>
class OrderedPrefetcher {
 public:
  // Says what to make next, or nothing at the end. Called by one thread at a time.
  using Plan = std::function<std::optional<Work>()>;
  // Called by all threads at once. Asked to stop, it may return anything.
  using Make = std::function<Result(const Work&, const std::stop_token&)>;

  OrderedPrefetcher(Plan plan, Make make, int threads, int depth)
      : plan_(std::move(plan)), make_(std::move(make)), slots_(static_cast<std::size_t>(std::max(depth, 1))) {
    for (int i = 0; i < std::max(threads, 1); ++i) {
      workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
  }
  OrderedPrefetcher(const OrderedPrefetcher&) = delete;
  OrderedPrefetcher& operator=(const OrderedPrefetcher&) = delete;
  ~OrderedPrefetcher() {
    for (auto& worker : workers_) worker.request_stop();  // all of them before the first is waited for
  }

  // The next result, or nothing after the last. What making it threw is thrown here, in its place, and by
  // every call after.
  std::optional<Result> next() {
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[handed_ % slots_.size()];
    finished_.wait(lock, [&] { return slot.ready || (ended_ && handed_ == planned_); });
    if (!slot.ready) return std::nullopt;
    if (slot.failure) std::rethrow_exception(slot.failure);
    std::optional<Result> result = std::exchange(slot, Slot{}).result;
    ++handed_;
    room_.notify_one();
    return result;
  }

 private:
  struct Slot {
    bool ready = false;
    std::optional<Result> result;
    std::exception_ptr failure;
  };

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (true) {
      room_.wait(lock, stop, [&] { return ended_ || planned_ < handed_ + slots_.size(); });
      if (stop.stop_requested() || ended_) return;
      Slot slot;
      const std::optional<Work> work = plan(slot);
      if (!work && !slot.failure) return end();
      const std::uint64_t number = planned_++;
      lock.unlock();
      if (work) slot = make_slot(*work, stop);
      lock.lock();
      if (slot.failure) end();
      slots_[number % slots_.size()] = std::move(slot);
      finished_.notify_one();
    }
  }

  // Planning may fail too: a batch of more items than there is memory for.
  std::optional<Work> plan(Slot& slot) {
    try {
      return plan_();
    } catch (...) {
      slot.ready = true;
      slot.failure = std::current_exception();
      return std::nullopt;
    }
  }

  Slot make_slot(const Work& work, const std::stop_token& stop) const {
    Slot slot;
    slot.ready = true;
    try {
      slot.result = make_(work, stop);
    } catch (...) {
      slot.failure = std::current_exception();
    }
    return slot;
  }

  void end() {
    ended_ = true;
    finished_.notify_one();
    room_.notify_all();
  }

  Plan plan_;
  Make make_;
  std::mutex mutex_;
  std::condition_variable_any room_;  // for workers: something may be planned, or nothing will be any more
  std::condition_variable_any finished_;  // for next()
  std::vector<Slot> slots_;               // result i is in slot i modulo their number
  std::uint64_t planned_ = 0;
  std::uint64_t handed_ = 0;
  bool ended_ = false;
  std::vector<std::jthread> workers_;  // last: they stop before the rest goes
};

}  // namespace lowtide
