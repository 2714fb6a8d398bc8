#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lowtide/schedule/plot.h"
#include "lowtide/study/analysis.h"
#include "lowtide/study/bar_chart.h"
#include "lowtide/study/equal_cost.h"
#include "lowtide/study/text_parts.h"
#include "lowtide/train/progress.h"

namespace lowtide {
namespace {

std::string batch_text(const Recipe& recipe) {
  const bool is_whole_graph = task_of(recipe.data) == TaskKind::kNodes && recipe.data.fan_out.empty();
  return is_whole_graph ? "the whole graph" : fmt::format("{}", recipe.training.batch);
}

std::string title(const Analysis& analysis) {
  const Study& study = analysis.study;
  const std::string what = study.kind == Study::kSuite    ? "Schedule suite"
                           : study.kind == Study::kBudget ? "Equal cost"
                           : study.window > 0             ? "Critical periods: windows"
                                                          : "Critical periods: deficits";
  const std::string trained = study.command.empty()
                                  ? fmt::format("{}, {} steps of {}", study.recipe.model.name,
                                                study.recipe.training.steps, batch_text(study.recipe))
                                  : fmt::format("`{}`, {} steps", study.command, study.recipe.training.steps);
  return fmt::format("# {}\n\n{}, bits {}, gradient bits {}, {} seed{}; {} {}{}, {} is better.\n\n", what,
                     trained, study.recipe.precision.bits, study.recipe.precision.grad_bits, study.seeds,
                     study.seeds == 1 ? "" : "s", analysis.split, analysis.metric->name,
                     analysis.weights == Weights::kBest ? " of each run's best weights" : "",
                     analysis.metric->higher_is_better ? "higher" : "lower");
}

std::string percent_text(const std::optional<double>& fraction) {
  return fraction ? fmt::format("{:.1f} %", 100 * *fraction) : "";
}

std::string suite_table(const Analysis& analysis) {
  const Metric& metric = *analysis.metric;
  const auto [count, axis] = analysis.measure;
  const bool timed = axis == CostAxis::kTime;
  std::string text = fmt::format(
      "| schedule | group | GBitOps, {} | cost | saving |{} {}{} | seeds | front | difference | 95 % | p |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|{}\n",
      to_string(count), timed ? " time |" : "", metric.name, unit_of(metric), timed ? "---|" : "");
  for (const Setting& setting : analysis.settings) {
    text += fmt::format(
        "| {} | {} | {:.1f} | {:.4f} | {} |{} {} | {} | {} | {} |\n", setting.name, setting.group,
        setting.cost.gbitops(count), setting.cost.relative(count), percent_text(setting.saving),
        timed ? fmt::format(" {} |", duration_text(setting.cost.seconds)) : "", mean_text(metric, setting),
        setting.by_seed.size(), setting.on_front ? "yes" : "", contrast_cells(metric, setting));
  }
  text += fmt::format(
      "\nGBitOps of the whole run, {0}: {1}. Cost: the same relative to fp32. Saving: against static at the "
      "highest bits that occur. Front: by {2}, none is both as cheap and as good.\n",
      to_string(count), count_meaning(count), measure_name(analysis.measure));
  return text + test_note(analysis);
}

std::string correlation_line(const char* name, const Correlation& correlation, const char* variance,
                             const Metric& metric) {
  if (!correlation.interval) {
    return fmt::format("- {} {:.2f}, no interval: that takes four settings and |r| below 1\n", name,
                       correlation.r);
  }
  const auto [low, high] = *correlation.interval;
  const bool better = (correlation.r > 0) == metric.higher_is_better;
  return fmt::format("- {} {:.2f}, 95 % [{:.2f}, {:.2f}] by Fisher's z, variance {}: {}\n", name,
                     correlation.r, low, high, variance,
                     low * high <= 0 ? "not told from none"
                     : better        ? "dearer is better"
                                     : "dearer is worse");
}

std::string correlations(const Analysis& analysis) {
  const CostCorrelation& correlation = analysis.correlation;
  if (!correlation.rank || !correlation.linear) return "";
  return fmt::format("## Cost and {}\nBy {}, over {} quantised schedules, each the mean of its seeds:\n",
                     analysis.metric->name, measure_name(analysis.measure), correlation.settings) +
         correlation_line("rank (Spearman)", *correlation.rank, "(1 + r²/2)/(n - 3), Bonett and Wright",
                          *analysis.metric) +
         correlation_line("linear (Pearson)", *correlation.linear, "1/(n - 3)", *analysis.metric) + "\n";
}

std::string groups_table(const Analysis& analysis) {
  if (analysis.groups.empty()) return "";
  std::string text = fmt::format("## By saving\n| group | schedules | saving | {}{} |\n|---|---|---|---|\n",
                                 analysis.metric->name, unit_of(*analysis.metric));
  for (const SavingGroup& group : analysis.groups) {
    text += fmt::format("| {} | {} | {} | {} |\n", group.name, fmt::join(group.settings, ", "),
                        percent_text(group.saving), metric_number(*analysis.metric, group.mean));
  }
  return text + "\n";
}

std::string winners_list(const Analysis& analysis) {
  if (analysis.reference.empty()) return "`static` has no result: nothing to beat.\n\n";
  std::string text = "## Better than static at less cost\n";
  const Setting* reference = find_setting(analysis, analysis.reference);
  for (const Setting* setting : winners(analysis)) {
    const Contrast& contrast = *setting->contrast;
    text += fmt::format("- {}: {} at {:.1f} % of its {}; {}\n", setting->name,
                        metric_difference(*analysis.metric, contrast.difference),
                        100 * setting->cost.total(analysis.measure) / reference->cost.total(analysis.measure),
                        measure_name(analysis.measure), verdict(contrast, setting->by_seed.size()));
  }
  return text + (winners(analysis).empty() ? "None.\n\n" : "\n");
}

// Of windows that last to the end.
std::string end_note(const Analysis& analysis) {
  const auto is_last = [&](const Setting& setting) { return ends_at_other_bits(analysis, setting); };
  const auto last = std::find_if(analysis.settings.begin(), analysis.settings.end(), is_last);
  if (last == analysis.settings.end()) return "";
  return fmt::format(
      "To the end: the window ends with training, at {}, and the network is judged at {}, which it never saw "
      "again. Its difference tells of that change of bits, not of damage that lasts.\n\n",
      bits_name(last->schedule.bits.low), bits_name(judged_bits(analysis, *last)));
}

std::string critical_table(const Analysis& analysis) {
  const Metric& metric = *analysis.metric;
  const bool windows = analysis.study.window > 0;
  std::string text = fmt::format("| {} | {}{} | seeds | difference | 95 % | p |\n|---|---|---|---|---|---|\n",
                                 windows ? "window from" : "deficit", metric.name, unit_of(metric));
  std::vector<Bar> bars;
  for (const Setting& setting : analysis.settings) {
    std::string at = setting.at ? fmt::format("{}", *setting.at) : "none";
    if (ends_at_other_bits(analysis, setting)) at += " to the end";
    text += fmt::format("| {} | {} | {} | {} |\n", at, mean_text(metric, setting), setting.by_seed.size(),
                        contrast_cells(metric, setting));
    if (!setting.contrast) continue;
    const double difference = setting.contrast->difference;
    bars.push_back(
        {at, metric.higher_is_better ? -difference : difference, metric_difference(metric, difference)});
  }
  text += '\n' + test_note(analysis) + end_note(analysis);
  if (bars.empty()) return text;
  return text + fmt::format("Lost for good, by the deficit's {}:\n\n", windows ? "start" : "length") +
         "```\n" + bar_chart(bars, 0, Charset::kUtf8) + "```\n\n";
}

std::string critical_finding(const Analysis& analysis) {
  const bool windows = analysis.study.window > 0;
  if (!analysis.period) {
    const bool damage = std::any_of(analysis.settings.begin(), analysis.settings.end(),
                                    [&](const Setting& setting) { return does_damage(analysis, setting); });
    if (windows && damage)
      return "No critical period: early windows do no more damage than late ones, which have less time to "
             "recover.\n\n";
    const bool too_few = analysis.resolution && analysis.resolution->seeds < kFewestSeeds;
    if (too_few) return "Whether low precision does damage that lasts, so few seeds cannot tell.\n\n";
    return fmt::format("No {} did damage that is told from the noise of seeds.\n\n",
                       windows ? "window" : "deficit");
  }
  const CriticalPeriod& period = *analysis.period;
  const std::string lost = metric_difference(*analysis.metric, period.difference);
  return windows
             ? fmt::format(
                   "Critical period: up to step {}. Low precision there does damage that lasts ({} in the "
                   "last "
                   "such window).\n\n",
                   period.steps, lost)
             : fmt::format(
                   "Critical period: low precision in the first {} steps does damage that lasts ({}).\n\n",
                   period.steps, lost);
}

std::string missing_list(const Analysis& analysis) {
  if (analysis.missing.empty()) return "";
  std::string text = "## Not counted\n";
  for (const SkippedFolder& skipped : analysis.missing)
    text += fmt::format("- {}: {}\n", skipped.folder.string(), skipped.reason);
  return text;
}

// The schedule's line; of a loop's bits alone, of which each seed has a table of its own, whose they are.
std::string schedule_text(const Setting& setting) {
  const std::string line = to_string(setting.schedule);
  const std::optional<std::string> loop = loop_copied_by(setting.way);
  if (!loop) return line;
  return fmt::format("table of the bits of {}, {}", line,
                     setting.way == shuffled_loop(*loop) ? "shuffled" : "of another seed");
}

std::string csv_field(const std::string& text) {
  return text.find(',') == std::string::npos ? text : "\"" + text + "\"";
}

Json interval_json(const std::optional<Interval>& interval) {
  return interval ? Json{interval->low, interval->high} : Json();
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json contrast_json(const Contrast& contrast) {
  return {{"difference", contrast.difference},
          {"test", contrast.test},
          {"interval", interval_json(contrast.interval)},
          {"p", or_null(contrast.p)},
          {"p_unadjusted", or_null(contrast.unadjusted)}};
}

Json ways_json(const std::vector<WayContrast>& ways) {
  Json json = Json::array();
  for (const WayContrast& one : ways)
    json.push_back(
        {{"way", one.way}, {"reference", one.reference}, {"contrast", contrast_json(one.contrast)}});
  return json;
}

Json best_json(const BestOfTen& best) {
  Json picks = Json::object();
  for (const auto& [seed, way] : best.picks) picks[fmt::to_string(seed)] = way;
  return {{"budget", best.budget},
          {"picks", picks},
          {"picked_by", best.split},
          {"contrast", best.picks.empty() ? Json() : contrast_json(best.contrast)},
          {"against_it", ways_json(best.ways)}};
}

Json frozen_json(const FrozenWay& frozen) {
  std::vector<WayContrast> ways{frozen.from_reference};
  if (frozen.from_best) ways.push_back(*frozen.from_best);
  return {{"budget", frozen.budget}, {"against", ways_json(ways)}};
}

Json setting_json(const Setting& setting) {
  Json json{{"setting", setting.name},
            {"schedule", schedule_text(setting)},
            {"group", setting.group},
            {"at", or_null(setting.at)},
            {"seeds", Json::object()},
            {"mean", setting.mean},
            {"deviation", or_null(setting.deviation)},
            {"relative_cost", setting.cost.relative_paper},
            {"relative_cost_actual", setting.cost.relative_actual},
            {"gbitops", {{"paper", setting.cost.gbitops_paper}, {"actual", setting.cost.gbitops_actual}}},
            {"seconds", setting.cost.seconds},
            {"saving", or_null(setting.saving)},
            {"on_front", setting.on_front},
            {"contrast", nullptr}};
  for (const auto& [seed, value] : setting.by_seed) json["seeds"][fmt::to_string(seed)] = value;
  if (setting.contrast) json["contrast"] = contrast_json(*setting.contrast);
  return json;
}

Json correlation_json(const std::optional<Correlation>& correlation) {
  return correlation ? Json{{"r", correlation->r}, {"interval", interval_json(correlation->interval)}}
                     : Json();
}

}  // namespace

std::string verdict(const Contrast& contrast, std::size_t seeds) {
  if (!contrast.p)
    return seeds < kFewestSeeds ? "too few seeds to tell it from noise"
                                : "no test: it is the same in every seed";
  return fmt::format("{}told from noise, p {}", *contrast.p < 0.05 ? "" : "not ", p_text(*contrast.p));
}

std::string p_text(double p) { return p < 0.001 ? "< 0.001" : fmt::format("{:.3f}", p); }

std::string to_markdown(const Analysis& analysis) {
  const std::string& kind = analysis.study.kind;
  const std::string body = kind == Study::kSuite ? suite_table(analysis) + correlations(analysis) +
                                                       groups_table(analysis) + winners_list(analysis)
                           : kind == Study::kBudget ? budget_body(analysis)
                                                    : critical_table(analysis) + critical_finding(analysis);
  return title(analysis) + body + missing_list(analysis);
}

std::string to_csv(const Analysis& analysis) {
  const auto optional = [](const auto& value) { return value ? fmt::format("{}", *value) : std::string(); };
  std::string text =
      "setting,schedule,group,at,seeds,mean,deviation,relative_cost,relative_cost_actual,gbitops_paper,"
      "gbitops_actual,seconds,saving,on_front,difference,low,high,p,test,ends_at_other_bits";
  const bool budgets = analysis.study.kind == Study::kBudget;
  text += budgets ? ",budget,way,judged_at\n" : "\n";
  for (const Setting& setting : analysis.settings) {
    const RunCost& cost = setting.cost;
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{}", csv_field(setting.name),
                        csv_field(schedule_text(setting)), setting.group, optional(setting.at),
                        setting.by_seed.size(), setting.mean, optional(setting.deviation),
                        cost.relative_paper, cost.relative_actual, cost.gbitops_paper, cost.gbitops_actual,
                        cost.seconds, optional(setting.saving), setting.on_front ? 1 : 0);
    if (const auto& contrast = setting.contrast) {
      const auto& interval = contrast->interval;
      text += fmt::format(
          ",{},{},{},{},{}", contrast->difference, interval ? fmt::to_string(interval->low) : "",
          interval ? fmt::to_string(interval->high) : "", optional(contrast->p), csv_field(contrast->test));
    } else {
      text += ",,,,,";
    }
    text += analysis.study.window > 0 ? fmt::format(",{:d}", ends_at_other_bits(analysis, setting)) : ",";
    text += budgets ? fmt::format(",{},{},{}\n", optional(setting.budget), csv_field(setting.way),
                                  judged_at_text(setting, " "))
                    : "\n";
  }
  return text;
}

Json to_json(const Analysis& analysis) {
  Json json{{"study", determining_keys(analysis.study)},
            {"metric", analysis.metric->name},
            {"higher_is_better", analysis.metric->higher_is_better},
            {"split", analysis.split},
            {"weights", analysis.weights == Weights::kBest ? "best" : "last"},
            {"count", to_string(analysis.measure.count)},
            {"axis", to_string(analysis.measure.axis)},
            {"reference", analysis.reference},
            {"resolution", nullptr},
            {"settings", Json::array()},
            {"missing", Json::array()}};
  if (const auto& resolution = analysis.resolution)
    json["resolution"] = {{"seeds", resolution->seeds}, {"difference", or_null(resolution->difference)}};
  for (const Setting& setting : analysis.settings) {
    Json one = setting_json(setting);
    if (analysis.study.window > 0) one["ends_at_other_bits"] = ends_at_other_bits(analysis, setting);
    if (analysis.study.kind == Study::kBudget)
      one.update(
          {{"budget", or_null(setting.budget)}, {"way", setting.way}, {"judged_at", setting.judged_at}});
    json["settings"].push_back(one);
  }
  for (const SkippedFolder& skipped : analysis.missing)
    json["missing"].push_back({{"folder", skipped.folder.string()}, {"reason", skipped.reason}});
  if (analysis.study.kind == Study::kCritical) {
    const auto& period = analysis.period;
    json["critical_period"] =
        period ? Json{{"steps", period->steps}, {"difference", period->difference}} : Json();
    return json;
  }
  if (analysis.study.kind == Study::kBudget) {
    json["best_of_ten"] = Json::array();
    for (const BestOfTen& best : analysis.best_of_ten) json["best_of_ten"].push_back(best_json(best));
    json["loops"] = Json::array();
    for (const LoopAndCopies& at : analysis.loops)
      json["loops"].push_back({{"budget", at.budget}, {"against_its_bits", ways_json(at.ways)}});
    json["frozen"] = Json::array();
    for (const FrozenWay& frozen : analysis.frozen) json["frozen"].push_back(frozen_json(frozen));
    json["adjusted_over_studies"] = analysis.studies;
    return json;
  }
  json["correlation"] = {{"settings", analysis.correlation.settings},
                         {"rank", correlation_json(analysis.correlation.rank)},
                         {"linear", correlation_json(analysis.correlation.linear)}};
  json["groups"] = Json::array();
  for (const SavingGroup& group : analysis.groups) {
    json["groups"].push_back({{"group", group.name},
                              {"settings", group.settings},
                              {"saving", or_null(group.saving)},
                              {"mean", group.mean}});
  }
  json["better_than_static"] = Json::array();
  for (const Setting* setting : winners(analysis)) json["better_than_static"].push_back(setting->name);
  return json;
}

}  // namespace lowtide
