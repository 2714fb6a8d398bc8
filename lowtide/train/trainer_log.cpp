#include <fmt/format.h>

#include "lowtide/cost/summary.h"
#include "lowtide/train/layer_statistics.h"
#include "lowtide/train/trainer.h"

// The lines that a run tells of itself, on the terminal and in its folder.

namespace lowtide {

Trainer::Totals Trainer::Totals::plus(const Totals& other, int sign) const {
  return {loss + sign * other.loss, correct + sign * other.correct, steps + sign * other.steps,
          items + sign * other.items, judged + sign * other.judged};
}

Trainer::Totals Trainer::read_sums() const {
  return {sums_.loss.item<double>(), sums_.correct.item<double>(), sums_.steps, sums_.items, sums_.judged};
}

ProgressLine Trainer::line_of(const Totals& since, double seconds) const {
  const auto steps = static_cast<double>(since.steps);
  ProgressLine line;
  line.step = step_;
  line.loss = since.loss / steps;
  line.metric = task_->training_metric(line.loss, since.correct / static_cast<double>(since.judged));
  line.bits = task_->execution().bits;
  line.rate = rate_.at(step_ - 1);
  line.items_per_second = static_cast<double>(since.items) / seconds;
  line.seconds_per_step = seconds / steps;
  line.relative_cost = relative_cost(ledger_.actual(), ledger_.macs());
  return line;
}

// Of the steps since the line before, whatever was logged in between.
void Trainer::show_progress() {
  stop_if_not_finite();
  const Clock::time_point now = Clock::now();
  const Totals all = logged_.plus(read_sums(), 1);
  progress_.update(line_of(all.plus(shown_, -1), seconds_between(last_shown_, now)));
  shown_ = all;
  last_shown_ = now;
}

void Trainer::log_metrics() {
  stop_if_not_finite();
  const Clock::time_point now = Clock::now();
  const Totals since = read_sums();
  const ProgressLine line = line_of(since, seconds_between(last_log_, now));
  const BitOperations paper = ledger_.paper(), actual = ledger_.actual();
  if (writes())
    run_folder_->log(TrainingLine{.step = step_,
                                  .loss = line.loss,
                                  .rate = line.rate,
                                  .bits = line.bits,
                                  .relative_cost = relative_cost(paper, ledger_.macs()),
                                  .gbitops_paper = gbitops(paper.total()),
                                  .gbitops_actual = gbitops(actual.total()),
                                  .items_per_second = line.items_per_second,
                                  .seconds = seconds(),
                                  .metric_name = task_->metric_name(),
                                  .metric = line.metric});
  logged_ = logged_.plus(since, 1);
  sums_.loss.zero_();
  sums_.correct.zero_();
  sums_.steps = sums_.items = sums_.judged = 0;
  last_log_ = now;
}

// Of the batch; of its last shard, where it has several: the last rank has that, however many there are.
void Trainer::log_layers() {
  stop_if_not_finite();
  const Clock::time_point before = Clock::now();
  std::string figures;
  if (ranks_->rank() == ranks_->size() - 1) {
    LayersLine line{.step = step_, .layers = layer_statistics(*task_, rate_.at(step_ - 1), items_of_loss())};
    line.took = seconds_between(before, Clock::now());
    line.seconds = seconds();
    figures = to_json(line).dump();
  }
  figures = ranks_->gather(figures).back();
  if (writes()) run_folder_->log_layers(Json::parse(figures));
  leave_out_of_speed(Clock::now() - before);
}

// What a closed loop took to decide.
void Trainer::note_loop_time() {
  const double all = seconds_between(started_, Clock::now());
  const auto note = [&](const LoopTime& time, const char* before, const char* after) {
    if (time.count == 0) return;
    const double took =
        std::max(0.0, time.seconds);  // a step without may have taken longer than one with a look
    progress_.note(fmt::format("{} {} took {:.2f} s{}, {:.1f} % of the time", time.count, before, took, after,
                               100 * took / all));
  };
  note(looks_, "looks at the layers", " more than steps without");
  note(probes_, "probes", "");
}

Evaluation Trainer::evaluate_and_log(Split split, bool is_final) {
  const Clock::time_point before = Clock::now();
  Evaluation evaluation = task_->evaluate(split, eval_bits_);
  if (is_final || step_ < total_)  // the last step's is told as the final one
    progress_.note(fmt::format("step {}  {} {} {}  loss {:.4f}  at {}", step_, split_name(split),
                               metric_.name, metric_text(metric_, evaluation.metric), evaluation.loss,
                               bits_name(eval_bits_.forward)));
  if (writes())
    run_folder_->log(EvaluationLine{.step = step_,
                                    .split = split,
                                    .metric_name = task_->metric_name(),
                                    .metric = evaluation.metric,
                                    .loss = evaluation.loss,
                                    .bits = eval_bits_.forward,
                                    .seconds = seconds(),
                                    .also = evaluation.also,
                                    .is_final = is_final});
  leave_out_of_speed(Clock::now() - before);
  return evaluation;
}

// The images a second are those of training.
void Trainer::leave_out_of_speed(Clock::duration spent) {
  last_log_ += spent;
  last_shown_ += spent;
}

double Trainer::seconds() const { return seconds_before_ + seconds_between(started_, Clock::now()); }

}  // namespace lowtide
