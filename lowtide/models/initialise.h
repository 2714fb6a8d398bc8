#pragma once

#include <torch/nn/module.h>

#include <cstdint>

#include "lowtide/base/random.h"

namespace lowtide {

// He et al. 2015 (normal, by fan-out) for convolutions, uniform in ±1/sqrt(in) for linear and recurrent layers, Glorot &
// Bengio 2010 (uniform; √2 times that for GraphSAGE, as DGL has it) for layers on graphs, uniform in ±0.1 for an LSTM's
// embedding, normal with deviation 1/sqrt(units) for a Transformer's, 1 and 0 for normalisations; from the seed and the
// parameter's place alone.
void initialise(torch::nn::Module& model, std::uint64_t seed);

// Written in the order of the contiguous tensor, whatever its layout in memory.
void fill_normal(const at::Tensor& parameter, double deviation, RandomStream stream);
void fill_uniform(const at::Tensor& parameter, double bound, RandomStream stream);

}  // namespace lowtide
