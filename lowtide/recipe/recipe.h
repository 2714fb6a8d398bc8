#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/schedule/spec.h"

namespace CLI {
class App;
}

namespace lowtide {

// What an experiment is, in parts: a function takes those that it needs. Each member is a flag of `lowtide train` and a key
// of a recipe file, which a row in keys.cpp names and explains; a flag wins over the file, the file over the default here.

struct DataOptions {
  std::string format = "idx";
  std::string dir;
  std::int64_t validation = 0;
  std::string augment = "none";
  int padding = 4;
  bool flip = false;
  int image_size = 0;
  int resize = 0;
  int max_size = 0;
  std::string train_set = "train";
  std::string test_set = "val";
  std::vector<std::string> classes;
  bool skip_damaged = false;
  std::vector<double> mean, std;
  std::int64_t length = 35;
  std::string tokens = "words";
  std::int64_t min_count = 1;
  std::vector<std::string> columns;
  std::string vocabulary;
  bool lower_case = false;
  std::string language = "en";
  std::string test_language;
  bool undirected = true;
  std::string node_features = "as-is";
  std::string node_split = "data";
  std::vector<int> fan_out;
};

struct ModelOptions {
  std::string name = "cifar-resnet8";
  std::int64_t hidden = 200;
  std::int64_t layers = 1;
  std::int64_t heads = 4;
  std::int64_t feed_forward = 0;
  double dropout = 0;
  double input_dropout = 0;
  std::string norm = "tensor";
  std::string aggregation = "fp32";
  bool quantize_norm = false;
  bool freeze_norm = true;
  std::string weights;

  std::int64_t feed_forward_units() const { return feed_forward > 0 ? feed_forward : 4 * hidden; }
};

struct PrecisionOptions {
  std::string schedule = "CR";
  std::string bits = "3:8";
  std::string grad_bits = "8";
  std::int64_t cycles = 8;
  double k = ProfileParameters{}.k;
  double c = ProfileParameters{}.c;
  int eval_bits = -1;
  std::vector<std::string> layer_bits;
  std::string grad_rounding = "stochastic";
  bool bifurcate = false;
  bool recompute = false;
  std::string engine = "auto";
};

struct TrainingOptions {
  std::int64_t steps = 0;
  double epochs = 0;
  std::int64_t batch = 128;
  std::int64_t shards = 1;
  std::string optimizer = "sgd";
  double lr = 0.1;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  std::vector<std::string> decay_layers;
  std::vector<double> betas{0.9, 0.999};
  double clip = 0;
  std::string lr_schedule = "steps";
  std::vector<double> lr_steps{0.5, 0.75};
  double lr_gamma = 0.1;
  double lr_final = 0;
  std::int64_t lr_delay = 0;
  std::int64_t plateau_every = 0;
  std::int64_t warmup = 0;
  double swa_start = 1;
  std::int64_t swa_every = 100;
  bool keep_best = false;
  std::int64_t patience = 0;
  std::uint64_t seed = 1;

  // Whether two runs are to make as many steps.
  bool same_length(const TrainingOptions& other) const {
    return steps == other.steps && epochs == other.epochs;
  }
};

// How it runs.
struct RunningOptions {
  // What rounds floats. A run may go on with others, and then is not the one that was never interrupted.
  std::string device = "cpu";
  bool tf32 = false;

  // None of these changes a result, but eval_every where a run chooses by its evaluations.
  std::int64_t ranks = 1;
  static constexpr int kMostThreads = 1024;
  int threads = 0;
  int loader_threads = 0;
  double gpu_memory = 1;  // share of all of it
  std::int64_t log_every = 100;
  std::int64_t layer_stats = 0;
  std::int64_t eval_every = 1000;
  std::int64_t checkpoint_every = 1000;
  int keep_checkpoints = 3;
};

struct Recipe {
  DataOptions data;
  ModelOptions model;
  PrecisionOptions precision;
  TrainingOptions training;
  RunningOptions running;
};

// What is trained for: the format of the data says it.
enum class TaskKind { kImages, kLanguage, kNodes, kDetection, kEntailment };

// UserError for a format that is unknown.
TaskKind task_of(const DataOptions& data);

// Whether a run looks for its best evaluation: to keep those weights, or to stop where none is better.
bool chooses_best(const TrainingOptions& training);

// The schedule that is asked for: `schedule` is a name, completed by bits, gradient bits, cycles and the profiles'
// parameters, or a whole line, which then says all of it.
ScheduleSpec schedule_of(const PrecisionOptions& precision);

// The bits at which a model is evaluated.
Bits evaluation_bits(const PrecisionOptions& precision);

// Adds every option to the app, in groups; --help shows the values the recipe holds now as the defaults.
void define_recipe(CLI::App& app, Recipe& recipe);

// Throws UserError for values that cannot be, each with what was expected.
void check(const Recipe& recipe);

// The same of every value by itself: of a recipe that is not whole.
void check_values(const Recipe& recipe);

// All keys and values; and back. Keys that are unknown, or missing although the first run folders had them, are a UserError
// that names `where`.
Json to_json(const Recipe& recipe);
Recipe recipe_from_json(const Json& json, const std::string& where);

// Those keys and values alone that determine the result.
Json determining_keys(const Recipe& recipe);

// The names of those in which two recipes differ: a run is resumed only with none.
std::vector<std::string> differences(const Recipe& a, const Recipe& b);

// As a recipe file that gives the same recipe.
std::string to_toml(const Recipe& recipe);

}  // namespace lowtide
