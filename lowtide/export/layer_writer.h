#pragma once

#include <array>

#include "lowtide/export/graph_builder.h"
#include "lowtide/quant/quantizer.h"

namespace lowtide {

// How quantised layers are written.
enum class ExportForm {
  // As they are evaluated here: an offset is a real number, which is subtracted before QuantizeLinear and added after
  // DequantizeLinear; a weight is its codes and an offset per channel.
  kExact,
  // As runtimes have integer kernels for it: inputs are bytes with an integer zero point, weights signed bytes symmetric about 0.
  kQdq
};

// A convolution whose output may be scaled and shifted by channel: a batch normalisation of an evaluation.
struct ConvLayer {
  at::Tensor weight;
  at::Tensor bias = {};                // undefined: none
  at::Tensor factor = {}, shift = {};  // of each output channel; undefined: none
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
  Range input;  // with which x is quantised
  int bits = 0;
};

// x·weightᵀ + bias over the last dimension of x.
struct LinearLayer {
  at::Tensor weight, bias;  // no bias: undefined
  Range input;
  int bits = 0;
};

// One layer of an LSTM; its weights have rows of the input, forget, cell and output gates.
struct LstmLayer {
  at::Tensor input_weight, hidden_weight, bias;
  Range input, hidden;  // with which x and the state are quantised
  int bits = 0;
};

// Writes quantised products into a graph, as the library evaluates them. UserError for bits that the form has no codes for.
class LayerWriter {
 public:
  LayerWriter(GraphBuilder& graph, ExportForm form) : graph_(graph), form_(form) {}

  Value conv(const ConvLayer& layer, const Value& x);
  Value linear(const LinearLayer& layer, const Value& x);

  // The parts of the latter, for a layer that multiplies otherwise.
  Value activation(const Value& x, const Range& range, int bits);
  Value matrix(const at::Tensor& weight, int bits);  // transposed: inputs × outputs
  Value bias(const at::Tensor& bias, int bits);

  // x is length × items × inputs, the state items × units each.
  struct LstmValues {
    Value hidden;  // length × items × units
    Value last_hidden, last_cell;
  };
  LstmValues lstm(const LstmLayer& layer, const Value& x, const Value& hidden, const Value& cell);

  // a·b of two activations, each quantised with a range for every row, that of the values at hand. Where runtimes have no
  // kernel for that, in kQdq, it is a product of floats.
  Value product(const Value& a, const Value& b, int bits);

 private:
  void expect_codes(int bits) const;
  Value scaled_codes(const at::Tensor& codes, const at::Tensor& scale, std::int64_t axis);
  Value exact_weight(const at::Tensor& weight, const at::Tensor& factor, int bits, bool transposed);
  Value exact_activation(const Value& x, const Range& range, int bits);
  Value integer_activation(const Value& x, const Range& range, int bits);
  Value rounded_rows(const Value& x, int bits);
  std::shared_ptr<const OnnxGraph> lstm_step(const LstmLayer& layer);

  GraphBuilder& graph_;
  ExportForm form_;
};

}  // namespace lowtide
