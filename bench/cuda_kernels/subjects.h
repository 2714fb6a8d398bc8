#pragma once

#include "bench/cuda_kernels/conv_case.h"

// What the program checks and times.

namespace lowtide::cuda::bench {

void check_convs();
void time_convs();

// Images that stay against the same passes one by one: the same bits wherever both are given the same sums. `dx` is the
// input gradient in double precision, ReLU's mask applied.
void compare_resident(const std::string& name, const ConvCase& c, const std::vector<double>& dx,
                      const std::vector<double>& dgamma, const std::vector<double>& dbeta);

void check_depthwise();
void time_depthwise();

}  // namespace lowtide::cuda::bench
