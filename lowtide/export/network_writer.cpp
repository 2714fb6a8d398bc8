#include "lowtide/export/network_writer.h"

#include "lowtide/base/torch.h"

namespace lowtide {

// The factor of a batch normalisation as the engines take it from its running statistics (engine/cpu/normalisation.cpp).
Value NetworkWriter::conv_norm(const QuantConv2dImpl& conv, const BatchNormImpl* norm, const Value& x) {
  graph.enter(conv.layer_name());
  const QuantConv2dOptions& o = conv.options;
  ConvLayer layer{.weight = conv.weight.detach(),
                  .stride = {o.stride, o.stride},
                  .padding = {o.padding, o.padding},
                  .groups = o.groups,
                  .input = conv.input_range().running(),
                  .bits = bits_of(conv)};
  if (conv.bias.defined()) layer.bias = conv.bias.detach();
  if (norm != nullptr) {
    layer.mean = norm->running_mean;
    layer.factor = (norm->running_variance + kNormEpsilon).sqrt().reciprocal() * norm->weight.detach();
    layer.shift = norm->bias.detach();
  }
  return layers.conv(layer, x);
}

Value NetworkWriter::block(const ConvBlock& block, const Value& x) {
  Value y = x;
  for (std::size_t i = 0; i < block.stages.size(); ++i) {
    const ConvStage& stage = block.stages[i];
    y = conv_norm(*stage.conv, stage.norm.get(), y);
    if (i + 1 == block.stages.size()) {
      if (block.adds_input) y = graph.node("Add", {y, x});
      if (block.projection)
        y = graph.node("Add", {y, conv_norm(*block.projection->conv, block.projection->norm.get(), x)});
    }
    if (stage.relu) y = graph.node("Relu", {y});
  }
  return y;
}

Value NetworkWriter::trunk(const Trunk& trunk, Value x) {
  for (const ConvBlock& each : trunk.blocks()) x = block(each, x);
  return x;
}

Value NetworkWriter::halving_max_pool(const Value& x) {
  graph.enter("pool");
  using Sizes = std::vector<std::int64_t>;
  return graph.node("MaxPool", {x},
                    {{"kernel_shape", Sizes{3, 3}}, {"strides", Sizes{2, 2}}, {"pads", Sizes{1, 1, 1, 1}}});
}

Value NetworkWriter::linear(const QuantLinearImpl& linear, const Value& x) {
  graph.enter(linear.layer_name());
  return layers.linear({linear.weight, linear.bias, linear.input_range().running(), bits_of(linear)}, x);
}

LayerWriter::LstmValues NetworkWriter::lstm(const QuantLstmImpl& layer, const Value& x, const Value& hidden,
                                            const Value& cell) {
  graph.enter(layer.layer_name());
  const LstmRanges& ranges = layer.ranges();
  return layers.lstm({layer.input_weight, layer.hidden_weight, layer.bias, ranges.input.running(),
                      ranges.hidden.running(), bits_of(layer)},
                     x, hidden, cell);
}

}  // namespace lowtide
