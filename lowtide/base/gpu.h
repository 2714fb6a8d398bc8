#pragma once

namespace lowtide {

// UserError where this build or this machine has no GPU that can be used; says which, and why.
void expect_gpu();

// How much of the GPU's memory this process may take from now on, as a share of all of it; beyond that it is out of memory. What
// CUDA itself takes for the process counts too.
void limit_gpu_memory(double share);

}  // namespace lowtide
