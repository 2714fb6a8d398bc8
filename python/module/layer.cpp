#include "python/module/layer.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lowtide/base/error.h"
#include "lowtide/nn/quant_conv2d.h"
#include "lowtide/nn/quant_linear.h"
#include "lowtide/nn/quant_lstm.h"
#include "lowtide/nn/quant_product.h"

namespace lowtide::python {
namespace {

// Inside torch.autocast a product of floats would be one of halves.
class NoAutocast {
  const c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};

at::Tensor or_undefined(const std::optional<at::Tensor>& tensor) { return tensor.value_or(at::Tensor()); }

std::string sizes(const at::Tensor& x) { return fmt::format("{}", fmt::join(x.sizes().vec(), " x ")); }

ConvShape shape_of(const at::Tensor& x, const at::Tensor& weight, const Layer::ConvGeometry& geometry) {
  ConvShape shape{.stride = geometry.stride,
                  .padding = geometry.padding,
                  .groups = geometry.groups,
                  .dilation = geometry.dilation};
  for (std::size_t i = 0; i < 4; ++i) {
    shape.input[i] = x.size(static_cast<std::int64_t>(i));
    shape.weight[i] = weight.size(static_cast<std::int64_t>(i));
  }
  return shape;
}

bool covers_kernel(const ConvShape& shape) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (shape.input[i + 2] + 2 * shape.padding[i] <= shape.dilation[i] * (shape.weight[i + 2] - 1))
      return false;
  }
  return true;
}

}  // namespace

Layer::Layer(std::shared_ptr<Quantization> quantization, const std::string& name, bool has_weights)
    : quantization_(std::move(quantization)) {
  quantization_->attach(*this, name, has_weights);
}

void Layer::expect(bool holds, const std::string& what) const {
  if (!holds) throw UserError(fmt::format("layer '{}': {}", layer_name(), what));
}

void Layer::expect_float(const at::Tensor& weight) const {
  expect(weight.scalar_type() == at::kFloat,
         fmt::format("its weight is {}; expected float32, which lowtide quantises itself",
                     at::toString(weight.scalar_type())));
}

void Layer::expect_measured(const RangeBuffers& range, bool training) const {
  if (is_float_bits(bits().forward)) return;
  // Of inputs that are always 0 the measured range is 0 too.
  is_measured_ = is_measured_ || training || range.range.item<float>() != 0 || range.min.item<float>() != 0;
  expect(
      is_measured_,
      "its input's range was not measured; expected batches in training mode and in low precision before an "
      "evaluation, if only under torch.no_grad()");
}

at::Tensor Layer::begin(const at::Tensor& x, bool training) const {
  quantization_->check_device(*this, x);
  quantization_->choose_bits(training);
  expect(x.is_floating_point(),
         fmt::format("its input is {}; expected float32", at::toString(x.scalar_type())));
  expect(x.numel() > 0, fmt::format("its input of {} is empty", sizes(x)));
  return x.to(at::kFloat);
}

at::Tensor Layer::conv2d(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                         const ConvGeometry& geometry, const RangeBuffers& range, bool training) const {
  const NoAutocast guard;
  const c10::OptionalDeviceGuard on(x.device());  // kernels go to the device in use
  const at::Tensor input = begin(x, training);
  expect_float(weight);
  expect(input.dim() == 4 && input.size(1) == weight.size(1) * geometry.groups,
         fmt::format("its input is {}; expected items x {} channels x height x width", sizes(input),
                     weight.size(1) * geometry.groups));
  const ConvShape shape = shape_of(input, weight, geometry);
  expect(covers_kernel(shape), fmt::format("its input of {} is smaller than its kernel", sizes(input)));
  expect_measured(range, training);
  LayerInput read(input);
  return quant_conv2d(*this, read, quantization_->looked_at(*this, weight), or_undefined(bias), shape,
                      {range.min, range.range}, training);
}

at::Tensor Layer::linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                         bool by_position, const RangeBuffers& range, bool training) const {
  const NoAutocast guard;
  const c10::OptionalDeviceGuard on(x.device());
  const at::Tensor input = begin(x, training);
  expect_float(weight);
  expect(input.dim() > 0 && input.size(-1) == weight.size(1),
         fmt::format("its input is {}; expected {} features in the last dimension", sizes(input),
                     weight.size(1)));
  expect_measured(range, training);
  // As a matrix: a tensor of four dimensions would be read as an image, channels last.
  LayerInput read(by_position ? input.contiguous() : input.reshape({-1, weight.size(1)}));
  const at::Tensor y = quant_linear(*this, read, quantization_->looked_at(*this, weight), or_undefined(bias),
                                    by_position ? ErrorRange::kPosition : ErrorRange::kTensor,
                                    {range.min, range.range}, training);
  std::vector<std::int64_t> shape = input.sizes().vec();
  shape.back() = weight.size(0);
  return y.view(shape);
}

at::Tensor Layer::product(const at::Tensor& a, const at::Tensor& b, std::int64_t items, bool training) const {
  const NoAutocast guard;
  const c10::OptionalDeviceGuard on(a.device());
  const at::Tensor left = begin(a, training), right = b.to(at::kFloat);
  expect(left.dim() == 3 && right.dim() == 3 && left.size(0) == right.size(0) &&
             left.size(2) == right.size(1) && items > 0 && left.size(0) % items == 0,
         fmt::format("its factors are {} and {}; expected stacks of matrices that can be multiplied",
                     sizes(left), sizes(right)));
  return quant_product(*this, left, right, items);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> Layer::lstm(
    const at::Tensor& x, const at::Tensor& input_weight, const at::Tensor& hidden_weight,
    const at::Tensor& bias, const at::Tensor& hidden, const at::Tensor& cell, const RangeBuffers& input_range,
    const RangeBuffers& hidden_range, bool training) const {
  const NoAutocast guard;
  const c10::OptionalDeviceGuard on(x.device());
  const at::Tensor input = begin(x, training).contiguous();
  expect_float(input_weight);
  const std::int64_t units = hidden_weight.size(1);
  expect(input.dim() == 3 && input.size(2) == input_weight.size(1),
         fmt::format("its input is {}; expected time x batch x {} features", sizes(input),
                     input_weight.size(1)));
  for (const at::Tensor& state : {hidden, cell}) {
    expect(state.dim() == 2 && state.size(0) == input.size(1) && state.size(1) == units,
           fmt::format("its state is {}; expected {} x {}", sizes(state), input.size(1), units));
  }
  expect_measured(input_range, training);  // the hidden state's may be 0: sequences of one step have none
  LstmRanges ranges{{input_range.min, input_range.range}, {hidden_range.min, hidden_range.range}};
  const LstmOutput output =
      quant_lstm(*this, input,
                 {quantization_->looked_at(*this, input_weight), bias,
                  quantization_->looked_at(*this, hidden_weight, 1)},
                 {hidden.to(at::kFloat).contiguous(), cell.to(at::kFloat).contiguous()}, ranges, training);
  return {output.hidden, output.last.hidden, output.last.cell};
}

}  // namespace lowtide::python
