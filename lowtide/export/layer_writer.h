#pragma once

#include <array>

#include "lowtide/export/graph_builder.h"
#include "lowtide/quant/quantizer.h"

namespace lowtide {

// How quantised layers are written.
enum class ExportForm {
  // As they are evaluated here: an offset is a real number, which is subtracted before QuantizeLinear; products of bytes are sums of
  // integers, and what the offsets add to them.
  kExact,
  // As runtimes have integer kernels for it: inputs are bytes with an integer zero point, weights signed bytes symmetric about 0.
  kQdq
};

// A convolution whose output may be normalised by channel, as in an evaluation: (y - mean) · factor + shift.
struct ConvLayer {
  at::Tensor weight;
  at::Tensor bias = {};                // undefined: none
  at::Tensor factor = {}, shift = {};  // of each output channel; undefined: none
  at::Tensor mean = {};                // undefined: 0
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
  Range input;  // with which x is quantised
  int bits = 0;

  bool sums_integers() const;                   // in the integer engine
  std::vector<OnnxAttribute> geometry() const;  // as Conv and ConvInteger have it
};

// x·weightᵀ + bias over the last dimension of x.
struct LinearLayer {
  at::Tensor weight, bias;  // no bias: undefined
  Range input;
  int bits = 0;

  bool sums_integers() const;
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
  Value exact_weight(const at::Tensor& weight, int bits, bool transposed);
  Value rounded(const Value& x, const Value& min, const Value& scale, int bits);
  Value zero_point_codes(const Value& x, const Range& range, int bits);
  Value activation(const Value& x, const Range& range, int bits);
  Value folded_conv(const ConvLayer& layer, const Value& x);
  Value convolved(const ConvLayer& layer, const Value& x);
  Value float_product(const LinearLayer& layer, const Value& x);

  // Sums of bytes, in integer_products.cpp.
  Value codes(const Value& x, const Range& range, int bits);
  Value integer_conv(const ConvLayer& layer, const Value& x);
  Value integer_product(const LinearLayer& layer, const Value& x);

  Value rounded_rows(const Value& x, int bits);
  std::shared_ptr<const OnnxGraph> lstm_step(const LstmLayer& layer);

  GraphBuilder& graph_;
  ExportForm form_;
};

}  // namespace lowtide
