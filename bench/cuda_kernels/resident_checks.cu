#include <cmath>

#include "bench/cuda_kernels/resident_case.h"
#include "bench/cuda_kernels/subjects.h"
#include "bench/gpu_checks.h"

namespace lowtide::cuda::bench {

void compare_resident(const std::string& name, const ConvCase& c, const std::vector<double>& dx,
                      const std::vector<double>& dgamma, const std::vector<double>& dbeta) {
  const ResidentCase r(c);
  const std::vector<float> mean = c.mean.host(), factor = c.factor.host();
  const auto n_out = static_cast<std::size_t>(c.g.outputs);
  resident_forward(r.encoding(0), nullptr);
  check(cudaDeviceSynchronize(), name.c_str());
  report(name + " resident output", differing(r.y, c.y), 0);
  const std::vector<double> passes_mean(mean.begin(), mean.end()),
      passes_factor(factor.begin(), factor.end());
  report(name + " resident mean", distance(c.mean.host(), passes_mean), 1e-6);
  report(name + " resident factor", distance(c.factor.host(), passes_factor), 2e-6);
  const Buffer<std::uint8_t> code(r.count()), positive(r.count() / 8), extremes(kExtremesBytes, 0);
  const Buffer<float> scale(4), z(r.count()), ends(4);
  NormEncodeArguments encode = r.encode();
  encode.min = c.min.get();
  encode.range = c.range.get();
  encode.code = code.get();
  encode.scale = scale.get();
  norm_encode(encode, nullptr);
  report(name + " resident codes", differing(r.code, code), 0);

  r.clear(nullptr, 1);
  resident_forward(r.adding(0), nullptr);
  NormAddArguments add = r.add(0);
  add.work = extremes.get();
  add.value = z.get();
  add.positive = positive.get();
  add.min = ends.get();
  add.range = ends.get() + 1;
  norm_add(add, nullptr);
  report(name + " resident sum", differing(r.z, z), 0);
  report(name + " resident signs", differing(r.positive, positive), 0);
  report(name + " resident sum's range",
         std::abs(ends.host()[0] - c.min.host()[1]) + std::abs(ends.host()[1] - c.range.host()[1]), 0);
  const Buffer<float> zeros(n_out, 0), ones(std::vector<float>(n_out, 1.0f));
  encode.y = z.get();
  encode.norm.mean = encode.norm.bias = zeros.get();
  encode.norm.factor = ones.get();
  encode.relu = false;
  encode.min = ends.get();
  encode.range = ends.get() + 1;
  norm_encode(encode, nullptr);
  report(name + " resident sum's codes", differing(r.sum_code, code), 0);

  r.clear(nullptr, 1);
  const ResidentBackwardArguments backward = r.backward(0, true, true);
  resident_backward(backward, nullptr);
  check(cudaDeviceSynchronize(), name.c_str());
  report(name + " resident input gradient", distance(r.dx.host(), dx), 1e-6);
  auto gamma = c.dgamma.host(), beta = c.dbeta.host();
  gamma.resize(n_out);
  beta.resize(n_out);
  report(name + " resident norm weight gradient", distance(gamma, dgamma), 5e-6);
  report(name + " resident norm bias gradient", distance(beta, dbeta), 5e-6);
  NormGradientArguments error = backward.error;
  const Buffer<std::uint8_t> error_extremes(kExtremesBytes, 0);
  error.work = error_extremes.get();
  error.min = ends.get() + 2;
  error.range = ends.get() + 3;
  error.code = code.get();
  error.scale = scale.get() + 2;
  norm_gradient_range(error, nullptr);
  norm_gradient_encode(error, nullptr);
  report(name + " resident error's codes", differing(r.error_code, code), 0);
  report(name + " resident error's range",
         std::abs(ends.host()[2] - c.min.host()[2]) + std::abs(ends.host()[3] - c.range.host()[2]), 0);
}

}  // namespace lowtide::cuda::bench
