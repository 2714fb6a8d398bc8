#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "lowtide/study/equal_cost.h"
#include "lowtide/study/text_parts.h"
#include "lowtide/train/progress.h"

namespace lowtide {
namespace {

// The setting of full cost has no budget.
const Setting* full_cost(const Analysis& analysis) {
  const auto found = std::find_if(analysis.settings.begin(), analysis.settings.end(),
                                  [](const Setting& setting) { return !setting.budget; });
  return found == analysis.settings.end() ? nullptr : &*found;
}

std::string head(const Analysis& analysis) {
  const Metric& metric = *analysis.metric;
  const bool timed = analysis.measure.axis == CostAxis::kTime;
  return fmt::format(
      "| schedule | judged at | GBitOps, {} | of static |{} {}{} | seeds | front | difference | 95 % | p |\n"
      "|---|---|---|---|---|---|---|---|---|---|{}\n",
      to_string(analysis.measure.count), timed ? " time |" : "", metric.name, unit_of(metric),
      timed ? "---|" : "");
}

// A run that is trained for fewer steps costs less, whatever its steps cost: what counts is the whole run's.
std::string row(const Analysis& analysis, const Setting& setting) {
  const CostCount count = analysis.measure.count;
  const Setting* full = full_cost(analysis);
  const bool timed = analysis.measure.axis == CostAxis::kTime;
  return fmt::format("| {} | {} | {:.1f} | {} |{} {} | {} | {} | {} |\n",
                     setting.budget ? setting.way : setting.name, judged_at_text(setting, ", "),
                     setting.cost.gbitops(count),
                     full == nullptr || full->cost.gbitops(count) == 0
                         ? ""
                         : fmt::format("{:.4f}", setting.cost.gbitops(count) / full->cost.gbitops(count)),
                     timed ? fmt::format(" {} |", duration_text(setting.cost.seconds)) : "",
                     mean_text(*analysis.metric, setting), setting.by_seed.size(),
                     setting.on_front ? "yes" : "", contrast_cells(*analysis.metric, setting));
}

std::string tables(const Analysis& analysis) {
  std::string text;
  std::optional<double> budget;
  for (const Setting& setting : analysis.settings) {
    if (&setting == analysis.settings.data() || setting.budget != budget) {
      if (!text.empty()) text += "\n";
      text +=
          setting.budget ? fmt::format("## At {} of static's cost\n", *setting.budget) : "## At full cost\n";
      text += head(analysis);
    }
    budget = setting.budget;
    text += row(analysis, setting);
  }
  return text + "\n";
}

std::string notes(const Analysis& analysis) {
  const CostCount count = analysis.measure.count;
  return fmt::format(
             "The ten, matched, price and waterfill are scaled to the budget. Controls: constant, two "
             "neighbouring numbers of bits, dithered; shorter, {} for that share of the steps; L then H, low "
             "bits first, the "
             "highest last; a loop's own bits (price's without its probes), shuffled in time, and replayed "
             "with "
             "another seed.\n"
             "Judged at: the forward bits of the evaluation, the highest of a way's last steps; of a loop, "
             "and "
             "of its bits replayed, the highest that it may choose; of its bits shuffled those of constant.\n"
             "A budget counts every layer at the scheduled bits. GBitOps of the whole run, {}: {}. Of "
             "static: the same as a share. Front: none of as small a {} is as good.\n",
             to_string(full_cost_schedule(analysis.study.recipe.precision)), to_string(count),
             count_meaning(count), analysis.measure.axis == CostAxis::kTime ? "time" : "budget") +
         (analysis.reference.empty() ? "`constant` has no result: nothing to compare with.\n\n"
                                     : test_note(analysis));
}

// "+0.30 [+0.10, +0.50]: told from noise, p 0.020"
std::string difference_text(const Metric& metric, const Contrast& contrast, std::size_t seeds) {
  return fmt::format("{}{}: {}", metric_difference(metric, contrast.difference),
                     contrast.interval ? fmt::format(" {}", interval_text(metric, *contrast.interval)) : "",
                     verdict(contrast, seeds));
}

// "CR for seeds 1, 3, RR for seed 2"; "CR" where it is the same for all.
std::string picks_text(const BestOfTen& best) {
  std::map<std::string, std::vector<std::uint64_t>> seeds;
  for (const auto& [seed, way] : best.picks) seeds[way].push_back(seed);
  if (seeds.size() == 1) return seeds.begin()->first;
  std::vector<std::string> parts;
  for (const auto& [way, its] : seeds)
    parts.push_back(fmt::format("{} for seed{} {}", way, its.size() == 1 ? "" : "s", fmt::join(its, ", ")));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string best_line(const Analysis& analysis, const BestOfTen& best) {
  if (best.picks.empty()) {
    return fmt::format("- {}: {} shared seed{} cannot pick and test; it takes {}, better ten\n", best.budget,
                       best.seeds.size(), best.seeds.size() == 1 ? "" : "s", kFewestSeeds);
  }
  const Metric& metric = *analysis.metric;
  std::string text = fmt::format("- {}: {}, by {} {} on the other seeds; it differs from constant by {}\n",
                                 best.budget, picks_text(best), best.split, metric.name,
                                 difference_text(metric, best.contrast, best.seeds.size()));
  for (const WayContrast& one : best.ways)
    text += fmt::format("  - {} differs from it by {}\n", one.way,
                        difference_text(metric, one.contrast, one.seeds));
  return text;
}

std::string best_list(const Analysis& analysis) {
  if (analysis.best_of_ten.empty()) return "";
  std::string text = "## The best of the ten, on each seed the best on the others\n";
  for (const BestOfTen& best : analysis.best_of_ten) text += best_line(analysis, best);
  return text +
         "\nEach seed is left out once, and tests what the others picked. The picks share seeds, so these "
         "differences are not quite as independent as the test takes them to be.\n\n";
}

std::string loops_list(const Analysis& analysis) {
  if (analysis.loops.empty()) return "";
  std::string text = "## A loop and its own bits\n";
  for (const LoopAndCopies& at : analysis.loops) {
    for (const WayContrast& one : at.ways)
      text += fmt::format("- {}: {} differs from {} by {}\n", at.budget, one.way, one.reference,
                          difference_text(*analysis.metric, one.contrast, one.seeds));
  }
  return text + "\n";
}

std::string frozen_list(const Analysis& analysis) {
  if (analysis.frozen.empty()) return "";
  const Metric& metric = *analysis.metric;
  std::string text = fmt::format("## {}, frozen beforehand\n", analysis.frozen[0].from_reference.way);
  for (const auto& [budget, from_reference, from_best] : analysis.frozen) {
    text += fmt::format("- {}: differs from {} by {}\n", budget, from_reference.reference,
                        difference_text(metric, from_reference.contrast, from_reference.seeds));
    if (from_best)
      text += fmt::format("  - from {} by {}\n", from_best->reference,
                          difference_text(metric, from_best->contrast, from_best->seeds));
  }
  return text +
         fmt::format(
             "\nHere p is adjusted by Holm for each of the two questions over the budgets in this list{} "
             "alone. That holds for a way, and a budget, that were chosen before these runs.\n\n",
             analysis.studies > 1 ? fmt::format(" and the {} studies", analysis.studies) : "");
}

// What a p of the lists is worth.
std::string family_note(const Analysis& analysis) {
  if (analysis.best_of_ten.empty() && analysis.loops.empty()) return "";
  return fmt::format(
      "In the lists of the best of the ten and of loops p is adjusted by Holm for each question by itself: "
      "whether the best of the ten beats "
      "constant, whether another way beats it, whether a loop beats its own bits; each over all ways and "
      "budgets{}.\n\n",
      analysis.studies > 1 ? fmt::format(" of the {} studies", analysis.studies) : "");
}

}  // namespace

std::string budget_body(const Analysis& analysis) {
  return tables(analysis) + notes(analysis) + frozen_list(analysis) + best_list(analysis) +
         loops_list(analysis) + family_note(analysis);
}

}  // namespace lowtide
