#include "lowtide/trunk/trunk.h"

#include <memory>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/torch.h"
#include "lowtide/engine/pixels_apart.h"

namespace lowtide {
namespace {

using torch::autograd::variable_list;

// A stage in one step of training.
class StageCall {
 public:
  explicit StageCall(const ConvStage& stage) : stage_(stage), format_(stage.conv->format()) {}

  ConvWeight weight() const {
    const QuantConv2dOptions& options = stage_.conv->options;
    return {stage_.conv->weight.detach(), bits(), options.groups, options.stride};
  }
  void set_prepared(std::shared_ptr<const PreparedConv> conv) { conv_ = std::move(conv); }

  // At how many bits its convolution encodes an input by the input's own range; 0 in an evaluation and where it stays in floats.
  DeviceBits reader_bits() const {
    return stage_.conv->is_training() && !is_float_bits(bits()) ? bits() : DeviceBits();
  }

  // What its convolution reads of a block's input, or of the stage before.
  template <typename Input>
  Quantized read(Input& x, std::vector<RangeUpdate>& updates) const {
    return stage_.conv->input_range().encode(x, bits(), stage_.conv->is_training(), updates);
  }

  void forward(const Quantized& input, bool keeps) {
    ConvNormCall call;
    call.input = input;
    call.conv = std::move(conv_);
    call.shape = stage_.conv->shape(input.code.sizes());
    const std::int64_t macs = call.shape.input[0] * call.shape.macs();
    if (skips_pixels(call.shape)) {
      call.input = pixels_apart(input, call.shape.stride);
      call.shape = of_pixels_read(call.shape);
    }
    call.norm = stage_.norm->start_call();
    call.relu = stage_.relu;
    call.measures = stage_.conv->is_training();
    call.keeps = keeps;
    call.recompute = stage_.conv->execution().recompute;
    call.shows_output = stage_.conv->has_listener();
    passes_ = format_.engine->conv_norm(call);
    if (call.shows_output) stage_.conv->tell(passes_->output(), macs);
  }

  // From the gradient at the stage's result to the error that its convolution's gradients are made of. Those of its
  // parameters go where the stage's parameters stand among a trunk's. Gives the gradient at the residual, where asked for.
  at::Tensor norm_backward(at::Tensor gradient, bool wants_residual, at::Tensor* parameters) {
    return take(passes_->norm_gradient(std::move(gradient), format_.error(), wants_residual), parameters);
  }
  // The same from the error of the stage that reads the result.
  at::Tensor norm_backward(StageCall& reader, const OtherGradient& other, bool wants_residual,
                           at::Tensor* parameters) {
    return take(reader.passes_->producer_gradient(reader.error_.for_input, other, *passes_, format_.error(),
                                                  wants_residual),
                parameters);
  }

  at::Tensor input_gradient(const OtherGradient& other) {
    return passes_->input_gradient(error_.for_input, other, nullptr);
  }

  void weight_backward(at::Tensor* parameters) {
    parameters[0] = passes_->weight_gradient(error_.for_weight);
  }

  DeviceBits bits() const { return format_.forward_bits(); }
  ConvNorm& passes() { return *passes_; }
  // After the last that is asked of it.
  void release() {
    error_ = {};
    passes_.reset();
  }
  const ConvStage& stage() const { return stage_; }

 private:
  at::Tensor take(NormGradients result, at::Tensor* parameters) {
    parameters[1] = std::move(result.weight);
    parameters[2] = std::move(result.bias);
    error_ = std::move(result.error);
    return std::move(result.residual);
  }

  ConvStage stage_;
  LayerFormat format_;
  std::shared_ptr<const PreparedConv> conv_;
  std::unique_ptr<ConvNorm> passes_;
  LayerError error_;
};

// Where a stage's parameters stand among those of a trunk: the convolution's weight, the norm's weight and bias.
constexpr std::size_t kParameters = 3;

class BlockCall {
 public:
  explicit BlockCall(const ConvBlock& block) : adds_input_(block.adds_input) {
    for (const ConvStage& stage : block.stages) stages_.emplace_back(stage);
    if (block.projection) projection_.emplace(*block.projection);
  }

  std::size_t stages() const { return stages_.size() + (projection_ ? 1 : 0); }
  StageCall& last() { return stages_.back(); }

  // The stages, then the projection.
  template <typename Each>
  void for_each_stage(const Each& each) {
    for (StageCall& stage : stages_) each(stage);
    if (projection_) each(*projection_);
  }

  // `reader`: bits of the next block's first convolution.
  LayerInput forward(LayerInput input, DeviceBits reader, bool keeps, std::vector<RangeUpdate>& updates) {
    stages_[0].forward(stages_[0].read(input, updates), keeps);
    for (std::size_t i = 1; i < stages_.size(); ++i) {
      stages_[i].forward(stages_[i].read(stages_[i - 1].passes(), updates), keeps);
      if (!keeps) stages_[i - 1].release();
    }
    LayerInput sum = last().passes().add(residual(input, keeps, updates), reader);
    if (!keeps) last().release();
    return sum;
  }
  DeviceBits reader_bits() const { return stages_[0].reader_bits(); }

  // The way back begins at the gradient at the block's result, or at the error of the stage that reads it, and leads to the error of
  // the last stage. Gives the gradient at the shortcut's end. `parameters` are of the stages, then of the projection.
  at::Tensor norm_backward(at::Tensor gradient, at::Tensor* parameters) {
    const at::Tensor not_ours = gradient;  // it may have other readers
    at::Tensor residual = last().norm_backward(std::move(gradient), has_shortcut(), last_of(parameters));
    return residual.defined() && residual.is_same(not_ours) ? residual.clone() : residual;
  }
  at::Tensor norm_backward(StageCall& reader, const OtherGradient& other, at::Tensor* parameters) {
    return last().norm_backward(reader, other, has_shortcut(), last_of(parameters));
  }

  // From there to the gradient at the input, where `needs_input_gradient`; or, where a block made that input, on to the gradient at
  // that block's shortcut.
  at::Tensor backward(at::Tensor residual, bool needs_input_gradient, BlockCall* producer,
                      at::Tensor* parameters, at::Tensor* producer_parameters) {
    OtherGradient other{std::move(residual)};
    if (projection_)
      other = projection_backward(std::move(other.value), needs_input_gradient,
                                  parameters + stages_.size() * kParameters);
    // Weight gradients first: an engine may compute them aside, while the way back goes on.
    for (std::size_t i = stages_.size() - 1; i > 0; --i) {
      stages_[i].weight_backward(parameters + i * kParameters);
      stages_[i - 1].norm_backward(stages_[i], {}, /*wants_residual=*/false,
                                   parameters + (i - 1) * kParameters);
      stages_[i].release();
    }
    stages_[0].weight_backward(parameters);
    at::Tensor result;
    if (producer != nullptr) {
      result = producer->norm_backward(stages_[0], other, producer_parameters);
    } else if (needs_input_gradient) {
      result = stages_[0].input_gradient(other);
    }
    stages_[0].release();
    return result;
  }

 private:
  bool has_shortcut() const { return adds_input_ || projection_.has_value(); }
  at::Tensor* last_of(at::Tensor* parameters) const {
    return parameters + (stages_.size() - 1) * kParameters;
  }

  at::Tensor residual(LayerInput& input, bool keeps, std::vector<RangeUpdate>& updates) {
    if (adds_input_) return input.activation().value;
    if (!projection_) return {};
    projection_->forward(projection_->read(input, updates), keeps);
    at::Tensor projected = projection_->passes().add({}, DeviceBits()).activation().value;
    if (!keeps) projection_->release();
    return projected;
  }

  OtherGradient projection_backward(at::Tensor gradient, bool needs_input_gradient, at::Tensor* parameters) {
    projection_->norm_backward(std::move(gradient), /*wants_residual=*/false, parameters);
    OtherGradient other;
    const std::int64_t stride = projection_->stage().conv->options.stride;
    projection_->weight_backward(parameters);
    if (needs_input_gradient) other = {projection_->input_gradient({}), {stride, stride}};
    projection_->release();
    return other;
  }

  bool adds_input_;
  std::vector<StageCall> stages_;
  std::optional<StageCall> projection_;
};

// One pass of a trunk, forward and back.
struct TrunkCall : torch::CustomClassHolder {
  std::shared_ptr<const Engine> engine;
  std::vector<BlockCall> blocks;
  bool needs_input_gradient = false;
  bool keeps = false;  // what the backward pass needs
  bool served = false;
  Activation input;
  Range output_range;

  at::Tensor forward() {
    prepare();
    LayerInput x(std::exchange(input, {}));
    std::vector<RangeUpdate> updates;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const DeviceBits reader = i + 1 < blocks.size() ? blocks[i + 1].reader_bits() : DeviceBits();
      x = blocks[i].forward(std::move(x), reader, keeps, updates);
    }
    track(updates);
    output_range = x.activation().range;
    return x.activation().value;
  }

  // All weights at once: a launch a layer would take longer than the work.
  void prepare() {
    std::vector<StageCall*> stages;
    for (BlockCall& block : blocks) block.for_each_stage([&](StageCall& stage) { stages.push_back(&stage); });
    std::vector<ConvWeight> weights;
    for (const StageCall* stage : stages) weights.push_back(stage->weight());
    const auto prepared = engine->prepare_convs(weights, keeps);
    for (std::size_t i = 0; i < stages.size(); ++i) stages[i]->set_prepared(prepared[i]);
  }

  // Of the input, then of all parameters.
  variable_list backward(at::Tensor gradient, std::size_t inputs) {
    LOWTIDE_CHECK(!std::exchange(served, true), "a trunk's call serves one backward pass");
    variable_list gradients(inputs);
    std::size_t first = inputs;  // of the block's parameters
    for (std::size_t i = blocks.size(); i-- > 0;) {
      const std::size_t reader = first;
      first -= kParameters * blocks[i].stages();
      gradient = i + 1 == blocks.size() ? blocks[i].norm_backward(std::move(gradient), &gradients[first])
                                        : blocks[i + 1].backward(std::move(gradient), true, &blocks[i],
                                                                 &gradients[reader], &gradients[first]);
    }
    if (!blocks.empty())
      gradient =
          blocks[0].backward(std::move(gradient), needs_input_gradient, nullptr, &gradients[first], nullptr);
    engine->finish_gradients();
    gradients[0] = std::move(gradient);
    return gradients;
  }
};

class TrunkFunction : public torch::autograd::Function<TrunkFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::TensorList inputs,
                            const c10::intrusive_ptr<TrunkCall>& call) {
    context->saved_data["inputs"] = static_cast<std::int64_t>(inputs.size());
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return call->forward();
  }

  static variable_list backward(torch::autograd::AutogradContext* context, const variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<TrunkCall>(context->saved_data["call"].toCapsule());
    variable_list result =
        call->backward(gradients[0], static_cast<std::size_t>(context->saved_data["inputs"].toInt()));
    result.emplace_back();  // of the call
    return result;
  }
};

}  // namespace

Activation Trunk::forward(const Activation& x) const {
  auto call = c10::make_intrusive<TrunkCall>();
  variable_list inputs{x.value};
  const auto add = [&](const ConvStage& stage) {
    inputs.insert(inputs.end(), {stage.conv->weight, stage.norm->weight, stage.norm->bias});
  };
  call->blocks.reserve(blocks_.size());
  for (const ConvBlock& block : blocks_) {
    call->blocks.emplace_back(block);
    for (const ConvStage& stage : block.stages) add(stage);
    if (block.projection) add(*block.projection);
  }
  if (!blocks_.empty()) call->engine = blocks_[0].stages[0].conv->execution().engine;
  call->keeps = at::GradMode::is_enabled();
  call->needs_input_gradient = x.value.requires_grad();
  call->input = Activation(contiguous(x.value.detach()), x.range);
  at::Tensor value = TrunkFunction::apply(at::TensorList(inputs), call);
  return {std::move(value), call->output_range};
}

}  // namespace lowtide
