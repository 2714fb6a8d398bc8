#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/data/split.h"
#include "lowtide/schedule/bits.h"

// The lines of metrics.jsonl, whose contract is docs/run-folder.md.

namespace lowtide {

// In every line; and in those of evaluations alone.
constexpr const char *kStepKey = "step", *kSplitKey = "split";
// The forward bits of what a line tells of.
constexpr const char* kBitsKey = "bits";

// Of training, over the steps since the line before.
struct TrainingLine {
  std::int64_t step = 0;  // steps done
  double loss = 0;
  double rate = 0;  // of the last step, as the bits are
  Bits bits{};
  double relative_cost = 0, gbitops_paper = 0, gbitops_actual = 0;  // of the run so far
  double items_per_second = 0;
  double seconds = 0;  // of the run so far
  std::string metric_name{};
  std::optional<double> metric{};
};

// Of an evaluation.
struct EvaluationLine {
  std::int64_t step = 0;
  Split split = Split::kValid;
  std::string metric_name{};
  double metric = 0, loss = 0;
  int bits = 0;
  double seconds = 0;
  Json also = Json::object();  // further figures, by name
  bool is_final = false;       // after the last step
};

// Of a layer, by the batch of the last step. What is not known is not there: noise of what is not quantised, the error's where
// it has a range for each position.
struct LayerFigures {
  std::string layer{};
  // Signal to quantisation noise, in decibels.
  std::optional<double> weight_snr{}, activation_snr{}, error_snr{};
  // Share of the input's values outside the running range, by which an evaluation quantises.
  std::optional<double> clipped{};
  std::optional<double> sensitivity{};
  std::optional<int> bits{};  // that it had in the steps up to this one, where a schedule has them apart
};

struct LayersLine {
  std::int64_t step = 0;
  std::vector<LayerFigures> layers{};
  double took = 0;                    // seconds that it took to measure them, if they were
  std::optional<double> step_took{};  // where that was a step: of the one before it, which was not looked at
  double seconds = 0;
};
// As the split of such a line; and what follows a layer's name and a dot where its bits are told.
constexpr const char *kLayersSplit = "layers", *kLayerBitsKey = "bits";

// Of what a closed loop was told after a step, and what it made of it.
struct ProbeLine {
  std::int64_t step = 0;
  int coarse_bits = 0;
  double coarse_loss = 0, fine_loss = 0;  // at these bits, and at one more
  int bits = 0;                           // of the next step
  double took = 0;                        // seconds of the probe
  double seconds = 0;
};
// As the split of such a line.
constexpr const char* kProbeSplit = "probe";

Json to_json(const TrainingLine& line);
Json to_json(const EvaluationLine& line);
Json to_json(const LayersLine& line);
Json to_json(const ProbeLine& line);

// Whether a line of training has this key whatever its task: any other is the task's metric.
bool is_training_key(const std::string& key);

// A line that was read, also one of another program: what it lacks is not there, and what is unknown is among the figures.
struct LoggedLine {
  std::optional<std::int64_t> step{};
  std::string split{};  // empty: of training
  std::optional<double> seconds{};
  bool is_final = false;
  Json values{};  // all of them, by key

  std::optional<double> figure(const std::string& key) const;
};

// UserError, beginning with `name`, for a step that is not a whole number.
LoggedLine logged_line(const Json& json, const std::string& name);
std::vector<LoggedLine> read_logged_lines(const std::filesystem::path& file);
// The last whole line, read from the file's end. Nothing where there is none.
std::optional<LoggedLine> last_logged_line(const std::filesystem::path& file);

}  // namespace lowtide
