#pragma once

#include <functional>

#include "tests/golden/recording.h"

// A whole network's step from its recorded start. A value that lies on the border of two codes falls to either side by the
// last bit of a sum, and every layer enlarges that; the error of a gradient more so, since 0 is no code: a range that moves a
// little rounds all small errors the other way. So the same step by the original modules, with weights off by 1e-7, has other
// logits by 1e-3 and other gradients by up to their own size. No number of digits can be asked for.
//
// What can be asked: two ways to round the same numbers are no further from each other than, about, each is from the
// numbers that are not rounded. How far that is can be measured, as the network runs at 16 bits as well. It is taken from the
// recorded step or from ours, whichever is nearer to 16 bits: so neither a network that is wrong at any precision, nor one
// whose rounding alone is wrong, grants itself a tolerance.
//
// Where the recording has the output of every layer, it shows whether all codes of a forward pass were the recorded ones. If
// they were, as mostly, only the rounding of errors is left: the forward pass is compared as sums are, and gradients are seen
// beside those of the same pass with errors of 16 bits.

namespace lowtide {

// What a step leaves, by the recording's names.
struct StepResult {
  torch::Tensor output;
  torch::Tensor loss;    // undefined without one
  TensorMap gradients;   // of parameters, and of inputs where recorded
  TensorMap statistics;  // buffers after the step
};

// How far apart two roundings may be, as a multiple of the distance from no rounding. Among some thousand steps of networks,
// recorded with other seeds and sizes and with weights off by 1e-7 to 2e-6, the furthest were 2.2 forward (logits 1.2, the
// rest running ranges) and 4.6 of a gradient; of an LSTM's window and of graph networks 0.4 and 0.3.
struct Closeness {
  double forward = 3, gradient = 8;
  // Layers (prefixes of names) whose input is recorded: nothing on a border lies before them, and their statistics are
  // compared as sums are.
  std::vector<std::string> first_layers = {};
};

// The recording's name for ours; empty where it has none.
using NameOf = std::function<std::string(const std::string&)>;

// Sets all parameters and buffers that have a name there.
void load(torch::nn::Module& model, const Recording& recorded, const NameOf& name_of);
TensorMap gradients_of(const torch::nn::Module& model, const NameOf& name_of);
TensorMap buffers_of(const torch::nn::Module& model, const NameOf& name_of);
// What a step leaves whose loss is the mean cross-entropy of these scores: goes back from it.
StepResult step_from(const torch::Tensor& scores, const torch::Tensor& classes,
                     const torch::nn::Module& model, const NameOf& name_of);
// What was recorded under the names of `ours`, in the same shapes.
TensorMap recorded_like(const TensorMap& ours, const Recording& recorded);

// Runs a step and tells whether each layer with a recorded output gave that. `name_of` is for layers here.
bool has_recorded_codes(Execution& execution, const Recording& recorded, const NameOf& name_of,
                        const std::function<void()>& step);

inline constexpr int kFineBits = 16;
inline constexpr Bits kFine{kFineBits, kFineBits};
// `fine` is our step at kFine; or, where codes are the recorded ones, with errors of kFineBits alone. We must have every
// gradient that is recorded.
void expect_step(const StepResult& recorded, const StepResult& ours, const StepResult& fine,
                 const Closeness& closeness);

// The same for a single tensor.
testing::AssertionResult as_rounded(const torch::Tensor& recorded, const torch::Tensor& ours,
                                    const torch::Tensor& fine, double times);

}  // namespace lowtide
