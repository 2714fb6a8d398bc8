#include "lowtide/tasks/detection_loss.h"

#include "lowtide/models/anchors.h"

namespace lowtide {
namespace {

constexpr double kObject = 0.5, kBackground = 0.4;  // overlaps
constexpr double kAlpha = 0.25;
constexpr double kLeastProbability = 1e-4;
constexpr double kQuadraticBelow = 1.0 / 9.0;

// Sums of the rows of an N × K tensor. libtorch cuts a sum that has one result by the number of threads, and one that
// has several by its results: two stages, so that neither depends on it.
at::Tensor row_sums(const at::Tensor& x) {
  constexpr std::int64_t kChunk = 256;
  const std::int64_t rest = (kChunk - x.size(1) % kChunk) % kChunk;
  return at::constant_pad_nd(x, {0, rest}).view({x.size(0), -1, kChunk}).sum(2).sum(1);
}

// N × A × M; -1 for objects that are not there.
at::Tensor overlaps(const at::Tensor& anchors, const at::Tensor& objects) {
  const at::Tensor a = anchors.view({1, -1, 1, 4}), b = objects.slice(2, 0, 4).unsqueeze(1);
  const auto area = [](const at::Tensor& first, const at::Tensor& last) {
    const at::Tensor sides = (last - first).clamp_min(0);
    return sides.select(-1, 0) * sides.select(-1, 1);
  };
  const at::Tensor a_first = a.slice(-1, 0, 2), a_last = a.slice(-1, 2, 4);
  const at::Tensor b_first = b.slice(-1, 0, 2), b_last = b.slice(-1, 2, 4);
  const at::Tensor both = area(at::max(a_first, b_first), at::min(a_last, b_last));
  const at::Tensor either = area(a_first, a_last) + area(b_first, b_last) - both;
  const at::Tensor is_there = objects.select(2, 4).ge(0).unsqueeze(1);
  return at::where(is_there, both / either.clamp_min(1e-8), at::full({}, -1.0f, both.options()));
}

// What each anchor is to find, N × A.
struct Targets {
  at::Tensor found, background;  // bool
  at::Tensor boxes, labels;      // of the object it overlaps most
  at::Tensor count;              // anchors that find something, N, at least 1
};

Targets assign(const at::Tensor& anchors, const at::Tensor& objects) {
  const auto [overlap, best] = overlaps(anchors, objects).max(2);
  const at::Tensor assigned =
      objects.gather(1, best.unsqueeze(2).expand({best.size(0), best.size(1), objects.size(2)}));
  Targets targets;
  targets.found = overlap.ge(kObject);
  targets.background = overlap.lt(kBackground);
  targets.boxes = assigned.slice(2, 0, 4);
  targets.labels = assigned.select(2, 4);
  targets.count = row_sums(targets.found.to(at::kFloat)).clamp_min(1);
  return targets;
}

at::Tensor focal_loss(const at::Tensor& probabilities, const Targets& targets) {
  const at::Tensor p = probabilities.clamp(kLeastProbability, 1 - kLeastProbability), not_p = 1 - p;
  const at::Tensor classes = at::arange(p.size(2), p.options());
  const at::Tensor is_class = targets.labels.unsqueeze(2).eq(classes).logical_and(targets.found.unsqueeze(2));
  const at::Tensor right = at::where(is_class, p, not_p), wrong = at::where(is_class, not_p, p);
  const at::Tensor alpha = is_class.to(p.scalar_type()) * (2 * kAlpha - 1) + (1 - kAlpha);
  const at::Tensor loss = alpha * wrong.square() * -right.log();
  const at::Tensor counts = targets.found.logical_or(targets.background).to(p.scalar_type());
  return (row_sums(loss.sum(2) * counts) / targets.count).mean();
}

at::Tensor smooth_l1(const at::Tensor& deltas, const at::Tensor& anchors, const Targets& targets) {
  const at::Tensor difference = (encode_boxes(anchors, targets.boxes) - deltas).abs();
  const at::Tensor loss =
      at::where(difference.le(kQuadraticBelow), 0.5 / kQuadraticBelow * difference.square(),
                difference - 0.5 * kQuadraticBelow);
  const at::Tensor counts = targets.found.to(deltas.scalar_type());
  return (row_sums(loss.mean(2) * counts) / targets.count).mean();
}

}  // namespace

DetectionLoss detection_loss(const at::Tensor& probabilities, const at::Tensor& deltas,
                             const at::Tensor& anchors, const at::Tensor& objects) {
  Targets targets;
  {
    const at::NoGradGuard no_grad;
    targets = assign(anchors, objects);
  }
  return {focal_loss(probabilities, targets), smooth_l1(deltas, anchors, targets)};
}

}  // namespace lowtide
