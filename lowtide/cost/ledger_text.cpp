#include <fmt/format.h>

#include <algorithm>

#include "lowtide/cost/ledger.h"

namespace lowtide {
namespace {

Json products_json(const BitOperations& count) {
  return {{"forward", exact_json(count.forward)},
          {"error", exact_json(count.error)},
          {"weight_gradient", exact_json(count.weight_gradient)},
          {"total", exact_json(count.total())}};
}

std::string grouped(std::int64_t number) {
  const std::string digits = fmt::format("{}", number);
  std::string result;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) result += ',';
    result += digits[i];
  }
  return result;
}

}  // namespace

Json Ledger::to_json() const {
  Json layers = Json::array();
  for (const Layer& layer : layers_) {
    layers.push_back({{"name", layer.name},
                      {"macs", layer.macs},
                      {"precision", to_string(layer.precision)},
                      {"paper", products_json(paper(layer))},
                      {"actual", products_json(actual(layer))}});
  }
  Json json{{"items", items()},
            {"layers", std::move(layers)},
            {"paper", products_json(paper())},
            {"actual", products_json(actual())},
            {"gbitops", {{"paper", gbitops(paper().total())}, {"actual", gbitops(actual().total())}}}};
  if (!probes_.empty())
    json["probes"] = {{"paper", exact_json(paper_of_probes())}, {"actual", exact_json(actual_of_probes())}};
  return json;
}

std::string Ledger::format_table() const {
  std::size_t name_width = std::string_view("weight gradient").size();
  std::int64_t macs = 0;
  for (const Layer& layer : layers_) {
    name_width = std::max(name_width, layer.name.size());
    macs += layer.macs;
  }
  std::string text;
  const auto row = [&](const auto& name, const std::string& macs_text, const std::string& precision,
                       Count paper_count, Count actual_count) {
    text += fmt::format("{:<{}}  {:>15}  {:<9}  {:>16.3f}  {:>16.3f}\n", name, name_width, macs_text,
                        precision, gbitops(paper_count), gbitops(actual_count));
  };
  text += fmt::format("{:<{}}  {:>15}  {:<9}  {:>16}  {:>16}\n", "layer", name_width, "MACs per item",
                      "runs at", "paper GBitOps", "actual GBitOps");
  const std::string rule(name_width + 2 + 15 + 2 + 9 + 2 + 16 + 2 + 16, '-');
  text += rule + "\n";
  for (const Layer& layer : layers_) {
    row(layer.name, grouped(layer.macs), to_string(layer.precision), paper(layer).total(),
        actual(layer).total());
  }
  text += rule + "\n";
  const BitOperations on_paper = paper();
  const BitOperations in_fact = actual();
  row("forward", "", "", on_paper.forward, in_fact.forward);
  if (!probes_.empty()) row("  of probes", "", "", paper_of_probes(), actual_of_probes());
  row("error", "", "", on_paper.error, in_fact.error);
  row("weight gradient", "", "", on_paper.weight_gradient, in_fact.weight_gradient);
  row("total", grouped(macs), "", on_paper.total(), in_fact.total());
  return text;
}

}  // namespace lowtide
