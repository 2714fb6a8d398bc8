#include "lowtide/cost/ledger.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

// With 2^48 MACs: 2^48 · 2^56 items · 3·2^10 bit operations < 2^116 a layer, and 4096 layers fit 128 bits.
constexpr std::int64_t kMostItems = std::int64_t{1} << 56;

Json layers_json(const std::vector<Ledger::Layer>& layers) {
  Json json = Json::array();
  for (const Ledger::Layer& layer : layers)
    json.push_back({layer.name, layer.macs, to_string(layer.precision)});
  return json;
}

}  // namespace

void Ledger::add_layer(std::string name, std::int64_t macs, LayerPrecision precision) {
  LOWTIDE_CHECK(macs >= 0 && macs <= kMostMacs, fmt::format("layer {}: {} MACs", name, macs));
  layers_.push_back({std::move(name), macs, precision});
}

void Ledger::add(Bits scheduled, std::int64_t items) {
  LOWTIDE_CHECK(items >= 0 && items <= kMostItems - this->items(), fmt::format("{} items", items));
  items_[{scheduled.forward, scheduled.backward}] += items;
}

std::int64_t Ledger::items() const {
  std::int64_t sum = 0;
  for (const auto& [bits, count] : items_) sum += count;
  return sum;
}

BitOperations Ledger::paper(const Layer& layer) const {
  BitOperations sum;
  for (const auto& [bits, count] : items_) {
    sum +=
        bit_operations({bits.first, bits.second}, static_cast<Count>(layer.macs) * static_cast<Count>(count));
  }
  return sum;
}

BitOperations Ledger::actual(const Layer& layer) const {
  BitOperations sum;
  for (const auto& [bits, count] : items_) {
    sum += bit_operations(layer.precision.resolve({bits.first, bits.second}),
                          static_cast<Count>(layer.macs) * static_cast<Count>(count));
  }
  return sum;
}

BitOperations Ledger::paper() const {
  BitOperations sum;
  for (const Layer& layer : layers_) sum += paper(layer);
  return sum;
}

BitOperations Ledger::actual() const {
  BitOperations sum;
  for (const Layer& layer : layers_) sum += actual(layer);
  return sum;
}

Json Ledger::state() const {
  Json items = Json::array();
  for (const auto& [bits, count] : items_) items.push_back({bits.first, bits.second, count});
  return {{"layers", layers_json(layers_)}, {"items", items}};
}

void Ledger::restore(const Json& state) {
  std::map<std::pair<int, int>, std::int64_t> items;
  std::int64_t sum = 0;
  try {
    if (state.at("layers") != layers_json(layers_)) {
      throw UserError(
          "the ledger was saved with other layers; resume with the model and the layer rules of that run");
    }
    for (const Json& entry : state.at("items")) {
      const auto count = entry.at(2).get<std::int64_t>();
      if (count < 0 || count > kMostItems - sum)
        throw UserError("the saved ledger is damaged: impossible counts");
      sum += count;
      items[{entry.at(0).get<int>(), entry.at(1).get<int>()}] += count;
    }
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("the saved ledger is damaged: {}", error.what()));
  }
  items_ = std::move(items);
}

}  // namespace lowtide
