#pragma once

#include "lowtide/engine/engine.h"

namespace lowtide::cuda {

// Whether these features are a matrix of floats or bytes on a GPU.
bool can_aggregate(const Quantized& features);

// As Engine::aggregate(). Every sum is made in one order, whatever the GPU.
at::Tensor aggregate(const SparseRows& matrix, const Quantized& features);

}  // namespace lowtide::cuda
