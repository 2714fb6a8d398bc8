#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "lowtide/base/kept_memory.h"
#include "lowtide/engine/integer/affine.h"

// Sums of more terms than 32 bits can hold: summed in 32 bits, and added to 64 bits before they could overflow. Sums of
// integers do not depend on the order, so neither does the result on the number of threads.

namespace lowtide::integer {

// to[i] += from[i]
void add_sums(const std::int32_t* from, std::int64_t n, std::int32_t* to);
void add_sums(const std::int32_t* from, std::int64_t n, std::int64_t* to);
void add_sums(const std::int64_t* from, std::int64_t n, std::int64_t* to);

// The total to which all threads add theirs.
class WideSums {
 public:
  explicit WideSums(std::int64_t count) : count_(count), total_(kept_array<std::int64_t>(count)) {}

  void add(const std::int32_t* sums);
  void add(const std::int64_t* sums);

  std::int64_t count() const { return count_; }

  // When all threads are done, of which at least one has added.
  const std::int64_t* get() const { return total_.get(); }
  KeptArray<std::int64_t> take() { return std::move(total_); }

 private:
  template <typename Sum>
  void add_or_copy(const Sum* sums);

  const std::int64_t count_;
  KeptArray<std::int64_t> total_;  // not cleared: the first to add writes it
  bool empty_ = true;
  std::mutex adding_;
};

// One thread's sums of 32 bits. Flush is called with them before they could overflow, and at the end.
template <typename Flush>
class NarrowSums {
 public:
  // `memory` has room for `count` sums of at most `most_terms` terms each.
  NarrowSums(std::int32_t* memory, std::int64_t count, Flush flush, std::int64_t most_terms = kMostTerms)
      : sums_(memory), count_(count), most_terms_(most_terms), flush_(std::move(flush)) {}
  ~NarrowSums() { flush(); }
  NarrowSums(const NarrowSums&) = delete;
  NarrowSums& operator=(const NarrowSums&) = delete;

  // Terms that each sum has room for, at least `wanted`, which is at most `most_terms`.
  std::int64_t room_for(std::int64_t wanted) {
    if (terms_ + wanted > most_terms_) flush();
    return most_terms_ - terms_;
  }

  // Where to add `terms` more terms to each sum.
  std::int32_t* add(std::int64_t terms) {
    room_for(terms);
    if (terms_ == 0) std::fill_n(sums_, count_, 0);
    terms_ += terms;
    return sums_;
  }

 private:
  void flush() {
    if (terms_ > 0) flush_(sums_);
    terms_ = 0;
  }

  std::int32_t* const sums_;
  const std::int64_t count_, most_terms_;
  const Flush flush_;
  std::int64_t terms_ = 0;  // of each sum
};

}  // namespace lowtide::integer
