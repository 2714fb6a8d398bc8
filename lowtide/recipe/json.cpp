#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "lowtide/base/error.h"
#include "lowtide/recipe/keys.h"

namespace lowtide {
namespace {

// The keys of the first run folders, which every run has, but for those of how it ran. A run without a later key is as that
// one's default says.
constexpr std::array<std::string_view, 39> kFirstKeys{
    "data",      "data-dir",    "validation", "augment",      "padding",
    "flip",      "image-size",  "resize",     "mean",         "std",
    "model",     "schedule",    "bits",       "grad-bits",    "cycles",
    "k",         "c",           "eval-bits",  "layer-bits",   "grad-rounding",
    "bifurcate", "engine",      "steps",      "epochs",       "batch",
    "optimizer", "lr",          "momentum",   "weight-decay", "betas",
    "clip",      "lr-schedule", "lr-steps",   "lr-gamma",     "lr-final",
    "warmup",    "swa-start",   "swa-every",  "seed"};

void read(const RecipeKey& key, const Json& json, const std::string& where) {
  const auto found = json.find(key.name);
  if (found == json.end()) {
    const bool required = std::find(kFirstKeys.begin(), kFirstKeys.end(), key.name) != kFirstKeys.end();
    if (required) throw UserError(fmt::format("{}: the recipe has no key '{}'", where, key.name));
    return;
  }
  try {
    std::visit([&](auto* value) { found->get_to(*value); }, key.value);
  } catch (const Json::exception&) {
    throw UserError(
        fmt::format("{}: the recipe's '{}' is {}, of the wrong type", where, key.name, found->dump()));
  }
}

}  // namespace

Json to_json(const Recipe& recipe) {
  Recipe copy = recipe;
  Json json = Json::object();
  for (const RecipeKey& key : recipe_keys(copy))
    std::visit([&](const auto* value) { json[key.name] = *value; }, key.value);
  return json;
}

Recipe recipe_from_json(const Json& json, const std::string& where) {
  if (!json.is_object()) throw UserError(where + ": the recipe is not a JSON object");
  Recipe recipe;
  const std::vector<RecipeKey> keys = recipe_keys(recipe);
  for (const RecipeKey& key : keys) read(key, json, where);
  for (const auto& item : json.items()) {
    if (std::none_of(keys.begin(), keys.end(), [&](const RecipeKey& key) { return key.name == item.key(); }))
      throw UserError(fmt::format("{}: the recipe has an unknown key '{}'", where, item.key()));
  }
  return recipe;
}

Json determining_keys(const Recipe& recipe) {
  Recipe copy = recipe;
  Json json = to_json(recipe);
  for (const RecipeKey& key : recipe_keys(copy)) {
    // Among other evaluations is another best.
    const bool determines = (key.group != kRunningGroup && key.group != kDeviceGroup) ||
                            (key.name == "eval-every" && chooses_best(recipe.training));
    if (!determines) json.erase(key.name);
  }
  return json;
}

std::vector<std::string> differences(const Recipe& a, const Recipe& b) {
  const Json left = determining_keys(a), right = determining_keys(b);
  std::vector<std::string> keys;
  for (const auto& [key, value] : left.items()) {
    if (right.contains(key) && value != right.at(key)) keys.push_back(key);
  }
  return keys;
}

}  // namespace lowtide
