#include "lowtide/study/range_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/report/comparison.h"
#include "lowtide/study/bar_chart.h"
#include "lowtide/study/folder.h"
#include "lowtide/train/metric.h"
#include "lowtide/train/metrics_line.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

void check(const RangeTestOptions& options) {
  if (options.window < 1 || options.steps / options.window < 2) {
    throw UserError(fmt::format("{} steps hold fewer than two windows of {}; expected two or more",
                                options.steps, options.window));
  }
  if (!(options.threshold > 0))
    throw UserError(fmt::format("threshold is {}; expected above 0", options.threshold));
}

// Lines of training alone.
std::vector<LoggedLine> training_lines(const fs::path& file) {
  std::vector<LoggedLine> lines = read_logged_lines(file);
  std::erase_if(lines, [](const LoggedLine& line) { return !line.split.empty(); });
  return lines;
}

RangeStep read_step(int bits, const MemberPaths& paths, std::string& key) {
  RangeStep step;
  step.bits = bits;
  const std::string metric = read_run_summary(paths.run.folder).metric;
  const std::vector<LoggedLine> lines = training_lines(paths.run.metrics());
  // The metric where training logs it, else the loss.
  key = !lines.empty() && lines[0].figure(metric) ? metric : "loss";
  if (lines.size() >= 2) {
    step.first = lines.front().figure(key);
    step.last = lines.back().figure(key);
  }
  if (!step.first || !step.last)
    throw UserError(fmt::format("{}: no two lines of training with {}", paths.run.metrics().string(), key));
  const Metric& direction = find_metric(key);
  step.gain = (direction.higher_is_better ? 1 : -1) * (*step.last - *step.first);
  if (!direction.is_fraction) step.gain /= std::abs(*step.first);
  return step;
}

std::string value_text(const RangeTest& test, double value) {
  return metric_text(find_metric(test.metric), value);
}

std::string gain_text(const RangeTest& test, double gain) {
  return find_metric(test.metric).is_fraction ? fmt::format("{:+.2f} points", 100 * gain)
                                              : fmt::format("{:+.2f} %", 100 * gain);
}

std::string choice_text(const RangeTest& test) {
  const std::string threshold = gain_text(test, test.options.threshold);
  if (!test.lowest) {
    return fmt::format(
        "At no number of bits did {} move by {}: try more --test-steps, or a lower --threshold.\n",
        test.metric, threshold);
  }
  const int lowest = *test.lowest;
  const std::string below =
      lowest == kFewestBits ? "fewer cannot be" : fmt::format("with {} or fewer it stays below", lowest - 1);
  return fmt::format("q_min = {}: the first at which training {} moves by more than {} in {} steps; {}.\n",
                     lowest, test.metric, threshold, test.options.steps, below);
}

}  // namespace

RangeTestOptions range_options(const Study& study) {
  return {.steps = study.test_steps, .window = study.window, .threshold = study.threshold};
}

std::vector<Member> range_members(const Recipe& recipe, const RangeTestOptions& options) {
  check(options);
  PrecisionOptions ranges = recipe.precision;
  ranges.schedule = "CR";
  const ScheduleSpec range = schedule_of(ranges);
  std::vector<Member> result;
  for (int bits = kFewestBits; bits <= range.bits.high; ++bits) {
    Member member{fmt::format("bits-{}", bits), fmt::format("{} bits", bits), bits, recipe};
    Recipe& short_run = member.recipe;
    short_run.precision.schedule = fmt::format("static {} grad={}", bits, range.grad.high);
    short_run.training.steps = options.steps / options.window * options.window;  // whole windows
    short_run.running.log_every = options.window;
    short_run.training.lr_schedule = "constant";
    short_run.training.lr_delay = 0;
    short_run.training.swa_start = 1;
    short_run.training.keep_best = false;
    short_run.training.patience = 0;
    short_run.precision.eval_bits = -1;
    short_run.running.eval_every = short_run.running.checkpoint_every = 0;
    lowtide::check(short_run);
    result.push_back(std::move(member));
  }
  return result;
}

RangeTest read_range_test(const std::vector<Member>& members, const fs::path& folder,
                          const RangeTestOptions& options, const std::vector<FailedMember>& failed) {
  RangeTest test{.metric = "", .options = options, .steps = {}, .lowest = {}};
  for (const Member& member : members) {
    const int bits = static_cast<int>(*member.at);
    const auto failure = std::find_if(failed.begin(), failed.end(),
                                      [&](const FailedMember& one) { return one.name == member.name; });
    if (failure != failed.end()) {
      test.steps.push_back({.bits = bits, .first = {}, .last = {}, .failure = failure->reason});
      continue;
    }
    test.steps.push_back(read_step(bits, MemberPaths(folder, member), test.metric));
    if (!test.lowest && test.steps.back().gain > options.threshold) test.lowest = bits;
  }
  if (test.metric.empty())
    throw UserError(fmt::format("no run of the range test trained: {}", failed.at(0).reason));
  return test;
}

std::string to_text(const RangeTest& test, Charset charset) {
  std::vector<Bar> bars;
  for (const RangeStep& step : test.steps) {
    const std::string label = fmt::format("{} bits", step.bits);
    if (step.first) {
      bars.push_back({label, step.gain,
                      fmt::format("{}  ({} to {})", gain_text(test, step.gain), value_text(test, *step.first),
                                  value_text(test, *step.last))});
    } else {
      bars.push_back({label, 0, "failed: " + step.failure});
    }
  }
  return fmt::format("training {}, gained from the first {} steps to the last {} of {}\n\n{}\n{}",
                     test.metric, test.options.window, test.options.window, test.options.steps,
                     bar_chart(bars, test.options.threshold, charset), choice_text(test));
}

Json to_json(const RangeTest& test) {
  Json steps = Json::array();
  for (const RangeStep& step : test.steps) {
    Json json{{"bits", step.bits}};
    if (step.first) {
      json.update({{"first", *step.first}, {"last", *step.last}, {"gain", step.gain}});
    } else {
      json["failure"] = step.failure;
    }
    steps.push_back(std::move(json));
  }
  return {{"metric", test.metric},         {"steps", test.options.steps},
          {"window", test.options.window}, {"threshold", test.options.threshold},
          {"bits", std::move(steps)},      {"q_min", test.lowest ? Json(*test.lowest) : Json()}};
}

}  // namespace lowtide
