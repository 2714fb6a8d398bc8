#pragma once

#include "lowtide/base/torch.h"

// How fast a machine could be at most, and what a step asks of it at least.

namespace lowtide {

// Multiply-accumulates a second and bytes a second, measured.
struct MachinePeaks {
  double bytes = 0;  // read and written by a large copy from memory to memory
  // Large products of matrices: of floats, of floats as TF32 (on a CPU the same), and of bytes with sums of 32 bits. On a CPU the
  // last is of data that stays in the nearest cache.
  double float_macs = 0, tf32_macs = 0, byte_macs = 0;
};
MachinePeaks measure_peaks(const torch::Device& device);
double measure_byte_peak(const torch::Device& device);  // byte_macs alone

// What work must do at the least, wherever its passes begin and end (WorkRecorder).
struct LeastWork {
  double bytes = 0;  // that go to memory or come from it
  double byte_macs = 0, float_macs = 0;

  double macs() const { return byte_macs + float_macs; }
  LeastWork minus(const LeastWork& other) const {
    return {bytes - other.bytes, byte_macs - other.byte_macs, float_macs - other.float_macs};
  }
};

// The roofline: memory and multipliers are both at their peak, at the same time.
double least_milliseconds(const LeastWork& work, const MachinePeaks& peaks, bool tf32);

}  // namespace lowtide
