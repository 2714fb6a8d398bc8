#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowtide/engine/engine.h"
#include "lowtide/schedule/bits.h"

namespace lowtide {

struct LayerBenchOptions {
  std::vector<std::string> models{"cifar-resnet20", "cifar-mobilenet-v2", "resnet18"};
  std::int64_t batch = 128;  // of 32×32 images; of larger ones as many as have the same pixels, at least 16
  Bits bits{8, 8};
  int repeat = 7;
};

// One product of one convolution.
struct ProductTiming {
  std::string product;           // output, input gradient, weight gradient
  double milliseconds = 0;       // fastest
  double fp32_milliseconds = 0;  // of libtorch on floats
  double peak_share = 0;         // of what all cores' byte products could do, the products counted once
  double error = 0;              // largest difference from `simulated` over the largest value
};

struct LayerTiming {
  ConvShape shape;
  std::vector<std::string> models;  // that have a layer of this shape
  std::vector<ProductTiming> products;
};

struct LayerBench {
  double peak =
      0;  // products of bytes a second, all threads, measured on data that stays in the nearest cache
  std::vector<LayerTiming> layers;
};

// Walks the convolution shapes of the models and times the integer engine's products against floats, and compares them
// with `simulated`: speed and correctness from one driver.
LayerBench bench_layers(const LayerBenchOptions& options);

}  // namespace lowtide
