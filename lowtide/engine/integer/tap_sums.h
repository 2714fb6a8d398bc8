#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/base/kept_memory.h"
#include "lowtide/engine/engine.h"
#include "lowtide/engine/integer/wide_sums.h"

namespace lowtide::integer {

// In a weight gradient, a tap covers the input pixels that it reads, and the output pixels at which it reads one rather than
// padding. Which of the two are meant:
enum class Covered { kInputs, kOutputs };

// Positions along one dimension: `count` of them from `first` on, `step` apart.
struct PositionRun {
  std::int64_t first, step, count;
};

// How many pixels each tap covers in all images, [tap].
std::vector<std::int64_t> covered_pixels(const ConvShape& shape);

// Positions that are covered by the same taps. Away from the edges nearly all are in one class.
struct PositionClass {
  std::vector<bool> covered_by;  // each tap
  std::vector<PositionRun> runs;
};

// Σ q over the pixels that each tap covers, of the codes of the input or of the error. Images are added one by one, by the
// thread that has them in its cache.
class TapSums {
 public:
  TapSums(const Quantized& q, const ConvShape& shape, Covered covered);
  TapSums(const TapSums&) = delete;
  TapSums& operator=(const TapSums&) = delete;

  // What one thread adds.
  class Part {
   public:
    explicit Part(TapSums& whole);
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    void add_image(std::int64_t item);

   private:
    TapSums& whole_;
    KeptArray<std::int64_t> sums_;
  };

  // All images, on all threads.
  void add_all();

  // When every image was added: [tap][channel].
  KeptVector<std::int64_t> by_tap() const;

 private:
  const std::uint8_t* const code_;
  const std::int64_t items_, channels_, row_codes_, image_codes_;
  const std::vector<PositionRun> row_coverage_, col_coverage_;  // each row and column of the kernel
  const std::vector<PositionClass> rows_, cols_;
  WideSums sums_;  // [row class][column class][channel]
};

}  // namespace lowtide::integer
