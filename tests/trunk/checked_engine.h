#pragma once

#include <memory>
#include <string>
#include <utility>

#include "tests/trunk/wrapped_engine.h"

namespace lowtide {

// An engine whose passes are each compared with the same in double precision, from the same operands. What the engine under
// test computed goes on, so no difference grows from one pass to the next, and every tolerance follows from the rounding
// of single sums.
class CheckedEngine final : public WrappedEngine {
 public:
  // `shows_outputs`: the convolutions' own results are asked for and compared too, which an engine may then not fuse with what
  // follows.
  explicit CheckedEngine(std::shared_ptr<const Engine> tested, bool shows_outputs = false)
      : WrappedEngine(std::move(tested)), shows_outputs_(shows_outputs) {}

  std::string name() const override { return "checked " + inner_->name(); }
  std::unique_ptr<ConvNorm> conv_norm(const ConvNormCall& call) const override;
  int stages_checked() const { return stages_checked_; }  // forward and all the way back

 private:
  bool shows_outputs_;
  mutable int stages_checked_ = 0;
};

}  // namespace lowtide
