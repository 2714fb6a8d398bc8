#include "lowtide/engine/integer/method.h"

#include <algorithm>

#include "lowtide/engine/integer/tuning.h"

namespace lowtide::integer {
namespace {

// One channel in, one channel out, as many groups as channels.
bool is_depthwise(const ConvShape& shape) {
  return shape.groups > 1 && shape.groups == shape.input[1] && shape.weight[0] == shape.groups;
}

bool has_unit_stride(const ConvShape& shape) { return shape.stride[0] == 1 && shape.stride[1] == 1; }

// 3×3, stride 1, with tiles that are mostly used and as much work as pays for the transforms.
bool suits_winograd(const ConvShape& shape, const WinogradWorth& worth) {
  const std::int64_t outputs = shape.weight[0], inputs = shape.weight[1];
  const bool kernel = shape.weight[2] == 3 && shape.weight[3] == 3 && shape.groups == 1 &&
                      has_unit_stride(shape) && shape.padding[0] <= 2 && shape.padding[1] <= 2;
  if (!kernel || shape.input[0] < worth.images || inputs % worth.channels != 0 ||
      outputs % worth.channels != 0)
    return false;
  const TileGrid grid{shape.input[0], shape.output_height(), shape.output_width()};
  // Images of 7×7 pixels, three quarters of their four tiles, are still worth it.
  const std::int64_t pixels = grid.items * grid.rows * grid.cols;
  const bool used = 4 * pixels >= 3 * grid.tiles() * kTile * kTile;
  return used && grid.tiles() >= worth.tiles_per_channel * std::max(inputs, outputs);
}

}  // namespace

// A matrix unit is so fast that plain products take less time than what would save some of them.

OutputMethod output_method(const ConvShape& shape, InstructionSet set) {
  if (is_depthwise(shape)) return OutputMethod::kDepthwise;
  if (has_matrix_unit(set)) return OutputMethod::kDirect;
  return suits_winograd(shape, kOutputsWorth) ? OutputMethod::kWinograd : OutputMethod::kDirect;
}

InputGradientMethod input_gradient_method(const ConvShape& shape, InstructionSet set) {
  if (is_depthwise(shape)) return InputGradientMethod::kDepthwise;
  if (has_matrix_unit(set)) return InputGradientMethod::kFixedPoint;
  if (suits_winograd(shape, kInputGradientsWorth)) return InputGradientMethod::kWinograd;
  const bool wide_kernel = shape.weight[3] >= 3;  // of a quad's four columns, three are used
  return wide_kernel && has_unit_stride(shape) ? InputGradientMethod::kScaled
                                               : InputGradientMethod::kFixedPoint;
}

WeightGradientMethod weight_gradient_method(const ConvShape& shape, InstructionSet set) {
  if (is_depthwise(shape)) return WeightGradientMethod::kDepthwise;
  if (has_matrix_unit(set)) return WeightGradientMethod::kMatrixUnit;
  return suits_winograd(shape, kWeightGradientsWorth) ? WeightGradientMethod::kWinograd
                                                      : WeightGradientMethod::kDirect;
}

// A matrix unit takes sixteen pixels in the time of fewer.
bool joins_rows(std::int64_t cols, std::int64_t groups, InstructionSet set) {
  return has_matrix_unit(set) && cols < kLanes && groups == 1;
}

}  // namespace lowtide::integer
