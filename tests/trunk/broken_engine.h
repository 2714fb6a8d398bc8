#pragma once

#include <memory>
#include <string>
#include <utility>

#include "tests/trunk/wrapped_engine.h"

namespace lowtide {

// What can be wrong with an engine and hardly show in a training.
enum class Fault {
  kOtherNoise,       // errors are rounded with the noise of another layer
  kMissingMask,      // the way back goes through what ReLU stopped
  kSwappedScales,    // an input gradient takes one output channel's weight scale for another's
  kStillStatistics,  // running statistics do not move
  kLostGradient,     // another reader's gradient is not added
};

// The reference, but for one fault.
class BrokenEngine final : public WrappedEngine {
 public:
  explicit BrokenEngine(Fault fault) : WrappedEngine(make_engine("simulated")), fault_(fault) {}

  std::string name() const override { return "broken"; }
  std::unique_ptr<ConvNorm> conv_norm(const ConvNormCall& call) const override;

 private:
  Fault fault_;
};

}  // namespace lowtide
