#include "lowtide/train/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/machine_error.h"
#include "lowtide/cost/summary.h"
#include "lowtide/engine/engine.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/schedule/text.h"
#include "lowtide/tasks/chosen_layers.h"
#include "lowtide/tasks/setup.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/signals.h"
#include "lowtide/train/simulated_layers.h"

namespace lowtide {
namespace {

Json run_json(const Recipe& recipe, const ScheduleSpec& spec, const std::string& program) {
  return {{"format", kRunFormat},
          {"recipe", to_json(recipe)},
          {"schedule", to_string(spec)},
          {"seed", recipe.training.seed},
          {"program", program},
          {"torch", TORCH_VERSION},
          {"device", recipe.running.device},
          {"threads", at::get_num_threads()},
          {"started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))}};
}

TestFigures figures_of(const Evaluation& test) { return {test.metric, test.loss, test.also}; }

void broadcast(Ranks& ranks, const NamedTensors& tensors) {
  std::vector<torch::Tensor> values;
  for (const auto& [name, tensor] : tensors) values.push_back(tensor.detach());
  ranks.broadcast(values);
}

// Rank 0 may write for long: the others do not leave before it has.
void wait_for_all(Ranks& ranks) { ranks.gather(std::vector<std::int64_t>{0}); }

Ledger ledger_of(Task& task) {
  Ledger ledger;
  for (const Ledger::Layer& layer : task.layers()) ledger.add_layer(layer.name, layer.macs, layer.precision);
  return ledger;
}

std::vector<std::uint32_t> ids_of(torch::nn::Module& model, const std::vector<Ledger::Layer>& layers) {
  std::map<std::string, std::uint32_t> by_name;
  for (const QuantLayer* layer : quant_layers(model)) by_name.emplace(layer->layer_name(), layer->id());
  std::vector<std::uint32_t> ids;
  for (const Ledger::Layer& layer : layers) ids.push_back(by_name.at(layer.name));
  return ids;
}

// A run keeps the engine that it began with, wherever it is resumed.
Recipe with_engine_chosen(Recipe recipe) {
  recipe.precision.engine = choose_engine(recipe.precision.engine, recipe.running.device);
  return recipe;
}

}  // namespace

Trainer::Trainer(const Recipe& recipe, const std::string& program, std::shared_ptr<Ranks> ranks)
    : recipe_(with_engine_chosen(recipe)),
      program_(program),
      ranks_(std::move(ranks)),
      task_(make_task(recipe_, ranks_)),
      ledger_(ledger_of(*task_)),
      layer_ids_(ids_of(task_->model(), ledger_.layers())),
      spec_(schedule_of(recipe.precision)),
      total_(total_steps(recipe.training, task_->steps_per_epoch())),
      schedule_(make_schedule(spec_, total_, rates_of(recipe.training, total_),
                              layer_sizes(task_->model(), ledger_.layers()))),
      rate_(recipe.training, total_),
      plateau_every_(recipe.training.plateau_every > 0
                         ? recipe.training.plateau_every
                         : std::max<std::int64_t>(1, std::llround(task_->steps_per_epoch()))),
      optimizer_(make_optimizer(recipe.training, task_->model())),
      average_(task_->model(), first_averaged_step(recipe.training, total_), recipe.training.swa_every),
      eval_bits_(evaluation_bits(recipe.precision)),
      metric_(find_metric(task_->metric_name())),
      progress_(total_, metric_, task_->item_name(), /*shown=*/writes()),
      planned_(total_) {
  task_->complete(recipe_);
  check(recipe_);  // what the data gave it too
  if (chooses_best(recipe.training)) {
    if (!task_->has(Split::kValid))
      throw UserError(
          "keep-best and patience choose by items that are held out, and none are; set --validation "
          "(nodes of a graph: --node-split)");
    best_.emplace(metric_, recipe.training.patience);
  }
  if (rate_.is_stateful() && !task_->has(Split::kValid)) {
    throw UserError("lr-schedule is 'plateau', but no items are held out to judge by; set --validation");
  }
  if (spec_.probes() && !task_->can_probe())
    throw UserError(fmt::format(
        "schedule {} asks for the loss of a batch of fixed items, and with --fan-out only a whole graph's is "
        "known; leave out --fan-out, or choose another schedule",
        spec_.name));
  const auto device = task_->model().parameters()[0].device();
  sums_.loss = torch::zeros({}, torch::TensorOptions(torch::kDouble).device(device));
  sums_.correct = torch::zeros({}, torch::TensorOptions(torch::kInt64).device(device));
  halted_ = torch::zeros({}, torch::TensorOptions(torch::kBool).device(device));
  loss_ = torch::zeros({}, torch::TensorOptions(torch::kFloat).device(device));
  if (recipe.training.shards > 1)
    sharded_ = std::make_unique<ShardedStep>(work_of(*task_), ranks_, recipe.training.shards);
  else if (task_->is_capturable() && StepGraph::is_possible(task_->execution(), device))
    graph_ = std::make_unique<StepGraph>(task_->model(), task_->execution(), device);
}

TrainingEnd Trainer::run(const std::filesystem::path& folder, bool resume, std::optional<Lease> lease) {
  const StopSignals signals;
  open_folder(folder, resume, std::move(lease));
  progress_.note(fmt::format("{}: {}, {} steps of {} {}, in {}", recipe_.model.name,
                             shortened(to_string(spec_)), total_, task_->items_per_step(), task_->item_name(),
                             folder.string()));
  progress_.note(task_->describe());
  if (const std::string text = simulated_text(task_->model(), task_->execution()); !text.empty())
    progress_.note(text);
  if (sharded_ && StepGraph::is_possible(task_->execution(), halted_.device()))
    progress_.note("a batch in shards: its steps are launched kernel by kernel, not as one CUDA graph");
  started_ = last_log_ = last_shown_ = Clock::now();
  shown_ = read_sums();  // of a resumed run: not of this process
  task_->model().train();
  try {
    return train(folder);
  } catch (const std::exception& error) {
    const auto what = machine_error(error);
    if (!what) throw;
    progress_.finish();
    throw UserError(fmt::format("{}; at step {}, {}", *what, step_, kept_text()));
  }
}

// To the end, or until a signal.
TrainingEnd Trainer::train(const std::filesystem::path& folder) {
  if (planned_ != total_) begin_extension();
  while (!is_finished()) {
    train_one_step();
    const int signal = ranks_->size() > 1 ? sharded_->agreed_signal() : StopSignals::received();
    // Reading the loss makes the host wait for a device: once a second is seldom enough.
    if (progress_.due() || step_ == total_) show_progress();
    if (due(recipe_.running.log_every) || step_ == total_ || bits_will_change()) log_metrics();
    if (due(recipe_.running.layer_stats)) log_layers();
    if (heard_ || layer_bits_will_change()) log_layer_bits();
    if (step_ < total_ || best_) evaluate_if_due();
    if (stopped_early() && sums_.steps > 0) log_metrics();
    if (due(recipe_.running.checkpoint_every) || is_finished() || is_best() || signal != 0) save_checkpoint();
    if (signal != 0 && !is_finished()) {
      progress_.note(fmt::format("stopped at step {}; continue with: lowtide train --resume {}", step_,
                                 folder.string()));
      wait_for_all(*ranks_);
      return {signal, step_, {}};
    }
  }
  if (step_ < total_)
    progress_.note(
        fmt::format("stopped early at step {}: none of the last {} evaluations was better than step {}'s",
                    step_, best_->since(), best_->step()));
  RunResult result = finish();
  wait_for_all(*ranks_);
  return {0, step_, std::move(result)};
}

void Trainer::open_folder(const std::filesystem::path& folder, bool resume, std::optional<Lease> lease) {
  paths_ = {folder};
  expect_same_recipe();
  if (!writes()) return restore_on_all_ranks(std::nullopt);
  if (!resume || !file_exists(paths_.run()) || !has_begun(paths_)) {
    Json run = run_json(recipe_, spec_, program_);
    if (const Json skipped = task_->skipped(); !skipped.empty()) run["skipped"] = skipped;
    if (const auto names = simulated_layers(task_->model(), task_->execution()); !names.empty())
      run["simulated_layers"] = names;
    run_folder_ = RunFolder::create(folder, run, std::move(lease));
    return restore_on_all_ranks(std::nullopt);
  }
  const std::vector<std::int64_t> steps = checkpoint_steps(paths_);
  if (steps.empty() && file_exists(paths_.result()))
    throw UserError(fmt::format("{} is finished and has no checkpoint left to go on from", folder.string()));
  restore_on_all_ranks(steps.empty() ? std::nullopt : std::optional(steps.back()));
  const Recipe stored = read_run_recipe(paths_);
  run_folder_ = RunFolder::resume(folder, step_, std::move(lease));
  if (!stored.training.same_length(recipe_.training)) run_folder_->change_length(recipe_.training);
  if (const auto former = run_folder_->change_device(recipe_.running, step_))
    progress_.note(
        fmt::format("goes on from step {} on {}, where it had {}: floats are rounded otherwise from here on, "
                    "so the result is not that of a run that was never interrupted",
                    step_, device_name(recipe_.running), *former));
  if (is_best()) save_best();  // the process may have been killed between the two
  for (const LoggedLine& line : read_logged_lines(paths_.metrics()))
    seconds_before_ = line.seconds.value_or(seconds_before_);
}

// The same on all ranks, or they would train different networks, or wait for what the others do not do.
void Trainer::expect_same_recipe() {
  Json keys = determining_keys(recipe_);
  keys["eval-every"] = recipe_.running.eval_every;
  keys["layer-stats"] = recipe_.running.layer_stats;
  const std::vector<std::string> recipes = ranks_->gather(keys.dump());
  const auto other =
      std::find_if(recipes.begin(), recipes.end(), [&](auto& text) { return text != recipes[0]; });
  if (other == recipes.end()) return;
  const auto rank = other - recipes.begin();
  const Json first = Json::parse(recipes[0]), its = Json::parse(*other);
  for (const auto& [key, value] : first.items()) {
    if (value != its.at(key))
      throw UserError(fmt::format("{} is {} on rank 0 and {} on rank {}; start all ranks with one recipe",
                                  key, value.dump(), its.at(key).dump(), rank));
  }
}

// The checkpoint was saved by a run of fewer steps, perhaps after its last, which is not evaluated as others are.
void Trainer::begin_extension() {
  progress_.note(fmt::format("goes on from {} to {} steps", planned_, total_));
  if (step_ == planned_ && !best_) evaluate_if_due();
  save_checkpoint();
}

StepBits Trainer::bits_of_step() const {
  StepBits bits = schedule_->at(step_);
  const std::vector<std::uint8_t> of_layers = schedule_->layers_at(step_);
  for (std::size_t i = 0; i < of_layers.size(); ++i) {
    if (layer_ids_[i] >= bits.layers.size()) bits.layers.resize(layer_ids_[i] + 1);
    bits.layers[layer_ids_[i]] = of_layers[i];
  }
  return bits;
}

void Trainer::train_one_step() {
  const bool is_looked_at = schedule_->looks_at(step_);
  const bool is_measured = is_looked_at || schedule_->looks_at(step_ + 1);
  if (is_measured) stop_if_not_finite();  // the device may be steps behind
  const Clock::time_point before = Clock::now();
  Execution& execution = task_->execution();
  execution.bits = bits_of_step();
  execution.step = step_;
  const double rate = rate_.at(step_);
  if (is_looked_at)
    look_ = std::make_unique<LayerLook>(execution, layer_choices(task_->model(), ledger_.layers()),
                                        ranks_->shards_of(recipe_.training.shards));
  if (!sharded_) task_->draw_batch();
  if (graph_) {
    train_captured(rate);
  } else {
    compute_and_update(rate);
  }
  if (const std::vector<std::uint8_t> of_layers = schedule_->layers_at(step_); !of_layers.empty()) {
    ledger_.add(execution.bits, of_layers, result_.items, result_.macs);
  } else if (result_.macs.empty()) {
    ledger_.add(execution.bits, result_.items);
  } else {
    ledger_.add(execution.bits, result_.items, result_.macs);
  }
  if (schedule_->hears_losses()) schedule_->observe(step_, loss_.item<double>());
  ++sums_.steps;
  sums_.items += result_.items;
  sums_.judged += result_.judged;
  ++step_;
  average_.observe(step_, halted_);
  if (const auto bits = schedule_->probe_after(step_ - 1)) probe(*bits);
  if (!is_measured) return;
  is_looked_at ? tell_layers() : stop_if_not_finite();
  measure(is_looked_at, seconds_between(before, Clock::now()));
}

void Trainer::measure(bool is_looked_at, double took) {
  if (!is_looked_at) {
    step_took_ = took;
    return;
  }
  heard_->took = took;
  heard_->step_took = std::exchange(step_took_, std::nullopt);
  if (!heard_->step_took) return;  // of a run that was resumed here
  ++looks_.count;
  looks_.seconds += took - *heard_->step_took;
}

// As one CUDA graph, or one step of those before; but a step that is looked at is made as it is.
void Trainer::train_captured(double rate) {
  StepResult& of_shape = results_[task_->batch_shape()];
  const StepResult of_graph = of_shape;
  const auto work = [&] {
    compute_and_update(rate);
    of_shape = result_;
  };
  graph_->run(rate, work, task_->batch_shape());
  result_ = of_shape;
  if (look_) of_shape = of_graph;
}

// That the last step's loss is the mean of. Of a graph's nodes only some have a label that is learnt from.
std::int64_t Trainer::items_of_loss() const {
  return result_.judged > 0 ? result_.judged : task_->items_per_step();
}

// Of the step that was looked at; all ranks hear the same.
void Trainer::tell_layers() {
  stop_if_not_finite();
  heard_ = Heard{look_->sensitivities(*ranks_, rate_.at(step_ - 1), items_of_loss()), 0, {}};
  look_.reset();
  schedule_->observe_layers(heard_->sensitivities);
}

// Of as many items as a batch has, the same each time. All ranks compute, and each hears the same.
void Trainer::probe(const Probe& bits) {
  stop_if_not_finite();
  const Clock::time_point before = Clock::now();
  const auto loss_at = [&](Bits at) {
    const MacCounter counter(task_->execution(), ledger_.layers());
    const Evaluation evaluation = task_->probe(at, task_->items_per_step());
    std::vector<std::int64_t> macs(counter.macs().size());
    for (const std::vector<std::int64_t>& of_rank : ranks_->gather(counter.macs())) {
      for (std::size_t i = 0; i < macs.size(); ++i) macs[i] += of_rank[i];
    }
    ledger_.add_probe(at.forward, macs);
    return evaluation.loss;
  };
  const ProbeLosses losses{loss_at(bits.coarse), loss_at(bits.fine)};
  schedule_->observe_probe(losses);
  const double took = seconds_between(before, Clock::now());
  ++probes_.count;
  probes_.seconds += took;
  if (writes())
    run_folder_->log(ProbeLine{.step = step_,
                               .coarse_bits = bits.coarse.forward,
                               .coarse_loss = losses.coarse,
                               .fine_loss = losses.fine,
                               .bits = schedule_->at(step_).forward,
                               .took = took,
                               .seconds = seconds()});
}

// All of a step that the device does: a CUDA graph may hold it.
void Trainer::compute_and_update(double rate) {
  task_->model().zero_grad(/*set_to_none=*/true);
  result_ = sharded_ ? sharded_->run(StopSignals::received()) : task_->compute_step();
  if (look_)
    look_->take_gradients(chosen_weights(task_->model(), ledger_.layers()), task_->model().parameters());
  const torch::Tensor norm = clip_gradients(task_->model().parameters(), recipe_.training.clip);
  halted_.logical_or_(torch::isfinite(norm + result_.loss).logical_not());
  // Elsewhere the host would wait: it asks when it logs. Ranks end together.
  if (halted_.device().is_cpu() || ranks_->size() > 1) stop_if_not_finite();
  optimizer_->step(rate, halted_, graph_ ? graph_->parameters() : nullptr);
  if (schedule_->hears_losses()) loss_.copy_(result_.loss);
  sums_.loss += result_.loss;
  if (result_.correct.defined()) sums_.correct += result_.correct;
}

void Trainer::stop_if_not_finite() {
  if (!halted_.item<bool>()) return;
  progress_.finish();
  throw UserError(fmt::format(
      "training stopped near step {}: {} is not finite; {}. Try a lower --lr, --clip, or more bits", step_,
      task_->find_not_finite(), kept_text()));
}

std::string Trainer::kept_text() const {
  const std::vector<std::int64_t> steps = checkpoint_steps(paths_);
  if (steps.empty()) return "there is no checkpoint yet";
  return paths_.checkpoint(steps.back()).string() + " is the last good one";
}

// The bits that layers had up to this step, and what the schedule heard of them. Those with a rule have it in run.json. Before
// layers have bits of their own, in a delay, all have the step's.
void Trainer::log_layer_bits() {
  const std::vector<std::uint8_t> bits = schedule_->layers_at(step_ - 1);
  const int of_all = schedule_->at(step_ - 1).forward;
  LayersLine line{.step = step_, .took = heard_ ? heard_->took : 0, .seconds = seconds()};
  if (heard_) line.step_took = heard_->step_took;
  for (std::size_t i = 0; i < ledger_.layers().size(); ++i) {
    const Ledger::Layer& layer = ledger_.layers()[i];
    if (layer.precision.kind != LayerPrecision::Kind::kScheduled) continue;
    LayerFigures figures{.layer = layer.name, .bits = bits.empty() ? of_all : bits[i]};
    if (heard_ && std::isfinite(heard_->sensitivities[i])) figures.sensitivity = heard_->sensitivities[i];
    line.layers.push_back(std::move(figures));
  }
  heard_.reset();
  if (writes()) run_folder_->log(line);
}

void Trainer::evaluate_if_due() {
  const bool logs =
      (due(recipe_.running.eval_every) && task_->has(Split::kValid)) || (best_ && step_ == total_);
  if (logs || plateau_is_due()) {
    stop_if_not_finite();
    const Evaluation held_out = evaluate_and_log(Split::kValid, /*is_final=*/false);
    if (plateau_is_due()) rate_.observe(held_out.loss);
    if (best_ && logs) best_->observe(step_, held_out.metric);
  }
}

void Trainer::use_averaged_weights() {
  average_.copy_to_model();
  task_->execution().bits = eval_bits_;
  task_->re_estimate_statistics();
  if (writes()) write_checkpoint(paths_.averaged(), model_tensors(task_->model()), checkpoint_state());
}

RunResult Trainer::finish() {
  progress_.finish();
  note_loop_time();
  if (average_.count() > 0) use_averaged_weights();
  std::optional<double> valid;
  if (task_->has(Split::kValid)) valid = evaluate_and_log(Split::kValid, /*is_final=*/true).metric;
  const TestFigures test = figures_of(evaluate_and_log(Split::kTest, /*is_final=*/true));
  const Count paper = ledger_.paper().total(), actual = ledger_.actual().total();
  RunResult result{.metric = task_->metric_name(),
                   .valid = valid,
                   .test = test,
                   .eval_bits = eval_bits_.forward,
                   .relative_cost = relative_cost(ledger_.paper(), ledger_.macs()),
                   .gbitops_paper = gbitops(paper),
                   .gbitops_actual = gbitops(actual),
                   .bitops = {{"paper", exact_json(paper)}, {"actual", exact_json(actual)}},
                   .averaged = average_.count(),
                   .seconds = seconds(),
                   .steps = step_,
                   .skipped = task_->skipped()};
  if (recipe_.training.patience > 0) result.planned_steps = total_;
  result.looks_for_best = best_.has_value();
  if (best_) result.best = best_result();
  if (writes()) run_folder_->write_result(result);
  return result;
}

// The weights become those of the best evaluation. Without them (someone removed or replaced the file) their test is not
// known.
std::optional<RunResult::Best> Trainer::best_result() {
  if (best_->step() == 0) return std::nullopt;
  RunResult::Best best{.step = best_->step(), .valid = best_->value()};
  const std::filesystem::path path = paths_.best();
  const bool there =
      writes() && file_exists(path) && read_checkpoint_state(path).value("step", Json()) == best_->step();
  if (ranks_->gather(std::vector{std::int64_t{there}})[0][0] == 0) {
    progress_.note(fmt::format("{} is not of step {}, which was the best: its test is not known",
                               path.string(), best_->step()));
    return best;
  }
  if (writes()) read_checkpoint_tensors(path, model_tensors(task_->model()));
  broadcast(*ranks_, model_tensors(task_->model()));
  best.test = figures_of(task_->evaluate(Split::kTest, eval_bits_));
  return best;
}

}  // namespace lowtide
