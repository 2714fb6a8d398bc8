#include "python/module/quantization.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/base/torch.h"
#include "lowtide/engine/engine.h"
#include "lowtide/ranks/ranks.h"

namespace lowtide::python {
namespace {

// The first few.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 8;
  std::vector<std::string> first = names;
  first.resize(std::min(kNamed, names.size()));
  return fmt::format("{}{}", fmt::join(first, ", "), names.size() > kNamed ? ", …" : "");
}

// Adds a call's MACs when its backward pass has run.
class CountMacs final : public torch::autograd::FunctionPostHook {
 public:
  // `owner` keeps the sum.
  CountMacs(std::shared_ptr<void> owner, std::atomic<std::int64_t>& sum, std::int64_t macs)
      : owner_(std::move(owner)), sum_(sum), macs_(macs) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients,
                                            const torch::autograd::variable_list& /*errors*/) override {
    sum_ += macs_;
    return gradients;
  }

 private:
  std::shared_ptr<void> owner_;
  std::atomic<std::int64_t>& sum_;
  std::int64_t macs_;
};

}  // namespace

Quantization::Quantization(const Options& options) : options_(options), rules_(options.rules) {
  execution_->engine = make_engine(choose_engine(options.engine, options.device));
  execution_->seed = options.seed;
  execution_->listener = [this](const LayerEvent& call) { count(call); };
}

// Gradient checkpointing calls a layer twice, the first time perhaps without gradients; one of the two calls has a backward
// pass. A layer whose weights and input are frozen has none.
void Quantization::count(const LayerEvent& call) const {
  std::atomic<std::int64_t>& sum = macs_->at(call.layer);
  if (probes_) sum += call.macs;
  if (!at::GradMode::is_enabled() || override_) return;
  if (call.output.requires_grad()) {
    call.output.grad_fn()->add_post_hook(std::make_unique<CountMacs>(macs_, sum, call.macs));
  } else {
    sum += call.macs;
  }
}

void Quantization::attach(QuantLayer& layer, const std::string& name, bool has_weights) {
  const LayerPrecision rule = rules_.match(name);
  layer.attach(execution_, name, static_cast<std::uint32_t>(layers_.size()));
  layer.set_rule(rule);
  layers_.push_back({name, rule, has_weights});
  (*macs_)[name] = 0;
}

void Quantization::check_rules() const {
  std::vector<std::string> names;
  for (const Attached& layer : layers_) names.push_back(layer.name);
  for (const std::string& pattern : rules_.unmatched(names)) {
    throw UserError(fmt::format("layer_bits: '{}' matches no layer of the model{}; they are {}", pattern,
                                did_you_mean(pattern, {names.begin(), names.end()}), listed(names)));
  }
}

std::vector<LayerSize> Quantization::layer_sizes(const std::function<void()>& pass) {
  const Probing probing(*this, Bits{});
  pass();
  const std::vector<std::int64_t> macs = probing.macs();
  std::vector<LayerSize> sizes;
  for (std::size_t i = 0; i < layers_.size(); ++i) sizes.push_back({macs[i], layers_[i].is_chosen()});
  return sizes;
}

void Quantization::set_bits(std::int64_t step, StepBits scheduled, Bits evaluation, bool is_looked_at) {
  execution_->step = step;
  scheduled_ = std::move(scheduled);
  evaluation_ = evaluation;
  look_.reset();
  weights_.assign(layers_.size(), {});
  if (!is_looked_at) return;
  std::vector<LayerChoice> choices;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    choices.push_back({static_cast<std::uint32_t>(i), layers_[i].is_chosen()});
  const std::shared_ptr<const Engine> unseen = execution_->engine;
  look_ = std::make_unique<LayerLook>(*execution_, choices, Shards{});
  // Between two steps, as in an evaluation, nothing is looked at.
  execution_->engine_of = [this, unseen, seen = execution_->engine_of](const QuantLayer& layer) {
    return is_step_ ? seen(layer) : unseen;
  };
}

std::vector<double> Quantization::sensitivities(const std::vector<at::Tensor>& parameters, double rate,
                                                std::int64_t items) {
  look_->take_gradients(weights_, parameters);
  return look_->sensitivities(*alone(), rate, items);
}

// A parametrised weight is no parameter, and attention's are parts of one: what each call's has for a gradient is seen on its way.
at::Tensor Quantization::looked_at(const QuantLayer& layer, const at::Tensor& weight, std::size_t number) {
  if (!look_ || !is_step_ || !weight.requires_grad() || !layers_[layer.id()].is_chosen()) return weight;
  LayerWeights& weights = weights_[layer.id()];
  weights.resize(std::max(weights.size(), number + 1));
  at::Tensor& seen = weights[number];
  if (!seen.defined()) seen = weight.detach();
  at::Tensor same = at::alias(weight);
  same.register_hook([seen](const at::Tensor& gradient) {
    at::Tensor& sum = seen.mutable_grad();
    sum = sum.defined() ? sum + gradient : gradient;
  });
  return same;
}

void Quantization::choose_bits(bool training) {
  const bool evaluates = !training && !at::GradMode::is_enabled();
  is_step_ = at::GradMode::is_enabled() && !override_;
  if (override_ || evaluates) {
    execution_->bits = override_.value_or(evaluation_);
  } else {
    execution_->bits = scheduled_;
  }
}

void Quantization::check_device(const QuantLayer& layer, const at::Tensor& x) const {
  const std::string engine = execution_->engine->name();
  const bool fits = engine == "simulated" || x.device().is_cpu() == (engine == "integer");
  if (fits) return;
  throw UserError(
      fmt::format("layer '{}': its input is on {}, where the engine '{}' does not run; call quantize_ after "
                  "the model was moved",
                  layer.layer_name(), x.device().str(), engine));
}

std::vector<std::int64_t> Quantization::macs_so_far() const {
  std::vector<std::int64_t> macs;
  for (const Attached& layer : layers_) macs.push_back(macs_->at(layer.name));
  return macs;
}

void Quantization::set_macs(const std::vector<std::int64_t>& macs) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) macs_->at(layers_[i].name) = macs[i];
}

std::vector<std::int64_t> Quantization::take_macs() const {
  std::vector<std::int64_t> macs = macs_so_far();
  set_macs(std::vector<std::int64_t>(layers_.size()));
  return macs;
}

Quantization::Probing::Probing(Quantization& quantization, Bits bits)
    : quantization_(quantization),
      override_before_(std::exchange(quantization.override_, bits)),
      of_step_(quantization.take_macs()) {
  quantization.probes_ = true;
}

Quantization::Probing::~Probing() {
  quantization_.probes_ = false;
  quantization_.override_ = override_before_;
  quantization_.set_macs(of_step_);
}

void Quantization::add_probe(Bits bits, const std::vector<std::int64_t>& macs) {
  ledger_.add_probe(bits.forward, macs);
}

void Quantization::restore_ledger(const Json& state) {
  Ledger restored = Ledger::from_state(state);
  const std::vector<Ledger::Layer>& saved = restored.layers();
  const auto is_same = [](const Ledger::Layer& a, const Attached& b) {
    return a.name == b.name && a.precision == b.rule;
  };
  if (!saved.empty() && !std::equal(saved.begin(), saved.end(), layers_.begin(), layers_.end(), is_same)) {
    throw UserError(
        "the state is of a model with other layers, or with other bits of their own; expected quantize_ as "
        "it was "
        "called then");
  }
  ledger_ = std::move(restored);
}

void Quantization::end_step() {
  const std::vector<std::int64_t> macs = take_macs();
  if (ledger_.layers().empty()) {
    for (std::size_t i = 0; i < layers_.size(); ++i)
      ledger_.add_layer(layers_[i].name, macs[i], layers_[i].rule);
  }
  bool as_in_the_first = true;
  for (std::size_t i = 0; i < macs.size(); ++i) as_in_the_first &= macs[i] == ledger_.layers()[i].macs;
  if (!scheduled_.layers.empty()) {
    ledger_.add(scheduled_, scheduled_.layers, 1, macs);
  } else if (as_in_the_first) {
    ledger_.add(scheduled_, 1);
  } else {
    ledger_.add(scheduled_, 1, macs);
  }
}

}  // namespace lowtide::python
