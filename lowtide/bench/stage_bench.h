#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowtide/bench/model_shapes.h"
#include "lowtide/bench/roofline.h"
#include "lowtide/schedule/bits.h"

namespace lowtide {

struct StageBenchOptions {
  std::vector<std::string> models{"cifar-resnet20", "cifar-mobilenet-v2", "resnet18"};
  std::int64_t batch = 128;  // as in model_shapes()
  std::vector<std::string> engines{"fp32", "simulated", "cuda"};
  Bits bits{8, 8};
  int repeat = 7;
  std::string device = "cuda";
};

// A stage on its way forward or back.
struct StageTiming {
  double milliseconds = 0;  // fastest
  LeastWork least;
  double least_milliseconds = 0;
};

struct StageEngineTiming {
  std::string engine;
  StageTiming forward, backward;
};

struct StageLayer {
  ConvShape shape;
  std::vector<std::string> models;         // that have a layer of this shape
  std::vector<StageEngineTiming> engines;  // in the order of the options
};

struct StageBench {
  MachinePeaks peaks;
  std::vector<StageLayer> layers;
};

// Walks the convolution shapes of the models and times each as the stage of a trunk: weight codes, convolution, normalisation by the
// batch, ReLU and the codes of the result; back, the error's codes with noise and both gradients. Where the result can be read by
// the same convolution, four of them in a chain, of which one's share is told: so that an engine may keep on the way what the next
// one reads. On a GPU as CUDA graphs; "fp32" is libtorch on floats; TF32 as in bench_step().
StageBench bench_stages(const StageBenchOptions& options);

}  // namespace lowtide
