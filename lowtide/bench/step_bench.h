#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/bench/roofline.h"
#include "lowtide/recipe/recipe.h"
#include "lowtide/schedule/bits.h"

namespace lowtide {

struct StepBenchOptions {
  std::string model = "cifar-resnet20";
  std::int64_t batch = 128;
  std::vector<std::string> engines{"fp32", "simulated", "integer"};
  Bits bits{8, 8};
  bool recompute = false;
  int image_size = 0;  // 0: the model's own
  int repeat = 15;
  std::string device = "cpu";
  std::optional<Recipe> recipe{};  // whose task and data are timed, in place of a model on made-up images
};

struct StepTiming {
  std::string engine;
  bool tf32 = false;       // on CUDA, of libtorch's products
  std::string data;        // in words, where it is a recipe's
  std::int64_t items = 0;  // a step
  std::string item_name;
  std::string simulated;    // which layers the engine has no kernels for, in words
  double milliseconds = 0;  // median
  double fastest = 0;
  std::int64_t kernels = 0;       // of a step that was captured in a CUDA graph
  std::int64_t captures = 0;      // that its steps took
  std::int64_t peak_bytes = 0;    // beyond weights, optimiser state and the batch
  LeastWork least = {};           // that a step at these bits asks of any machine
  double least_milliseconds = 0;  // of this one, at its peaks
};

struct StepBench {
  MachinePeaks peaks;
  std::vector<StepTiming> timings;  // an engine each
};

// Times whole training steps (forward, backward, update) on made-up images, or as a recipe has them (on a drawn graph where
// its own is not there: see make_task_or_drawn). Each round times every engine once, so that the machine's noise hits all
// alike; "fp32" is the unquantised network on libtorch. On CUDA it has TF32, as users of PyTorch have it, and so has "cuda" in layers
// that are left in fp32.
StepBench bench_step(const StepBenchOptions& options);

// On CUDA: the two engines that one picks for speed; `cuda` multiplies floats in layers that are left in fp32.
bool is_timed_with_tf32(const std::string& engine);

}  // namespace lowtide
