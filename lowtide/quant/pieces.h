#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

namespace lowtide {

// Work in `count` pieces, shared out among the threads. Each has a stretch of its own, so that the same pieces of the next
// work are likely to lie in its core's cache; one that is done early takes over pieces of the others, since cores are
// seldom equally fast. Which thread does a piece is chance: what comes of it may not depend on that.
class Pieces {
 public:
  // No thread is woken for fewer than `least` pieces.
  Pieces(std::int64_t count, std::int64_t least) : stretches_(threads_for(count, least)) {
    const auto threads = static_cast<std::int64_t>(stretches_.size());
    for (std::int64_t i = 0; i < threads; ++i) {
      Stretch& stretch = stretches_[static_cast<std::size_t>(i)];
      stretch.next = count * i / threads;
      stretch.end = count * (i + 1) / threads;
    }
  }

  // What one thread takes its pieces from.
  class Share {
   public:
    std::optional<std::int64_t> next() {
      std::vector<Stretch>& stretches = pieces_.stretches_;
      for (; left_ > 0; --left_, at_ = (at_ + 1) % stretches.size()) {
        const std::int64_t piece = stretches[at_].next.fetch_add(1, std::memory_order_relaxed);
        if (piece < stretches[at_].end) return piece;
      }
      return std::nullopt;
    }

   private:
    friend class Pieces;
    Share(Pieces& pieces, std::size_t own) : pieces_(pieces), at_(own), left_(pieces.stretches_.size()) {}

    Pieces& pieces_;
    std::size_t at_, left_;  // the stretch it takes from, and how many there are yet to look at
  };

  // Calls work(share) on every thread.
  template <typename Work>
  void share_out(const Work& work) {
    at::parallel_for(0, static_cast<std::int64_t>(stretches_.size()), 1,
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         Share share(*this, static_cast<std::size_t>(i));
                         work(share);
                       }
                     });
  }

 private:
  // On a cache line of its own: threads would wait for each other's otherwise.
  struct alignas(64) Stretch {
    std::atomic<std::int64_t> next = 0;
    std::int64_t end = 0;
  };

  static std::size_t threads_for(std::int64_t count, std::int64_t least) {
    return static_cast<std::size_t>(
        std::clamp<std::int64_t>(count / std::max<std::int64_t>(least, 1), 1, at::get_num_threads()));
  }

  std::vector<Stretch> stretches_;
};

// Calls work(piece) for every piece.
template <typename Work>
void for_each_piece(std::int64_t count, std::int64_t least, const Work& work) {
  Pieces(count, least).share_out([&](Pieces::Share& share) {
    while (const std::optional<std::int64_t> piece = share.next()) work(*piece);
  });
}

}  // namespace lowtide
