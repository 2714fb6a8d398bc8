#include "lowtide/schedule/schedule.h"

#include <fmt/format.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/base/json_reason.h"
#include "lowtide/base/whole_number.h"
#include "lowtide/io/json_check.h"
#include "lowtide/recipe/table_file.h"
#include "lowtide/schedule/text.h"
#include "python/module/bind.h"
#include "python/module/quantization.h"

namespace lowtide::python {
namespace {

using BitPair = std::pair<int, int>;
using Models = std::vector<std::shared_ptr<Quantization>>;

BitPair pair(Bits bits) { return {bits.forward, bits.backward}; }

// A schedule laid over so many steps, with its position, and the models that have its bits.
class TrainingSchedule {
 public:
  TrainingSchedule(const std::string& line, std::int64_t steps, const Rates& rates)
      : spec_(parse_schedule(with_tables_read(line))),
        schedule_(make_schedule(spec_, steps, rates)),
        steps_(steps) {}

  std::string line() const { return to_string(spec_); }
  std::int64_t steps() const { return steps_; }
  std::int64_t step_count() const { return step_; }
  BitPair at(std::int64_t step) const { return pair(schedule_->at(step)); }
  BitPair evaluation() const { return pair(spec_.last()); }
  bool is_stateful() const { return schedule_->is_stateful(); }

  void attach(const std::shared_ptr<Quantization>& quantization) {
    expect_trains_here();
    if (spec_.name == "table")  // UserError for bits of another number of layers
      make_schedule(spec_, steps_, {}, std::vector<LayerSize>(quantization->layer_count()));
    models_.push_back(quantization);
    set_bits();
  }

  bool drives(const std::shared_ptr<Quantization>& quantization) const {
    const Models driven = models();
    return std::find(driven.begin(), driven.end(), quantization) != driven.end();
  }

  void step(std::optional<double> loss) {
    expect_trains_here();
    if (is_stateful()) {
      if (!loss)
        throw UserError(fmt::format("schedule '{}' listens to the loss; expected step(loss)", line()));
      schedule_->observe(step_, *loss);
    }
    for (const auto& model : models()) model->end_step();
    ++step_;
    set_bits();
  }

  std::string state() const {
    Json ledgers = Json::array();
    for (const auto& model : models()) ledgers.push_back(model->ledger().state());
    return Json{{"line", line()},
                {"steps", steps_},
                {"step", step_},
                {"schedule", schedule_->state()},
                {"ledgers", std::move(ledgers)}}
        .dump();
  }

  void restore(const std::string& text) {
    const Json state = parse_json(text, "the schedule's state", "it is damaged");
    try {
      restore_from(state);
    } catch (const Json::exception& error) {
      throw UserError(fmt::format("the schedule's state is damaged: {}", json_reason(error)));
    }
  }

 private:
  // Others can be looked at: they tell what they plan.
  void expect_trains_here() const {
    const char* reason = spec_.probes()
                             ? "asks for losses between steps, which `lowtide train` computes for it"
                         : spec_.looks() ? "asks how sensitive layers are, which `lowtide train` tells it"
                                         : nullptr;
    if (reason != nullptr)
      throw UserError(fmt::format(
          "schedule '{}' {}; expected another, such as a table of the bits that such a run's steps had",
          shortened(line()), reason));
  }

  void restore_from(const Json& state) {
    const Json own = Json::parse(this->state());
    for (const char* key : {"line", "steps"}) {
      if (state.at(key) == own.at(key)) continue;
      throw UserError(fmt::format("the state is of a schedule whose {} is {}; expected {}", key,
                                  state.at(key).dump(), own.at(key).dump()));
    }
    const Models attached = models();
    const Json& ledgers = state.at("ledgers");
    if (ledgers.size() != attached.size()) {
      throw UserError(
          fmt::format("the state is of a schedule with {} models, this one has {}; call quantize_ before "
                      "load_state_dict",
                      ledgers.size(), attached.size()));
    }
    const std::int64_t step = whole_number(state, "step", 0, kMostSteps, "the schedule's state");
    schedule_->restore(state.at("schedule"));
    for (std::size_t i = 0; i < attached.size(); ++i) attached[i]->restore_ledger(ledgers[i]);
    step_ = step;
    set_bits();
  }

  // Those that are still there: a model that was restored, or is gone, leaves nothing to count.
  Models models() const {
    Models alive;
    for (const auto& model : models_) {
      if (auto locked = model.lock()) alive.push_back(std::move(locked));
    }
    return alive;
  }

  void set_bits() const {
    StepBits bits = schedule_->at(step_);
    bits.layers = schedule_->layers_at(step_);
    for (const auto& model : models()) model->set_bits(step_, bits, spec_.last());
  }

  ScheduleSpec spec_;
  std::unique_ptr<Schedule> schedule_;
  std::int64_t steps_;
  std::int64_t step_ = 0;
  std::vector<std::weak_ptr<Quantization>> models_;
};

}  // namespace

void bind_schedule(pybind11::module_& module) {
  namespace py = pybind11;
  py::class_<TrainingSchedule>(module, "Schedule")
      .def(py::init<const std::string&, std::int64_t, const Rates&>())
      .def_property_readonly("line", &TrainingSchedule::line)
      .def_property_readonly("steps", &TrainingSchedule::steps)
      .def_property_readonly("step_count", &TrainingSchedule::step_count)
      .def_property_readonly("evaluation", &TrainingSchedule::evaluation)
      .def_property_readonly("is_stateful", &TrainingSchedule::is_stateful)
      .def("at", &TrainingSchedule::at)
      .def("attach", &TrainingSchedule::attach)
      .def("drives", &TrainingSchedule::drives)
      .def("step", &TrainingSchedule::step)
      .def("state", &TrainingSchedule::state)
      .def("restore", &TrainingSchedule::restore);
}

}  // namespace lowtide::python
