#include "lowtide/train/squares.h"

#include <numeric>

#include "lowtide/nn/row_sums.h"
#include "lowtide/quant/quantizer.h"

namespace lowtide {

torch::Tensor sum_in_order(const torch::Tensor& row) {
  if (!row.device().is_cpu()) return row.sum();
  const torch::Tensor values = row.contiguous();
  const auto* first = values.data_ptr<double>();
  return torch::tensor(std::accumulate(first, first + values.numel(), 0.0), torch::kDouble);
}

torch::Tensor sum_of_squares(const torch::Tensor& x) {
  const torch::Tensor rows = x.dim() == 4 ? contiguous(x).permute({0, 2, 3, 1}) : x;
  return sum_in_order(sum_rows(rows.square()).to(torch::kDouble));
}

torch::Tensor row_squares(const torch::Tensor& gradient) {
  return sum_rows(gradient.flatten(1).square().t().contiguous()).to(torch::kDouble);
}

torch::Tensor weights_term(const std::vector<torch::Tensor>& weights) {
  torch::Tensor sum;
  for (const torch::Tensor& weight : weights) {
    if (!weight.grad().defined()) continue;
    const Range range = measure_range(contiguous(weight.detach()), RangeGroup::kRow);
    const torch::Tensor term =
        sum_in_order(range.range.to(torch::kDouble).square().flatten() * row_squares(weight.grad()));
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

torch::Tensor squared_gradient(const std::vector<torch::Tensor>& parameters) {
  torch::Tensor sum = torch::zeros({}, parameters[0].options().dtype(torch::kDouble).requires_grad(false));
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) sum += sum_of_squares(parameter.grad());
  }
  return sum;
}

}  // namespace lowtide
