#include "lowtide/schedule/schedule.h"

#include <fmt/format.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <memory>
#include <numeric>
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
using Closure = std::function<double()>;  // the loss of fixed items, by the models as they are

BitPair pair(Bits bits) { return {bits.forward, bits.backward}; }

// A schedule laid over so many steps, with its position, and the models that have its bits.
class TrainingSchedule {
 public:
  TrainingSchedule(const std::string& line, std::int64_t steps, const Rates& rates)
      : spec_(parse_schedule(with_tables_read(line))),
        rates_(rates),
        schedule_(make_schedule(spec_, steps, rates)),
        steps_(steps) {}

  std::string line() const { return to_string(spec_); }
  std::int64_t steps() const { return steps_; }
  std::int64_t step_count() const { return step_; }
  BitPair at(std::int64_t step) const { return pair(schedule_->at(step)); }
  std::vector<int> layers_at(std::int64_t step) const {
    const std::vector<std::uint8_t> bits = schedule_->layers_at(step);
    return {bits.begin(), bits.end()};
  }
  BitPair evaluation() const { return pair(spec_.last()); }
  bool hears_losses() const { return schedule_->hears_losses(); }
  bool looks() const { return spec_.looks(); }

  // `pass`: a forward pass of the model, for a schedule that looks at layers.
  void attach(const std::shared_ptr<Quantization>& quantization, const std::function<void()>& pass) {
    if (spec_.name == "table")  // UserError for bits of another number of layers
      make_schedule(spec_, steps_, {}, std::vector<LayerSize>(quantization->layer_count()));
    if (looks()) {
      if (!models().empty() || step_ > 0)
        throw UserError(fmt::format(
            "schedule '{}' is laid over one model, before the first step; expected one of its own",
            shortened(line())));
      schedule_ = make_schedule(spec_, steps_, rates_, sizes_of(*quantization, pass));
    }
    models_.push_back(quantization);
    set_bits();
  }

  bool drives(const std::shared_ptr<Quantization>& quantization) const {
    const Models driven = models();
    return std::find(driven.begin(), driven.end(), quantization) != driven.end();
  }

  // Between a step's gradients and its update.
  void look(const std::vector<at::Tensor>& parameters, double rate, std::int64_t items) {
    const Models looked = models();
    if (!looks() || looked.empty()) return;
    const bool has_gradient =
        std::any_of(parameters.begin(), parameters.end(),
                    [](const at::Tensor& parameter) { return parameter.grad().defined(); });
    if (!has_gradient)
      throw UserError(
          "look() reads gradients, and no parameter of the model has one; expected it after backward()");
    if (schedule_->looks_at(step_)) sensitivities_ = looked[0]->sensitivities(parameters, rate, items);
    looked_at_ = step_;
  }

  // All that may fail, the closure before all, comes first: a step is made, or it is not.
  void step(std::optional<double> loss, const Closure& closure) {
    expect_told(loss, closure);
    const std::optional<Probe> probe = schedule_->probe_after(step_);
    std::vector<Pass> passes;
    if (probe) {
      for (const Bits bits : {probe->coarse, probe->fine}) passes.push_back(pass_at(bits, closure));
    }
    if (hears_losses()) schedule_->observe(step_, *loss);
    if (schedule_->looks_at(step_)) schedule_->observe_layers(sensitivities_);
    const Models trained = models();
    for (const auto& model : trained) model->end_step();
    for (const Pass& pass : passes) {
      for (std::size_t i = 0; i < trained.size(); ++i) trained[i]->add_probe(pass.bits, pass.macs[i]);
    }
    ++step_;
    if (probe) schedule_->observe_probe({passes[0].loss, passes[1].loss});
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
  // A forward pass that a closed loop decides by.
  struct Pass {
    Bits bits;
    double loss = 0;
    std::vector<std::vector<std::int64_t>> macs;  // by model and layer
  };

  Pass pass_at(Bits bits, const Closure& closure) const {
    const Models probed = models();
    std::vector<std::unique_ptr<Quantization::Probing>> probing;
    for (const auto& model : probed) probing.push_back(std::make_unique<Quantization::Probing>(*model, bits));
    Pass pass{.bits = bits, .loss = closure(), .macs = {}};
    for (const auto& of_model : probing) pass.macs.push_back(of_model->macs());
    return pass;
  }

  void expect_told(std::optional<double> loss, const Closure& closure) const {
    if (hears_losses() && !loss)
      throw UserError(fmt::format("schedule '{}' listens to the loss; expected step(loss)", line()));
    if (spec_.probes() && !closure)
      throw UserError(fmt::format(
          "schedule '{}' asks for losses between steps; expected step(closure=…), a function that "
          "returns the loss of a batch of training items, the same each time",
          shortened(line())));
    if (looks() && looked_at_ != step_)
      throw UserError(
          fmt::format("schedule '{}' asks how sensitive layers are; expected look(lr, items) in every step, "
                      "between backward() and the optimiser's step",
                      shortened(line())));
  }

  // Items of a batch are alike: shares of the MACs are what counts.
  static std::vector<LayerSize> sizes_of(Quantization& quantization, const std::function<void()>& pass) {
    std::vector<LayerSize> sizes = quantization.layer_sizes(pass);
    std::int64_t unit = 0;
    for (const LayerSize& layer : sizes) unit = std::gcd(unit, layer.macs);
    for (LayerSize& layer : sizes) layer.macs /= std::max<std::int64_t>(unit, 1);
    return sizes;
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
    looked_at_ = -1;
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
    for (const auto& model : models()) model->set_bits(step_, bits, spec_.last(), schedule_->looks_at(step_));
  }

  ScheduleSpec spec_;
  Rates rates_;
  std::unique_ptr<Schedule> schedule_;
  std::int64_t steps_;
  std::int64_t step_ = 0;
  std::vector<std::weak_ptr<Quantization>> models_;
  std::int64_t looked_at_ = -1;        // the step that look() was last called in
  std::vector<double> sensitivities_;  // what it saw
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
      .def_property_readonly("hears_losses", &TrainingSchedule::hears_losses)
      .def("at", &TrainingSchedule::at)
      .def("layers_at", &TrainingSchedule::layers_at)
      .def_property_readonly("looks", &TrainingSchedule::looks)
      .def("attach", &TrainingSchedule::attach)
      .def("look", &TrainingSchedule::look)
      .def("drives", &TrainingSchedule::drives)
      .def("step", &TrainingSchedule::step)
      .def("state", &TrainingSchedule::state)
      .def("restore", &TrainingSchedule::restore);
}

}  // namespace lowtide::python
