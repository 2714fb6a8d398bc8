#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "lowtide/base/torch.h"
#include "lowtide/nn/execution.h"

namespace lowtide {

// Largest difference over the largest magnitude expected: what "relative" means in these tests. An element
// near 0 among large ones is a difference of large numbers, and its own relative error says nothing.
inline testing::AssertionResult close_to(const torch::Tensor& actual, const torch::Tensor& expected,
                                         double tolerance) {
  if (!actual.defined()) return testing::AssertionFailure() << "no tensor";
  if (actual.sizes() != expected.sizes()) {
    return testing::AssertionFailure() << "sizes " << actual.sizes() << ", expected " << expected.sizes();
  }
  const double difference =
      (actual.to(torch::kDouble) - expected.to(torch::kDouble)).abs().max().item<double>();
  const double magnitude = expected.to(torch::kDouble).abs().max().item<double>();
  if (difference <= tolerance * magnitude) return testing::AssertionSuccess();  // false for NaN
  return testing::AssertionFailure() << "differs by " << difference << " where the largest is " << magnitude
                                     << " (" << difference / magnitude << " relative, " << tolerance
                                     << " allowed)";
}

// Every bit alike. (No NaN may be in either.)
inline testing::AssertionResult same(const torch::Tensor& actual, const torch::Tensor& expected) {
  if (!actual.defined() || !expected.defined()) return testing::AssertionFailure() << "no tensor";
  if (actual.sizes() != expected.sizes()) {
    return testing::AssertionFailure() << "sizes " << actual.sizes() << ", expected " << expected.sizes();
  }
  if (actual.scalar_type() == expected.scalar_type() && actual.equal(expected))
    return testing::AssertionSuccess();
  const double difference =
      (actual.to(torch::kDouble) - expected.to(torch::kDouble)).abs().max().item<double>();
  return testing::AssertionFailure() << "differs by " << difference;
}

// Random numbers that are the same in every run and whatever ran before.
inline torch::Tensor normal(torch::IntArrayRef sizes, std::uint64_t seed) {
  return torch::randn(sizes, at::detail::createCPUGenerator(seed));
}
inline torch::Tensor uniform(torch::IntArrayRef sizes, double low, double high, std::uint64_t seed) {
  return torch::rand(sizes, at::detail::createCPUGenerator(seed)) * (high - low) + low;
}

// What `compute` returns with one, two and three threads; the number is put back afterwards.
template <typename Compute>
std::vector<torch::Tensor> with_1_2_3_threads(const Compute& compute) {
  const int before = at::get_num_threads();
  std::vector<torch::Tensor> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    results.push_back(compute());
  }
  at::set_num_threads(before);
  return results;
}

template <typename Compute>
void expect_independent_of_threads(const Compute& compute) {
  const std::vector<torch::Tensor> results = with_1_2_3_threads(compute);
  EXPECT_TRUE(same(results[1], results[0])) << "two threads";
  EXPECT_TRUE(same(results[2], results[0])) << "three threads";
}

// The engine that layers and models are tested with: CTest runs those tests once for each.
inline std::shared_ptr<const Engine> engine_under_test() {
  const char* name = std::getenv("LOWTIDE_TEST_ENGINE");
  return make_engine(name != nullptr ? name : "simulated");
}

// The device that golden files are tested on: likewise.
inline torch::Device device_under_test() {
  const char* name = std::getenv("LOWTIDE_TEST_DEVICE");
  return torch::Device(name != nullptr ? name : "cpu");
}

inline std::shared_ptr<Execution> execution_at(Bits bits, bool stochastic = false) {
  auto execution = std::make_shared<Execution>();
  execution->engine = engine_under_test();
  execution->bits = bits;
  execution->stochastic = stochastic;
  return execution;
}

}  // namespace lowtide
