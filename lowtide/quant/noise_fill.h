#pragma once

#include <cstdint>

#include "lowtide/quant/quantizer_kernels.h"

namespace lowtide {

// noise[i] = noise_at(counter, first + i), for `first` a multiple of kNoiseBlock and room for whole blocks.
void fill_noise(const NoiseCounter& counter, std::int64_t first, std::int64_t n, float* noise);

}  // namespace lowtide
