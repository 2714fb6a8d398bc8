#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "lowtide/cost/ledger.h"
#include "lowtide/recipe/recipe.h"
#include "lowtide/schedule/schedule.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/best_evaluation.h"
#include "lowtide/train/layer_look.h"
#include "lowtide/train/learning_rate.h"
#include "lowtide/train/metric.h"
#include "lowtide/train/optimizer.h"
#include "lowtide/train/progress.h"
#include "lowtide/train/run_folder.h"
#include "lowtide/train/run_length.h"
#include "lowtide/train/sharded_step.h"
#include "lowtide/train/step_graph.h"
#include "lowtide/train/weight_average.h"

namespace lowtide {

struct TrainingEnd {
  int signal = 0;  // 0: the run is finished and this is its result
  std::int64_t step = 0;
  RunResult result;
};

// The training loop of one run (trainer.cpp), its lines (trainer_log.cpp) and its checkpoints (trainer_checkpoint.cpp).
// What it does in step t depends on the recipe and t alone, and all that it carries from one step to the next is in a
// checkpoint: so a resumed run is the run that was never interrupted. Several ranks may train one run: each knows all
// of its state, and rank 0 alone writes it.
class Trainer {
 public:
  // `program` says which program writes the run, for run.json.
  Trainer(const Recipe& recipe, const std::string& program, std::shared_ptr<Ranks> ranks = alone());

  // Trains in `folder` to the end, or until a signal asks a rank to stop; with `resume` from its last checkpoint, whose run may
  // have had fewer steps to make if these are the first of this one. The folder's lease may have been taken before.
  TrainingEnd run(const std::filesystem::path& folder, bool resume,
                  std::optional<Lease> lease = std::nullopt);

 private:
  // What was summed since the last line of metrics.
  struct Sums {
    torch::Tensor loss, correct;  // on the device
    std::int64_t steps = 0, items = 0, judged = 0;
  };
  // The same on the host.
  struct Totals {
    double loss = 0, correct = 0;
    std::int64_t steps = 0, items = 0, judged = 0;

    Totals plus(const Totals& other, int sign) const;
  };

  using Clock = std::chrono::steady_clock;

  static double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }

  TrainingEnd train(const std::filesystem::path& folder);

  // What a schedule heard of layers after a step.
  struct Heard {
    std::vector<double> sensitivities;
    double took = 0;                  // seconds of the step and of what was decided
    std::optional<double> step_took;  // of the step before it
  };

  // What a schedule's looks took, over steps without; or its probes.
  struct LoopTime {
    int count = 0;
    double seconds = 0;
  };

  void open_folder(const std::filesystem::path& folder, bool resume, std::optional<Lease> lease);
  void expect_same_recipe();
  void restore_on_all_ranks(std::optional<std::int64_t> step);
  bool writes() const { return ranks_->is_first(); }
  StepBits bits_of_step() const;
  void train_one_step();
  void train_captured(double rate);
  void compute_and_update(double rate);
  void probe(const Probe& bits);
  std::int64_t items_of_loss() const;
  void tell_layers();
  void measure(bool is_looked_at, double took);
  void stop_if_not_finite();
  std::string kept_text() const;
  Totals read_sums() const;
  ProgressLine line_of(const Totals& since, double seconds) const;
  void show_progress();
  void log_metrics();
  void log_layers();
  void log_layer_bits();
  void note_loop_time();
  void evaluate_if_due();
  Evaluation evaluate_and_log(Split split, bool is_final);
  void save_checkpoint();
  void save_best();
  void check_recipe(const Json& state);
  void restore_state(const Json& state);
  Json read_state(const std::filesystem::path& path) const;
  void restore_checkpoint(const std::filesystem::path& path);
  void begin_extension();
  Json checkpoint_state() const;
  NamedTensors checkpoint_tensors() const;
  RunResult finish();
  std::optional<RunResult::Best> best_result();
  void use_averaged_weights();
  bool due(std::int64_t every) const { return every > 0 && step_ % every == 0; }
  // A closed loop's bits are known from the lines alone: so a line ends where they do.
  bool bits_will_change() const {
    return schedule_->is_stateful() && schedule_->at(step_) != schedule_->at(step_ - 1);
  }
  bool layer_bits_will_change() const {
    const std::vector<std::uint8_t> bits = schedule_->layers_at(step_ - 1);
    return bits != schedule_->layers_at(step_) || (step_ == total_ && !bits.empty());
  }
  bool stopped_early() const { return best_ && best_->out_of_patience(); }
  bool is_finished() const { return step_ == total_ || stopped_early(); }
  bool is_best() const { return best_ && step_ > 0 && best_->step() == step_; }
  bool plateau_is_due() const { return rate_.is_stateful() && due(plateau_every_); }
  double seconds() const;
  void leave_out_of_speed(Clock::duration spent);

  Recipe recipe_;
  std::string program_;
  std::shared_ptr<Ranks> ranks_;
  std::unique_ptr<Task> task_;
  Ledger ledger_;
  std::vector<std::uint32_t> layer_ids_;  // of the ledger's layers
  ScheduleSpec spec_;
  std::int64_t total_;
  std::unique_ptr<Schedule> schedule_;
  LearningRate rate_;
  std::int64_t plateau_every_;
  std::unique_ptr<Optimizer> optimizer_;
  WeightAverage average_;
  Bits eval_bits_;
  const Metric& metric_;
  std::optional<BestEvaluation> best_;  // where the recipe asks for it
  Progress progress_;

  std::int64_t step_ = 0;  // steps done
  std::int64_t planned_;   // steps of the run, when the checkpoint was saved that this one began from
  StepResult result_;      // of the last step; a replay has the numbers of the step that was captured
  std::map<std::int64_t, StepResult> results_;  // by the shape of the batch, where steps are captured
  torch::Tensor loss_;  // of the last step, for a schedule that listens: one number, whichever graph ran
  std::unique_ptr<ShardedStep> sharded_;  // where a batch has more than one shard
  std::unique_ptr<StepGraph> graph_;      // where steps can be captured
  std::unique_ptr<LayerLook> look_;       // while a step is made that the schedule wants to hear of
  std::optional<Heard> heard_;            // of it, until it is logged
  std::optional<double> step_took_;       // seconds of a step that one comes after which is looked at
  LoopTime looks_, probes_;               // since the process began
  Sums sums_;
  Totals logged_, shown_;  // since the process began: in lines of metrics; and in lines of progress
  torch::Tensor
      halted_;  // one bool on the device: a loss or gradient was not finite, and nothing is updated since
  RunPaths paths_;
  std::optional<RunFolder> run_folder_;  // where this rank writes
  double seconds_before_ = 0;            // of earlier processes
  Clock::time_point started_, last_log_, last_shown_;
};

}  // namespace lowtide
