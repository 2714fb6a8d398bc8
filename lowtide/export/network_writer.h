#pragma once

#include "lowtide/export/layer_writer.h"
#include "lowtide/nn/quant_lstm.h"
#include "lowtide/nn/transformer_layer.h"
#include "lowtide/trunk/trunk.h"

namespace lowtide {

struct ExportOptions {
  ExportForm form = ExportForm::kExact;
  Bits bits;  // of the evaluation that is written down; layers have their rules for them
};

// Writes the modules that networks are made of, as they evaluate.
class NetworkWriter {
 public:
  NetworkWriter(const std::string& network, const ExportOptions& options)
      : graph(network), layers(graph, options.form), options_(options) {}

  Value conv(const QuantConv2dImpl& conv, const Value& x) { return conv_norm(conv, nullptr, x); }
  Value linear(const QuantLinearImpl& linear, const Value& x);
  Value trunk(const Trunk& trunk, Value x);
  Value layer_norm(const LayerNormImpl& norm, const std::string& name, const Value& x);

  // x is items × length × hidden; the mask, which is added to the scores, items (or 1) × 1 × length (or 1) × length.
  Value transformer_layer(const TransformerLayerImpl& layer, const std::string& name, const Value& x,
                          const Value& mask);

  LayerWriter::LstmValues lstm(const QuantLstmImpl& layer, const Value& x, const Value& hidden,
                               const Value& cell);

  // The first rows of a constant, as many as `like` has in its dimension; or the first of several of its dimensions.
  Value first_of(const at::Tensor& table, const std::string& name, const std::vector<std::int64_t>& axes,
                 const Value& like, std::int64_t dimension);

  Value halving_max_pool(const Value& x);  // 3×3, of an ImageNet ResNet's stem

  int bits_of(const QuantLayer& layer) const { return layer.rule().resolve(options_.bits).forward; }

  GraphBuilder graph;
  LayerWriter layers;

 private:
  Value conv_norm(const QuantConv2dImpl& conv, const BatchNormImpl* norm, const Value& x);
  Value block(const ConvBlock& block, const Value& x);
  Value attention(const SelfAttentionImpl& attention, const Value& x, const Value& mask);
  Value gelu(const Value& x);

  ExportOptions options_;
};

}  // namespace lowtide
