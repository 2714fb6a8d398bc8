#include "lowtide/cost/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/json_reason.h"

namespace lowtide {
namespace {

constexpr std::int64_t kMostSum = std::int64_t{1} << 62;  // of MACs that were counted step by step

Json layers_json(const std::vector<Ledger::Layer>& layers) {
  Json json = Json::array();
  for (const Ledger::Layer& layer : layers)
    json.push_back({layer.name, layer.macs, to_string(layer.precision)});
  return json;
}

bool has_whole_numbers(const Json& entry) {
  return std::all_of(entry.begin(), entry.end(), [](const Json& value) {
    return value.is_array() ? has_whole_numbers(value) : value.is_number_integer();
  });
}

// Where each of `layers` stands among those that were saved: the same ones, perhaps in another order, as a program that called
// them in another order saved them.
std::vector<std::size_t> places_among(const Json& saved, const Json& layers) {
  std::vector<std::size_t> places;
  for (const Json& layer : layers) {
    const auto found = std::find(saved.begin(), saved.end(), layer);
    if (found == saved.end() || saved.size() != layers.size()) {
      throw UserError(
          "the ledger was saved with other layers; resume with the model and the layer rules of that run");
    }
    places.push_back(static_cast<std::size_t>(found - saved.begin()));
  }
  return places;
}

}  // namespace

void Ledger::add_layer(std::string name, std::int64_t macs, LayerPrecision precision) {
  LOWTIDE_CHECK(macs >= 0 && macs <= kMostMacs, fmt::format("layer {}: {} MACs", name, macs));
  layers_.push_back({std::move(name), macs, precision});
}

void Ledger::add(Bits scheduled, std::int64_t items) {
  LOWTIDE_CHECK(items >= 0 && items <= kMostItems - this->items(), fmt::format("{} items", items));
  Steps& steps = steps_[{scheduled.forward, scheduled.backward}];
  steps.items += items;
  steps.alike += items;
}

void Ledger::add(Bits scheduled, std::int64_t items, const std::vector<std::int64_t>& macs) {
  LOWTIDE_CHECK(items >= 0 && items <= kMostItems - this->items(), fmt::format("{} items", items));
  LOWTIDE_CHECK(macs.size() == layers_.size(), "MACs of other layers");
  Steps& steps = steps_[{scheduled.forward, scheduled.backward}];
  steps.items += items;
  steps.macs.resize(layers_.size());
  for (std::size_t i = 0; i < macs.size(); ++i) {
    LOWTIDE_CHECK(macs[i] >= 0 && macs[i] <= kMostSum - steps.macs[i], layers_[i].name);
    steps.macs[i] += macs[i];
  }
}

void Ledger::add(Bits scheduled, const std::vector<std::uint8_t>& of_layers, std::int64_t items,
                 const std::vector<std::int64_t>& macs) {
  LOWTIDE_CHECK(of_layers.size() == layers_.size() && (macs.empty() || macs.size() == layers_.size()),
                "bits of other layers");
  add(scheduled, items, std::vector<std::int64_t>(layers_.size()));
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::int64_t count = macs.empty() ? layers_[i].macs * items : macs[i];
    std::vector<std::int64_t>& sums = steps_[{of_layers[i], scheduled.backward}].macs;
    sums.resize(layers_.size());
    LOWTIDE_CHECK(count >= 0 && count <= kMostSum - sums[i], layers_[i].name);
    sums[i] += count;
  }
}

void Ledger::add_probe(int bits, const std::vector<std::int64_t>& macs) {
  LOWTIDE_CHECK(macs.size() == layers_.size(), "MACs of other layers");
  std::vector<std::int64_t>& sums = probes_[bits];
  sums.resize(layers_.size());
  for (std::size_t i = 0; i < macs.size(); ++i) {
    LOWTIDE_CHECK(macs[i] >= 0 && macs[i] <= kMostSum - sums[i], layers_[i].name);
    sums[i] += macs[i];
  }
}

std::int64_t Ledger::items() const {
  std::int64_t sum = 0;
  for (const auto& [bits, steps] : steps_) sum += steps.items;
  return sum;
}

Count Ledger::macs(std::size_t layer, const Steps& steps) const {
  const Count alike = static_cast<Count>(layers_[layer].macs) * static_cast<Count>(steps.alike);
  return alike + (steps.macs.empty() ? Count{0} : static_cast<Count>(steps.macs[layer]));
}

Count Ledger::macs() const {
  Count sum = 0;
  for (const auto& [bits, steps] : steps_) {
    for (std::size_t i = 0; i < layers_.size(); ++i) sum += macs(i, steps);
  }
  return sum;
}

// At the bits that `precision` makes of those they were asked for at.
Count Ledger::probes_of(const Layer& layer, const LayerPrecision& precision) const {
  Count sum = 0;
  for (const auto& [bits, sums] : probes_) {
    const auto count = static_cast<Count>(sums[index(layer)]);
    sum += bit_operations(precision.resolve({bits, bits}), count).forward;
  }
  return sum;
}

Count Ledger::paper_of_probes() const {
  Count sum = 0;
  for (const Layer& layer : layers_) sum += probes_of(layer, {});
  return sum;
}

Count Ledger::actual_of_probes() const {
  Count sum = 0;
  for (const Layer& layer : layers_) sum += probes_of(layer, layer.precision);
  return sum;
}

BitOperations Ledger::paper(const Layer& layer) const {
  BitOperations sum;
  for (const auto& [bits, steps] : steps_) {
    sum += bit_operations({bits.first, bits.second}, macs(index(layer), steps));
  }
  sum.forward += probes_of(layer, {});
  return sum;
}

BitOperations Ledger::actual(const Layer& layer) const {
  BitOperations sum;
  for (const auto& [bits, steps] : steps_) {
    sum += bit_operations(layer.precision.resolve({bits.first, bits.second}), macs(index(layer), steps));
  }
  sum.forward += probes_of(layer, layer.precision);
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
  for (const auto& [bits, steps] : steps_) {
    Json entry{bits.first, bits.second, steps.items};
    if (!steps.macs.empty()) {
      entry.push_back(steps.alike);
      entry.push_back(steps.macs);
    }
    items.push_back(entry);
  }
  Json state{{"layers", layers_json(layers_)}, {"items", items}};
  for (const auto& [bits, sums] : probes_) state["probes"].push_back({bits, sums});
  return state;
}

Ledger::Steps Ledger::steps_from(const Json& entry, std::size_t layers) {
  Steps steps;
  steps.items = steps.alike = entry.at(2).get<std::int64_t>();
  if (entry.size() > 3) {
    steps.alike = entry.at(3).get<std::int64_t>();
    steps.macs = entry.at(4).get<std::vector<std::int64_t>>();
    const bool sound = std::all_of(steps.macs.begin(), steps.macs.end(),
                                   [](std::int64_t macs) { return macs >= 0 && macs <= kMostSum; });
    if (!sound || steps.macs.size() != layers || steps.alike < 0 || steps.alike > steps.items) {
      throw UserError("the saved ledger is damaged: impossible MACs");
    }
  }
  return steps;
}

Ledger::Probes Ledger::probes_from(const Json& state, const std::vector<std::size_t>& places) const {
  Probes probes;
  for (const Json& entry : state) {
    const auto saved = entry.at(1).get<std::vector<std::int64_t>>();
    const bool sound = has_whole_numbers(entry) && saved.size() == layers_.size() &&
                       std::all_of(saved.begin(), saved.end(),
                                   [](std::int64_t macs) { return macs >= 0 && macs <= kMostSum; });
    std::vector<std::int64_t> sums;
    for (const std::size_t place : places) sums.push_back(sound ? saved[place] : 0);
    if (!sound || !probes.emplace(entry.at(0).get<int>(), std::move(sums)).second)
      throw UserError("the saved ledger is damaged: impossible probes");
  }
  return probes;
}

void Ledger::restore(const Json& state) {
  std::map<Scheduled, Steps> restored;
  Probes probes;
  std::int64_t sum = 0;
  try {
    const std::vector<std::size_t> places = places_among(state.at("layers"), layers_json(layers_));
    for (const Json& entry : state.at("items")) {
      if (!has_whole_numbers(entry))  // read as one, 1.5 is 1
        throw UserError("the saved ledger is damaged: its counts are not whole numbers");
      Steps steps = steps_from(entry, layers_.size());
      if (!steps.macs.empty()) {
        const std::vector<std::int64_t> saved = std::exchange(steps.macs, {});
        for (const std::size_t place : places) steps.macs.push_back(saved[place]);
      }
      if (steps.items < 0 || steps.items > kMostItems - sum)
        throw UserError("the saved ledger is damaged: impossible counts");
      sum += steps.items;
      if (!restored.emplace(Scheduled{entry.at(0).get<int>(), entry.at(1).get<int>()}, steps).second)
        throw UserError("the saved ledger is damaged: the same bits twice");
    }
    if (state.contains("probes")) probes = probes_from(state.at("probes"), places);
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("the saved ledger is damaged: {}", json_reason(error)));
  }
  steps_ = std::move(restored);
  probes_ = std::move(probes);
}

Ledger Ledger::from_state(const Json& state) {
  Ledger ledger;
  try {
    for (const Json& layer : state.at("layers")) {
      const std::int64_t macs = layer.at(1);
      if (macs < 0 || macs > kMostMacs) throw UserError("the saved ledger is damaged: impossible MACs");
      ledger.add_layer(layer.at(0), macs, parse_layer_precision(layer.at(2).get<std::string>()));
    }
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("the saved ledger is damaged: {}", json_reason(error)));
  }
  ledger.restore(state);
  return ledger;
}

}  // namespace lowtide
