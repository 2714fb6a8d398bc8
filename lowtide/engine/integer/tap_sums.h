#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/engine/engine.h"
#include "lowtide/engine/integer/wide_sums.h"

namespace lowtide::integer {

// What a weight gradient's taps meet: the positions of the image that a tap falls onto, or the outputs at which it does.
enum class Met { kInputs, kOutputs };

// Positions along one dimension: `count` of them from `first` on, `step` apart.
struct PositionRun {
  std::int64_t first, step, count;
};

// How many positions each tap meets in all images, [kernel position].
std::vector<std::int64_t> met_positions(const ConvShape& shape);

// Positions that the same taps meet. Away from the edges nearly all are in one class.
struct PositionClass {
  std::vector<bool> met_by;  // each tap
  std::vector<PositionRun> runs;
};

// Σ q over the positions that each tap meets, of the codes of the input or of the error. Images are added one by one, by
// whoever has them in a cache.
class TapSums {
 public:
  TapSums(const Quantized& q, const ConvShape& shape, Met met);
  TapSums(const TapSums&) = delete;
  TapSums& operator=(const TapSums&) = delete;

  // What one thread adds.
  class Part {
   public:
    explicit Part(TapSums& whole) : whole_(whole), sums_(static_cast<std::size_t>(whole.sums_.count())) {}
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    void add_image(std::int64_t item);

   private:
    TapSums& whole_;
    std::vector<std::int64_t> sums_;
  };

  // All images, on all threads.
  void add_all();

  // When every image was added: [kernel position][channel].
  std::vector<std::int64_t> by_tap() const;

 private:
  const std::uint8_t* const code_;
  const std::int64_t items_, channels_, row_codes_, image_codes_;
  const std::vector<PositionRun> met_by_rows_, met_by_cols_;  // each row and column of the kernel
  const std::vector<PositionClass> rows_, cols_;
  WideSums sums_;  // [row class][column class][channel]
};

}  // namespace lowtide::integer
