#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/cost/bit_operations.h"
#include "lowtide/schedule/layer_rules.h"

namespace lowtide {

// The bit operations of a run, exact in integers, in two figures that are never mixed: *paper* counts every
// MAC at the scheduled bits, *actual* each layer at the bits it really runs at. A step adds to a histogram
// over scheduled bits, in O(log of the different bits); products are taken when asked.
class Ledger {
 public:
  // 2^48 · 2^56 · 3·2^10 bit operations < 2^116 a layer, and 4096 layers fit 128 bits.
  static constexpr std::int64_t kMostMacs = std::int64_t{1} << 48;   // of a layer, for one item
  static constexpr std::int64_t kMostItems = std::int64_t{1} << 56;  // of a run

  struct Layer {
    std::string name;
    std::int64_t macs = 0;  // of the forward pass, for one item (an image, a token, a node); up to kMostMacs
    LayerPrecision precision;
    bool operator==(const Layer&) const = default;
  };

  void add_layer(std::string name, std::int64_t macs, LayerPrecision precision = {});

  // A step, or several, of `items` items in all.
  void add(Bits scheduled, std::int64_t items);
  // A step whose items differ in size (sentences, sampled graphs, images): the MACs of each layer, in their order.
  void add(Bits scheduled, std::int64_t items, const std::vector<std::int64_t>& macs);

  // The same where layers are scheduled apart, at these forward bits, in their order; no MACs: those of so many items.
  void add(Bits scheduled, const std::vector<std::uint8_t>& of_layers, std::int64_t items,
           const std::vector<std::int64_t>& macs);

  // A forward pass alone, which a closed loop decides by, with the MACs of each layer. It is no step: items() and macs() do
  // not count it, paper() and actual() do.
  void add_probe(int bits, const std::vector<std::int64_t>& macs);

  const std::vector<Layer>& layers() const { return layers_; }
  std::int64_t items() const;
  Count macs() const;  // of all layers in all steps

  BitOperations paper(const Layer& layer) const;  // one of layers()
  BitOperations actual(const Layer& layer) const;
  BitOperations paper() const;
  BitOperations actual() const;
  // What probes took of them.
  Count paper_of_probes() const;
  Count actual_of_probes() const;

  // For a checkpoint. A ledger is restored into one with the same layers; otherwise UserError.
  Json state() const;
  void restore(const Json& state);
  // With the layers that were saved; UserError where the state is damaged.
  static Ledger from_state(const Json& state);

  Json to_json() const;
  std::string format_table() const;

 private:
  using Scheduled = std::pair<int, int>;  // forward, backward

  struct Steps {
    std::int64_t items = 0;          // of all of them
    std::int64_t alike = 0;          // of those whose layers' MACs are the items' number times those of one
    std::vector<std::int64_t> macs;  // of each layer in the others; empty if there are none
    bool operator==(const Steps&) const = default;
  };

  Count macs(std::size_t layer, const Steps& steps) const;
  std::size_t index(const Layer& layer) const { return static_cast<std::size_t>(&layer - layers_.data()); }
  Count probes_of(const Layer& layer, const LayerPrecision& precision) const;
  static Steps steps_from(const Json& entry, std::size_t layers);

  std::vector<Layer> layers_;
  using Probes = std::map<int, std::vector<std::int64_t>>;  // by their bits: MACs of each layer
  Probes probes_from(const Json& state, const std::vector<std::size_t>& places) const;

  std::map<Scheduled, Steps> steps_;
  Probes probes_;
};

}  // namespace lowtide
