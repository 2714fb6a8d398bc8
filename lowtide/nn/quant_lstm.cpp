#include "lowtide/nn/quant_lstm.h"

#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/layer_call.h"
#include "lowtide/nn/lstm_cell.h"
#include "lowtide/nn/row_sums.h"

namespace lowtide {
namespace {

// Ranges of steps in time as ranges of the rows of all steps, one below the other.
Quantized as_rows(const Quantized& q) {
  const std::int64_t batch = q.code.size(1);
  const auto each_row = [&](const at::Tensor& of_step) {
    return of_step.defined() && of_step.numel() > 1 ? of_step.unsqueeze(1).expand({-1, batch}).reshape(-1)
                                                    : of_step;
  };
  return {q.code.view({-1, q.code.size(-1)}), each_row(q.scale), each_row(q.offset), q.bits};
}

// Matrices, one below the other, with a range for each row of the result.
Quantized joined(const std::vector<Quantized>& parts) {
  std::vector<at::Tensor> code, scale, offset;
  for (const Quantized& part : parts) {
    code.push_back(part.code);
    if (part.bits == 0) continue;
    scale.push_back(part.scale.expand({part.code.size(0)}));
    offset.push_back(part.offset.expand({part.code.size(0)}));
  }
  const bool is_float = parts[0].bits == 0;
  return {at::cat(code), is_float ? at::Tensor() : at::cat(scale), is_float ? at::Tensor() : at::cat(offset),
          parts[0].bits};
}

// What one call keeps for its backward pass.
struct LstmCall : LayerCall {
  std::vector<Noise> step_noise;
  Range hidden_range;  // of evaluation; measured anew at each step in training
  bool measures = false;
  bool needs_state_gradient = false;
  std::vector<Quantized> hidden;  // what U was multiplied with, a step each
  std::vector<Range> hidden_ranges;
  Quantized hidden_weight;
  at::Tensor gates;  // time × batch × 4 units, after their sigmoid or tanh
  at::Tensor cells;  // time + 1 × batch × units
};

class LstmFunction : public torch::autograd::Function<LstmFunction> {
 public:
  // Outputs of all steps, and the last cell.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& x, const at::Tensor& w,
                                                const at::Tensor& bias, const at::Tensor& u,
                                                const at::Tensor& hidden, const at::Tensor& cell,
                                                const c10::intrusive_ptr<LstmCall>& call) {
    const DeviceBits bits = call->forward_bits();
    call->weight = encode(w, measure_range(w, RangeGroup::kRow), bits);
    call->hidden_weight = encode(u, measure_range(u, RangeGroup::kRow), bits);
    const std::int64_t time = x.size(0), batch = x.size(1), units = u.size(1);
    at::Tensor sums = call->engine->product(as_rows(call->input), call->weight, {.transpose_b = true});
    sums.add_(decode(encode(bias, measure_range(bias, RangeGroup::kTensor), bits)));
    sums = sums.view({time, batch, 4 * units});
    call->gates = at::empty_like(sums);
    call->cells = at::empty({time + 1, batch, units}, sums.options());
    call->cells[0].copy_(cell);
    at::Tensor y = at::empty({time, batch, units}, sums.options());
    at::Tensor h = hidden;
    const auto recurrent = call->engine->prepare(call->hidden_weight, /*transposed=*/true);
    for (std::int64_t t = 0; t < time; ++t) {
      const Range range = call->measures ? measure_range(h, RangeGroup::kTensor) : call->hidden_range;
      if (call->measures) call->hidden_ranges.push_back(range);
      call->hidden.push_back(encode(h, range, bits));
      h = y[t];
      lstm_cell(sums[t], call->engine->multiply(call->hidden.back(), *recurrent), call->cells[t],
                {.gates = call->gates[t], .cell = call->cells[t + 1], .hidden = h});
    }
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return {y, call->cells[time].clone()};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<LstmCall>(context->saved_data["call"].toCapsule());
    call->expect_one_backward();
    const at::Tensor dy = gradients[0].contiguous();
    const std::int64_t time = dy.size(0);
    at::Tensor hidden_error = at::zeros_like(dy[0]), cell_error = gradients[1];
    const auto recurrent = call->engine->prepare(call->hidden_weight, /*transposed=*/false);
    std::vector<Quantized> errors(static_cast<std::size_t>(time));
    std::vector<at::Tensor> float_errors(call->bifurcate ? static_cast<std::size_t>(time) : 0);
    for (std::int64_t t = time - 1; t >= 0; --t) {
      const auto i = static_cast<std::size_t>(t);
      const LstmCellGradients step = lstm_cell_gradient({.output = dy[t],
                                                         .hidden = hidden_error,
                                                         .cell = cell_error,
                                                         .gates = call->gates[t],
                                                         .cell_before = call->cells[t],
                                                         .cell_after = call->cells[t + 1]});
      cell_error = step.cell;
      const bool is_float = is_float_bits(call->bits.backward);
      const Range range = is_float ? Range{} : measure_range(step.sums, RangeGroup::kRow);
      const LayerError error =
          quantise_error(step.sums, {call->error().bits, call->step_noise[i], call->bifurcate}, range);
      errors[i] = error.for_input;
      if (call->bifurcate) float_errors[i] = error.for_weight.code;
      if (t > 0 || call->needs_state_gradient) hidden_error = call->engine->multiply(errors[i], *recurrent);
    }
    const ProductGradients result = product_gradients(*call, errors, float_errors);
    if (!call->needs_state_gradient) hidden_error = cell_error = at::Tensor();
    *call = LstmCall{};
    return {result.x, result.input_weight, result.bias, result.hidden_weight, hidden_error, cell_error, {}};
  }

 private:
  struct ProductGradients {
    at::Tensor x, input_weight, bias, hidden_weight;
  };

  // Of W·x + b and of U, for all steps at once.
  static ProductGradients product_gradients(const LstmCall& call, const std::vector<Quantized>& errors,
                                            const std::vector<at::Tensor>& float_errors) {
    const Quantized error = joined(errors);
    const Quantized for_weight = call.bifurcate ? Quantized{at::cat(float_errors), {}, {}, 0} : error;
    const Quantized input = as_rows(call.input);
    ProductGradients result;
    if (call.needs_input_gradient) {
      result.x = call.engine->product(error, call.weight, {}).view(call.input.code.sizes());
    }
    result.input_weight = call.engine->product(for_weight, input, {.transpose_a = true});
    result.hidden_weight = call.engine->product(for_weight, joined(call.hidden), {.transpose_a = true});
    result.bias = sum_rows(for_weight);
    return result;
  }
};

}  // namespace

LstmOutput quant_lstm(const QuantLayer& layer, const at::Tensor& x, const LstmParameters& parameters,
                      const LstmState& state, LstmRanges& ranges, bool training) {
  const auto call = c10::make_intrusive<LstmCall>();
  layer.prepare(*call, x.requires_grad());
  call->needs_state_gradient = state.hidden.requires_grad() || state.cell.requires_grad();
  const bool is_float = is_float_bits(call->bits.forward);
  call->step_noise.push_back(call->noise);
  for (std::int64_t t = 1; t < x.size(0); ++t) {
    call->step_noise.push_back(call->noise.is_drawn() ? Noise::drawn(layer.noise_key()) : Noise::none());
  }
  const Range input_range = ranges.input.of_each_step(x, call->bits.forward, training);
  call->input = encode(x, input_range, call->forward_bits());
  call->measures = training && !is_float;
  if (!training && !is_float) call->hidden_range = ranges.hidden.running();
  const at::Tensor &w = parameters.input_weight, &u = parameters.hidden_weight;
  const torch::autograd::variable_list outputs =
      LstmFunction::apply(x, w, parameters.bias, u, state.hidden, state.cell, call);
  const at::Tensor& y = outputs[0];
  if (call->measures) ranges.hidden.track_each(call->hidden_ranges);
  layer.tell(y, x.size(0) * x.size(1) * w.size(0) * (w.size(1) + u.size(1)));
  return {y, {y[x.size(0) - 1], outputs[1]}};
}

QuantLstmImpl::QuantLstmImpl(const QuantLstmOptions& lstm_options) : options(lstm_options) {
  input_weight = register_parameter("input_weight", torch::zeros({4 * options.units, options.inputs}));
  bias = register_parameter("bias", torch::zeros({4 * options.units}));
  hidden_weight = register_parameter("hidden_weight", torch::zeros({4 * options.units, options.units}));
  ranges_.input.register_in(*this, "input");
  ranges_.hidden.register_in(*this, "hidden");
}

LstmOutput QuantLstmImpl::forward(const at::Tensor& x, const LstmState& state) {
  LOWTIDE_CHECK(!state.hidden.requires_grad(), "back-propagation through an earlier window");
  const LstmOutput output =
      quant_lstm(*this, x, {input_weight, bias, hidden_weight}, state, ranges_, is_training());
  return {output.hidden, {output.last.hidden.detach().clone(), output.last.cell.detach()}};
}

}  // namespace lowtide
