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
  static constexpr std::int64_t kMostMacs = std::int64_t{1} << 48;

  struct Layer {
    std::string name;
    std::int64_t macs = 0;  // of the forward pass, for one item (an image, a token, a node); up to kMostMacs
    LayerPrecision precision;
    bool operator==(const Layer&) const = default;
  };

  void add_layer(std::string name, std::int64_t macs, LayerPrecision precision = {});

  // A step, or several, of `items` items in all.
  void add(Bits scheduled, std::int64_t items);

  const std::vector<Layer>& layers() const { return layers_; }
  std::int64_t items() const;

  BitOperations paper(const Layer& layer) const;
  BitOperations actual(const Layer& layer) const;
  BitOperations paper() const;
  BitOperations actual() const;

  // For a checkpoint. A ledger is restored into one with the same layers; otherwise UserError.
  Json state() const;
  void restore(const Json& state);

  Json to_json() const;
  std::string format_table() const;

 private:
  std::vector<Layer> layers_;
  std::map<std::pair<int, int>, std::int64_t> items_;  // by scheduled (forward, backward)
};

}  // namespace lowtide
