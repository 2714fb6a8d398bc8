#include <fmt/chrono.h>
#include <pybind11/stl.h>
#include <torch/version.h>

#include <ctime>
#include <limits>
#include <optional>

#include "lowtide/base/error.h"
#include "lowtide/cost/summary.h"
#include "lowtide/io/json_check.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/metric.h"
#include "lowtide/train/run_folder.h"
#include "python/module/bind.h"
#include "python/module/quantization.h"

namespace lowtide::python {
namespace {

namespace py = pybind11;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();  // null in a file

// A run folder that a Python script writes.
class Run {
 public:
  // Begins a run, or goes on after `step` where the folder holds one.
  Run(const std::string& folder, const std::string& about, std::shared_ptr<Quantization> quantization,
      const std::string& metric, std::int64_t step, bool resume)
      : folder_(open(folder, about, step, resume)),
        quantization_(std::move(quantization)),
        metric_(find_metric(metric).name) {
    for (const LoggedLine& line : read_logged_lines(folder_.paths().metrics()))
      seconds_before_ = line.seconds.value_or(seconds_before_);
  }

  double seconds_before() const { return seconds_before_; }

  void log(std::int64_t step, double loss, std::optional<double> metric, std::optional<double> rate,
           std::optional<double> items_per_second, std::pair<int, int> bits, double seconds) {
    const Ledger& ledger = quantization_->ledger();
    const BitOperations paper = ledger.paper(), actual = ledger.actual();
    folder_.log(TrainingLine{.step = step,
                             .loss = loss,
                             .rate = rate.value_or(kUnknown),
                             .bits = {bits.first, bits.second},
                             .relative_cost = relative_cost(paper, ledger.macs()),
                             .gbitops_paper = gbitops(paper.total()),
                             .gbitops_actual = gbitops(actual.total()),
                             .items_per_second = items_per_second.value_or(kUnknown),
                             .seconds = seconds,
                             .metric_name = metric_,
                             .metric = metric});
  }

  void evaluate(std::int64_t step, const std::string& split, double metric, std::optional<double> loss,
                int bits, double seconds, bool is_final) {
    folder_.log(EvaluationLine{.step = step,
                               .split = split == "test" ? Split::kTest : Split::kValid,
                               .metric_name = metric_,
                               .metric = metric,
                               .loss = loss.value_or(kUnknown),
                               .bits = bits,
                               .seconds = seconds,
                               .is_final = is_final});
  }

  // The ledger where reports look for it: in a checkpoint, which has no weights. Those the script saves as it likes.
  void save_ledger(std::int64_t step, std::int64_t total_steps) {
    write_checkpoint(folder_.paths().checkpoint(step), {},
                     {{"format", kCheckpointFormat},
                      {"step", step},
                      {"total_steps", total_steps},
                      {"ledger", quantization_->ledger().state()}});
    folder_.keep_last_checkpoints(1);
  }

  void finish(std::int64_t step, double test, std::optional<double> test_loss, std::optional<double> valid,
              int eval_bits, double seconds) {
    const Ledger& ledger = quantization_->ledger();
    const Count paper = ledger.paper().total(), actual = ledger.actual().total();
    folder_.write_result({.metric = metric_,
                          .valid = valid,
                          .test = {.metric = test, .loss = test_loss},
                          .eval_bits = eval_bits,
                          .relative_cost = relative_cost(ledger.paper(), ledger.macs()),
                          .gbitops_paper = gbitops(paper),
                          .gbitops_actual = gbitops(actual),
                          .bitops = {{"paper", exact_json(paper)}, {"actual", exact_json(actual)}},
                          .seconds = seconds,
                          .steps = step});
  }

 private:
  static RunFolder open(const std::string& folder, const std::string& about, std::int64_t step, bool resume) {
    const RunPaths paths{folder};
    if (file_exists(paths.result())) throw UserError(fmt::format("{}: this run is finished", folder));
    const Json asked = parse_json(about, "what is said of the run", "it is not JSON");
    if (resume && file_exists(paths.run()) && has_begun(paths)) {
      check_same(folder, read_run_file(paths.run()), asked.at("recipe"));
      return RunFolder::resume(folder, step);
    }
    Json run{{"format", kRunFormat}};
    run.update(asked);
    run["torch"] = TORCH_VERSION;
    run["started"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    return RunFolder::create(folder, run);
  }

  // One run has one recipe. Where it runs may be another machine.
  static void check_same(const std::string& folder, const Json& run, const Json& asked) {
    const Json none = Json::object();
    const Json& begun = run.contains("recipe") && run["recipe"].is_object() ? run["recipe"] : none;
    Json keys = begun;
    keys.update(asked);
    for (const auto& [key, value] : keys.items()) {
      if (key == "engine" || key == "device") continue;
      const Json was = begun.value(key, Json()), is = asked.value(key, Json());
      if (was == is) continue;
      throw UserError(
          fmt::format("{}: the run in it has {} {}, and {} is asked for; expected the same, or "
                      "another folder",
                      folder, key, was.dump(), is.dump()));
    }
  }

  RunFolder folder_;
  std::shared_ptr<Quantization> quantization_;
  std::string metric_;
  double seconds_before_ = 0;
};

}  // namespace

void bind_run(py::module_& module) {
  py::class_<Run>(module, "Run")
      .def(py::init<const std::string&, const std::string&, std::shared_ptr<Quantization>, const std::string&,
                    std::int64_t, bool>())
      .def_property_readonly("seconds_before", &Run::seconds_before)
      .def("log", &Run::log)
      .def("evaluate", &Run::evaluate)
      .def("save_ledger", &Run::save_ledger)
      .def("finish", &Run::finish);
}

}  // namespace lowtide::python
