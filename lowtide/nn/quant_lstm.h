#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lowtide/nn/quant_layer.h"

namespace lowtide {

struct QuantLstmOptions {
  std::int64_t inputs = 0;
  std::int64_t units = 0;
};

// What a layer hands from one step in time to the next: batch × units each.
struct LstmState {
  at::Tensor hidden, cell;
};

struct LstmOutput {
  at::Tensor hidden;  // time × batch × units
  LstmState last;
};

struct LstmParameters {
  at::Tensor input_weight, bias;  // W and b: rows of the input, forget, cell and output gates
  at::Tensor hidden_weight;       // U
};

// The running ranges of x and of h, which training moves.
struct LstmRanges {
  ActivationRange input, hidden;
};

// One layer of an LSTM over a window of time, computed as `layer` says; x is time × batch × inputs. Gradients flow through
// both states, where they are asked for.
LstmOutput quant_lstm(const QuantLayer& layer, const at::Tensor& x, const LstmParameters& parameters,
                      const LstmState& state, LstmRanges& ranges, bool training);

// One layer of an LSTM over a window of time. Both products, W·x + b and U·h, are quantised: the weights by row, the bias
// as a whole, x and h by the step in time, as if each were a call of its own, the error of the gates by the step and the
// item of the batch. The gates and the cell are fp32.
class QuantLstmImpl : public torch::nn::Module, public QuantLayer {
 public:
  explicit QuantLstmImpl(const QuantLstmOptions& options);

  // x is time × batch × inputs; the state must not ask for a gradient, and the last one is not part of the graph:
  // back-propagation is truncated here.
  LstmOutput forward(const at::Tensor& x, const LstmState& state);

  const LstmRanges& ranges() const { return ranges_; }

  const QuantLstmOptions options;
  at::Tensor input_weight, bias;  // W and b: rows of the input, forget, cell and output gates
  at::Tensor hidden_weight;       // U

 private:
  LstmRanges ranges_;
};
TORCH_MODULE(QuantLstm);

}  // namespace lowtide
