#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "lowtide/quant/quantized.h"
#include "lowtide/quant/quantizer_kernels.h"

namespace lowtide {

// Which numbers share a minimum and a range.
enum class RangeGroup {
  kTensor,  // one for all elements
  kRow  // one for each index of dimension 0: an output channel of a convolution, an output row of a linear
        // layer
};

// Minimum and max - min, one element or one a row. A group that holds a NaN or an infinity has a NaN range,
// so that what is quantised with it is NaN too and the training loop sees it; nothing is silently clamped
// away.
struct Range {
  at::Tensor min;
  at::Tensor range;
};

// Where a number of stochastic rounding's noise comes from: the run's seed, the step and the shard of its batch, the tensor,
// and the index of the element in memory. See noise.h.
struct NoiseKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::uint32_t tensor = 0;
  const std::int64_t* device_step =
      nullptr;              // the same step in device memory, where a captured kernel will read it
  std::uint32_t shard = 0;  // a captured kernel's is 0
};

// What is added to (x - min) / scale before it is clamped and rounded: nothing (round to nearest), noise
// drawn from a counter, or noise given by a tensor of the shape of x.
class Noise {
 public:
  static Noise none() { return Noise(); }
  static Noise drawn(const NoiseKey& key) {
    Noise noise;
    noise.drawn_ = true;
    noise.key_ = key;
    return noise;
  }
  static Noise given(at::Tensor values) {
    Noise noise;
    noise.values_ = std::move(values);
    return noise;
  }

  bool is_drawn() const { return drawn_; }
  const NoiseKey& key() const { return key_; }
  const at::Tensor& values() const { return values_; }

 private:
  bool drawn_ = false;
  NoiseKey key_;
  at::Tensor values_;
};

// x without gaps in memory, channels last where it has four dimensions: as the quantiser reads it. The index of an
// element in that order is its counter in the noise, whatever the engine.
at::Tensor contiguous(const at::Tensor& x);

Range measure_range(const at::Tensor& x, RangeGroup group);

// x is items × positions × length numbers. All items share one range at each position; it is repeated for every item, so that
// each of the items × positions rows has its range.
Range measure_position_ranges(const at::Tensor& x);

// scale = max(range / (2^bits - 1), 1e-8); code = round_half_even(clamp((x - min) / scale [+ noise], 0,
// 2^bits - 1)). Bits of 0, and of 24 and more, return x itself.
Quantized encode(const at::Tensor& x, const Range& range, DeviceBits bits,
                 const Noise& noise = Noise::none());

// A weight's codes, with a range for each row.
Quantized encode_rows(const at::Tensor& weight, DeviceBits bits);

NoiseCounter counter_of(const NoiseKey& key);

// 2^bits - 1 as one float32 on the device of `options`, which a captured step reads anew.
at::Tensor top_code(DeviceBits bits, const at::TensorOptions& options);

// A running minimum and range, which move a tenth of the way to those of now; in their order, where several move one.
struct RangeUpdate {
  at::Tensor min, range;
  Range now;
};
void track(const std::vector<RangeUpdate>& updates);

// encode() of a tensor that never exists as a whole, on the CPU: its floats are given a chunk at a time, in any order
// and by any thread. One range for all, at most 8 bits; noise is drawn, or there is none.
class ChunkEncoder {
 public:
  struct Format {
    int bits = 0;
    Noise noise = Noise::none();

    bool fits() const { return fits_bytes(bits) && !noise.values().defined(); }
  };

  // The codes lie in memory as `like` does.
  ChunkEncoder(const at::Tensor& like, const Range& range, const Format& format);

  // x[0] is element `first` of the tensor in memory.
  void encode(const float* x, std::int64_t first, std::int64_t n) const;
  const Quantized& codes() const { return codes_; }

 private:
  Quantized codes_;
  std::uint8_t* code_;
  float min_, scale_, top_;
  bool noisy_;
  NoiseCounter counter_;
};

// code * scale + offset, as float32.
at::Tensor decode(const Quantized& x);

}  // namespace lowtide
