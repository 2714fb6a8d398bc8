#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/base/json_reason.h"
#include "lowtide/base/whole_number.h"
#include "lowtide/io/digest.h"
#include "lowtide/io/mapped_file.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/trainer.h"

// What goes from one step to the next, saved and restored.

namespace lowtide {
namespace {

// Of the whole file. Its bytes are read by every rank anyway.
std::string file_digest(const std::filesystem::path& path) {
  const MappedFile file(path);
  const ByteSpan bytes = file.bytes();
  return xxh128({&bytes, 1});
}

// A rank keeps the rows of its shards: those of all, in the batch's order.
void gather_rows(Ranks& ranks, const NamedTensors& tensors) {
  if (ranks.size() == 1) return;
  for (const auto& [name, tensor] : tensors) {
    const std::int64_t rows = tensor.size(0) / ranks.size();
    tensor.copy_(torch::cat(ranks.gather(tensor.narrow(0, ranks.rank() * rows, rows))));
  }
}

}  // namespace

NamedTensors Trainer::checkpoint_tensors() const {
  NamedTensors tensors = model_tensors(task_->model());
  for (const auto& part :
       {with_prefix("optimizer.", optimizer_->tensors()), with_prefix("average.", average_.tensors()),
        with_prefix("task.", task_->carried())}) {
    tensors.insert(tensors.end(), part.begin(), part.end());
  }
  return tensors;
}

// No times, no machine, nothing of how it was run: two runs of one recipe have the same bytes here.
Json Trainer::checkpoint_state() const {
  Json recipe = determining_keys(recipe_);
  if (recipe_.training.shards == 1) recipe.erase("shards");  // the bytes of a run before there were shards
  const Totals since_log = read_sums();
  Json state{{"format", kCheckpointFormat},
             {"step", step_},
             {"total_steps", total_},
             {"recipe", recipe},
             {"schedule", schedule_->state()},
             {"task", task_->state()},
             {"rate", rate_.state()},
             {"optimizer", optimizer_->state()},
             {"average", average_.state()},
             {"ledger", ledger_.state()},
             {"since_log",
              {{"loss", since_log.loss},
               {"correct", since_log.correct},
               {"steps", since_log.steps},
               {"items", since_log.items},
               {"judged", since_log.judged}}}};
  if (best_) state["best"] = best_->state();
  return state;
}

void Trainer::save_checkpoint() {
  stop_if_not_finite();
  gather_rows(*ranks_, task_->carried());
  if (!writes()) return;
  run_folder_->expect_held();
  write_checkpoint(paths_.checkpoint(step_), checkpoint_tensors(), checkpoint_state());
  if (is_best()) save_best();
  run_folder_->keep_last_checkpoints(recipe_.running.keep_checkpoints);
}

void Trainer::save_best() {
  write_checkpoint(paths_.best(), model_tensors(task_->model()), checkpoint_state());
}

// The checkpoint of another recipe would be trained on with this one's learning rate, data or schedule. Its length alone
// may be another: whether the run can go on is asked later.
void Trainer::check_recipe(const Json& state) {
  const Recipe stored = recipe_from_json(state.at("recipe"), "its state");
  const Json was = determining_keys(stored), is = determining_keys(recipe_);
  for (const std::string& key : differences(stored, recipe_)) {
    if (key == "steps" || key == "epochs") continue;
    throw UserError(
        fmt::format("it was written with {} {}, and run.json has {}; mend run.json, or start anew", key,
                    was.at(key).dump(), is.at(key).dump()));
  }
  const bool same_length = stored.training.same_length(recipe_.training);
  planned_ = whole_number(state, "total_steps", same_length ? total_ : 1, same_length ? total_ : kMostCounted,
                          "its state");
}

void Trainer::restore_state(const Json& state) {
  step_ = state.at("step");
  schedule_->restore(state.at("schedule"));
  task_->restore(state.at("task"));
  rate_.restore(state.at("rate"));
  optimizer_->restore(state.at("optimizer"));
  average_.restore(state.at("average"));
  ledger_.restore(state.at("ledger"));
  if (best_) best_->restore(state.at("best"));
  const Json& since_log = state.at("since_log");
  sums_.loss.fill_(since_log.at("loss").get<double>());
  sums_.correct.fill_(since_log.at("correct").get<double>());
  sums_.steps = whole_number(since_log, "steps", 0, step_, "sums since the last line");
  sums_.items = whole_number(since_log, "items", 0, kMostCounted, "sums since the last line");
  sums_.judged = whole_number(since_log, "judged", 0, kMostCounted, "sums since the last line");
}

// The state in the last checkpoint. Where that is damaged the one before it serves, but not unasked: steps would be lost.
Json Trainer::read_state(const std::filesystem::path& path) const {
  try {
    return read_checkpoint_state(path);
  } catch (const UserError& error) {
    std::vector<std::int64_t> before = checkpoint_steps(paths_);
    if (!before.empty()) before.pop_back();
    if (before.empty()) throw;
    throw UserError(
        fmt::format("{}; or remove it, and the run goes on from step {}", error.what(), before.back()));
  }
}

void Trainer::restore_checkpoint(const std::filesystem::path& path) {
  const Json state = read_state(path);
  try {
    check_recipe(state);
    restore_state(state);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", path.string(), error.what()));
  } catch (const Json::exception& error) {
    throw UserError(
        fmt::format("{}: its state is not one of this program ({})", path.string(), json_reason(error)));
  }
  if (planned_ != total_) {
    check_can_extend(recipe_, planned_, total_, step_);
    if (stopped_early())
      throw UserError(fmt::format(
          "the run stopped early, at step {} of {}: with more steps it would have stopped there too", step_,
          planned_));
  }
  read_checkpoint_tensors(path, checkpoint_tensors());
}

// From the checkpoint that rank 0 says; the others know none. Nothing where the run begins.
void Trainer::restore_on_all_ranks(std::optional<std::int64_t> step) {
  step_ = ranks_->gather(std::vector{step.value_or(-1)})[0][0];
  if (step_ < 0) {
    step_ = 0;
    return;
  }
  const std::filesystem::path path = paths_.checkpoint(step_);
  const std::vector<std::string> seen =
      ranks_->gather(writes() || file_exists(path) ? file_digest(path) : "");
  for (std::size_t rank = 1; rank < seen.size(); ++rank) {
    if (seen[rank] != seen[0])
      throw UserError(fmt::format(
          "rank {} sees {} {}, which rank 0 goes on from; ranks need a file system that all of them see",
          rank, seen[rank].empty() ? "no" : "another", path.string()));
  }
  restore_checkpoint(path);
}

}  // namespace lowtide
