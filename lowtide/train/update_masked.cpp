#include "lowtide/train/update.h"

namespace lowtide::masked {

void assign(const at::Tensor& tensor, const at::Tensor& value, const at::Tensor& halted) {
  at::Tensor out = tensor;
  at::where_out(out, halted, tensor, value);
}

void count(const at::Tensor& steps, const at::Tensor& halted) { steps.add_(halted.logical_not()); }

void update(const SgdUpdate& by, const at::Tensor& halted, const at::Tensor& parameter,
            const at::Tensor& gradient, const at::Tensor& velocity) {
  const at::Tensor next = velocity.mul(by.momentum).add_(gradient);
  if (by.decay != 0) next.add_(parameter, by.decay);
  assign(velocity, next, halted);
  assign(parameter, parameter.add(next, -by.rate), halted);
}

MomentCorrections moment_corrections(double beta1, double beta2, const at::Tensor& step) {
  const at::Tensor exponent = step.to(at::kDouble);
  return {.first = 1 - at::pow(beta1, exponent), .second = 1 - at::pow(beta2, exponent)};
}

void update(const AdamUpdate& by, const MomentCorrections& corrections, const at::Tensor& halted,
            const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& first_moment,
            const at::Tensor& second_moment) {
  const at::Tensor g = by.decay != 0 ? gradient.add(parameter, by.decay) : gradient;
  const at::Tensor kept = by.shrinkage != 0 ? parameter.sub(parameter, by.shrinkage) : parameter;
  const at::Tensor first = first_moment.mul(by.beta1).add_(g, 1 - by.beta1);
  const at::Tensor second = second_moment.mul(by.beta2).addcmul_(g, g, 1 - by.beta2);
  const at::Tensor deviation = (second / corrections.second).sqrt_().add_(by.epsilon);
  assign(parameter, kept.addcdiv(first, deviation.mul_(corrections.first), -by.rate), halted);
  assign(first_moment, first, halted);
  assign(second_moment, second, halted);
}

}  // namespace lowtide::masked
