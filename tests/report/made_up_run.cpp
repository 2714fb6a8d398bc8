#include "tests/report/made_up_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lowtide/base/random.h"
#include "lowtide/cost/ledger.h"
#include "lowtide/io/file.h"
#include "lowtide/io/safetensors.h"
#include "lowtide/recipe/recipe.h"
#include "lowtide/schedule/schedule.h"
#include "lowtide/train/learning_rate.h"
#include "lowtide/train/metrics_line.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {
namespace {

constexpr std::int64_t kBatch = 128;

Recipe recipe_of(const MadeUpRun& run) {
  Recipe recipe;
  recipe.data.dir = "/usr/share/datasets/fashion-mnist";
  recipe.precision.schedule = run.schedule;
  recipe.training.seed = run.seed;
  recipe.training.steps = run.steps;
  recipe.training.batch = kBatch;
  recipe.running.log_every = run.log_every;
  recipe.running.eval_every = run.eval_every;
  recipe.model.name = run.model;
  recipe.training.lr_delay = run.lr_delay;
  recipe.training.plateau_every = run.plateau_every;
  recipe.precision.layer_bits = run.layer_bits;
  recipe.precision.eval_bits = run.eval_bits;
  return recipe;
}

// The layers of a ResNet-8 on images of 28 × 28.
Ledger layers_of_resnet8() {
  Ledger ledger;
  ledger.add_layer("conv1", 112896);
  for (const char* name : {"group1.0.conv1", "group1.0.conv2"}) ledger.add_layer(name, 1806336);
  ledger.add_layer("group2.0.conv1", 903168);
  ledger.add_layer("group2.0.conv2", 1806336);
  ledger.add_layer("group2.0.shortcut", 100352);
  ledger.add_layer("group3.0.conv1", 903168);
  ledger.add_layer("group3.0.conv2", 1806336);
  ledger.add_layer("group3.0.shortcut", 100352);
  ledger.add_layer("classifier", 640, {LayerPrecision::Kind::kFp32, 0});
  return ledger;
}

Ledger make_ledger(const std::vector<std::string>& layer_bits) {
  const LayerRules rules(layer_bits);
  Ledger all = layers_of_resnet8(), ledger;
  for (const Ledger::Layer& layer : all.layers())
    ledger.add_layer(layer.name, layer.macs, rules.match(layer.name, layer.precision));
  return ledger;
}

class Writer {
 public:
  Writer(const std::filesystem::path& folder, const MadeUpRun& run)
      : paths_{folder},
        run_(run),
        schedule_(make_schedule(parse_schedule(run.schedule), run.steps,
                                rates_of(recipe_of(run).training, run.steps))),
        ledger_(make_ledger(run.layer_bits)),
        random_(run.seed, RandomPurpose::kShuffle, std::hash<std::string>{}(run.schedule)) {}

  void write() {
    std::filesystem::create_directories(paths_.checkpoints());
    const Recipe recipe = recipe_of(run_);
    write_json(paths_.run(), {{"format", kRunFormat},
                              {"recipe", to_json(recipe)},
                              {"schedule", to_string(schedule_of(recipe.precision))},
                              {"seed", run_.seed},
                              {"program", "lowtide 0.1.0 (git 0000000)"},
                              {"torch", "1.13.1"},
                              {"device", "cpu"},
                              {"threads", 2},
                              {"started", "2026-01-31T12:00:00Z"}});
    const std::int64_t end = run_.finished ? run_.steps : run_.stopped_at;
    for (std::int64_t step = 1; step <= end; ++step) take_step(step);
    if (run_.finished) finish();
    write_atomically(paths_.metrics(), lines_);
    if (end > 0) write_checkpoint(end);
    if (run_.landscape) write_landscape();
  }

 private:
  static void write_json(const std::filesystem::path& path, const Json& json) {
    write_atomically(path, json.dump(2) + "\n");
  }

  // Of three uniform numbers: close enough to a bell for a made-up loss.
  double noise() { return 2 * (random_.uniform() + random_.uniform() + random_.uniform()) - 3; }

  // Coarse steps lose a little more, and what is lost at the beginning is not all found again.
  double progress(std::int64_t step) const {
    const double done = static_cast<double>(step) / static_cast<double>(run_.steps);
    return 1 - std::exp(-5 * done);
  }

  void take_step(std::int64_t step) {
    bits_ = schedule_->at(step - 1);
    layers_ = schedule_->layers_at(step - 1);
    if (layers_.empty()) {
      ledger_.add(bits_, kBatch);
    } else {
      ledger_.add(bits_, layers_, kBatch, {});
    }
    cost_ += step_cost(bits_);
    const double low = width(bits_.forward) <= 8 ? 8 - width(bits_.forward) : 0;
    damage_ += low / 8 * std::exp(-4.0 * static_cast<double>(step) / static_cast<double>(run_.steps)) /
               static_cast<double>(run_.steps);
    seconds_ += 71'000'000 + random_.below(2'000'000);
    if (schedule_->is_stateful()) schedule_->observe(step - 1, 2.3 - 2.05 * progress(step));
    const bool will_change = schedule_->is_stateful() && schedule_->at(step) != bits_;
    if (step % run_.log_every == 0 || step == run_.steps || will_change) log(step, low);
    if (!layers_.empty() && (step == run_.steps || schedule_->layers_at(step) != layers_))
      log_layer_bits(step);
    if (run_.layer_stats > 0 && step % run_.layer_stats == 0) log_layers(step);
    if (step % run_.eval_every == 0 && step < run_.steps) evaluate(step, "valid", "");
  }

  double accuracy_at(std::int64_t step) const { return 0.1 + 0.82 * progress(step) - 0.12 * damage_; }

  void log(std::int64_t step, double low) {
    const double loss = 2.3 - 2.05 * progress(step) + 0.02 * low + 0.04 * noise();
    const double correct = std::clamp(accuracy_at(step) - 0.012 * low + 0.02 * noise(), 0.0, 1.0);
    const auto items = static_cast<double>(kBatch * run_.log_every);
    const double rate =
        0.05 * (1 + std::cos(M_PI * static_cast<double>(step) / static_cast<double>(run_.steps)));
    const std::string bit_operations =
        run_.old ? ""
                 : fmt::format("\"gbitops_paper\":{},\"gbitops_actual\":{},",
                               gbitops(ledger_.paper().total()), gbitops(ledger_.actual().total()));
    fmt::format_to(std::back_inserter(lines_),
                   "{{\"step\":{},\"loss\":{},\"accuracy\":{},\"lr\":{},\"bits\":{},\"grad_bits\":{},"
                   "\"relative_cost\":{},{}\"items_per_s\":{},\"seconds\":{}}}\n",
                   step, std::max(loss, 0.01), std::round(correct * items) / items, rate, bits_.forward,
                   bits_.backward, relative_cost(), bit_operations, 1750 + 20 * noise(), seconds());
  }

  // The later a layer, the less signal; the classifier is in fp32.
  void log_layers(std::int64_t step) {
    LayersLine line{.step = step, .took = 0.1, .seconds = seconds()};
    for (const Ledger::Layer& layer : ledger_.layers()) {
      LayerFigures figures{.layer = layer.name};
      figures.sensitivity = 0.01 * static_cast<double>(1 + line.layers.size());
      if (layer.precision.kind != LayerPrecision::Kind::kFp32) {
        figures.activation_snr = 6.0 * bits_.forward - static_cast<double>(line.layers.size());
        figures.clipped = 0.5 / static_cast<double>(step);
      }
      line.layers.push_back(figures);
    }
    lines_ += to_json(line).dump() + "\n";
  }

  void log_layer_bits(std::int64_t step) {
    LayersLine line{.step = step, .took = 0, .seconds = seconds()};
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Ledger::Layer& layer = ledger_.layers()[i];
      if (layer.precision.kind == LayerPrecision::Kind::kScheduled)
        line.layers.push_back({.layer = layer.name, .bits = layers_[i]});
    }
    lines_ += to_json(line).dump() + "\n";
  }

  double evaluate(std::int64_t step, const char* split, const char* final) {
    const double accuracy = std::round((accuracy_at(step) + 0.004 * noise()) * 10000) / 10000;
    fmt::format_to(
        std::back_inserter(lines_),
        "{{\"step\":{},\"split\":\"{}\",\"accuracy\":{},\"loss\":{},\"bits\":8,\"seconds\":{}{}}}\n", step,
        split, accuracy, 2.3 - 2.05 * accuracy, seconds(), final);
    return accuracy;
  }

  double seconds() const { return static_cast<double>(seconds_) / 1e9; }

  double relative_cost() const {
    return static_cast<double>(cost_) /
           static_cast<double>(ledger_.items() / kBatch * kRelativeCostDenominator);
  }

  void finish() {
    const double valid = evaluate(run_.steps, "valid", ",\"final\":true");
    const double test = evaluate(run_.steps, "test", ",\"final\":true");
    const Count paper = ledger_.paper().total(), actual = ledger_.actual().total();
    write_json(paths_.result(), {{"metric", "accuracy"},
                                 {"valid", valid},
                                 {"test", test},
                                 {"test_loss", 2.3 - 2.05 * test},
                                 {"eval_bits", 8},
                                 {"relative_cost", relative_cost()},
                                 {"gbitops", {{"paper", gbitops(paper)}, {"actual", gbitops(actual)}}},
                                 {"bitops", {{"paper", exact_json(paper)}, {"actual", exact_json(actual)}}},
                                 {"averaged", 0},
                                 {"seconds", seconds()},
                                 {"steps", run_.steps}});
  }

  void write_checkpoint(std::int64_t step) const {
    const float weight = 1;
    const TensorView tensor{"model.conv1.weight", DType::kF32, {1}, std::as_bytes(std::span(&weight, 1))};
    write_safetensors(
        paths_.checkpoint(step), std::span(&tensor, 1),
        {{"lowtide",
          Json{{"format", 1}, {"step", step}, {"total_steps", run_.steps}, {"ledger", ledger_.state()}}
              .dump()}});
  }

  // A bowl with a ridge, deeper and wider for higher bits.
  void write_landscape() const {
    constexpr int kSide = 25;
    Json axis = Json::array(), loss = Json::array();
    for (int i = 0; i < kSide; ++i) axis.push_back(-1 + 2.0 * i / (kSide - 1));
    for (const Json& y : axis) {
      Json row = Json::array();
      for (const Json& x : axis) {
        const double u = x, v = y;
        row.push_back(0.3 + 3 * (u * u + 0.6 * v * v) +
                      0.35 * std::sin(5 * u + 1.5 * v) * std::sin(5 * u + 1.5 * v));
      }
      loss.push_back(row);
    }
    write_json(paths_.folder / "landscape.json", {{"x", axis}, {"y", axis}, {"loss", loss}});
  }

  RunPaths paths_;
  const MadeUpRun& run_;
  std::unique_ptr<Schedule> schedule_;
  Ledger ledger_;
  RandomStream random_;
  Bits bits_;
  std::vector<std::uint8_t> layers_;  // bits of each, where they have their own
  std::int64_t cost_ = 0;             // sum of step_cost
  double damage_ = 0;                 // what low bits did, the earlier the worse
  std::int64_t seconds_ = 0;          // nanoseconds
  std::string lines_;
};

}  // namespace

void write_run(const std::filesystem::path& folder, const MadeUpRun& run) { Writer(folder, run).write(); }

}  // namespace lowtide
