#pragma once

#include "lowtide/engine/conv_norm.h"
#include "lowtide/engine/cpu/norm_kernels.h"

namespace lowtide::cpu {

// One call of a batch normalisation as the kernels take it.
struct Normalisation {
  ChannelMap map;
  ChannelScatter scatter;
};

// Of `elements` numbers a channel. Moves the running statistics, where the batch's are used; those must be given then.
Normalisation start_normalisation(const NormParameters& norm, bool relu, std::int64_t elements,
                                  const ChannelStatistics* batch);

}  // namespace lowtide::cpu
