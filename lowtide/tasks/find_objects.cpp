#include "lowtide/tasks/find_objects.h"

#include <algorithm>

#include "lowtide/models/anchors.h"

namespace lowtide {
namespace {

constexpr std::int64_t kMostCandidates = 1000;
constexpr float kLeastScore = 0.05f;
constexpr double kMostOverlap = 0.5;
constexpr std::size_t kMostObjects = 100;

// N × k × 6, on the host: score, class, box; falling by score. One transfer for a batch.
at::Tensor candidates(const DetectorOutput& output, const at::Tensor& anchors) {
  const std::int64_t classes = output.probabilities.size(2);
  const at::Tensor scores = output.probabilities.flatten(1);
  const auto [best, index] = scores.topk(std::min(kMostCandidates, scores.size(1)), 1);
  const at::Tensor anchor = index.div(classes, "floor");
  const at::Tensor label = index.remainder(classes).to(best.scalar_type());
  const at::Tensor deltas =
      output.deltas.gather(1, anchor.unsqueeze(2).expand({anchor.size(0), anchor.size(1), 4}));
  const at::Tensor boxes = decode_boxes(anchors.index({anchor}), deltas);
  return at::cat({best.unsqueeze(2), label.unsqueeze(2), boxes}, 2).to(at::kCPU).contiguous();
}

std::vector<Detection> without_repetitions(std::span<const float> rows, const ImageFit& fit) {
  std::vector<BoundingBox> boxes;
  std::vector<float> scores;
  std::vector<std::int32_t> labels;
  for (std::size_t at = 0; at < rows.size() && rows[at] > kLeastScore; at += 6) {
    const BoundingBox box =
        clipped({rows[at + 2], rows[at + 3], rows[at + 4], rows[at + 5]}, fit.width, fit.height);
    if (!(area(box) > 0)) continue;
    scores.push_back(rows[at]);
    labels.push_back(static_cast<std::int32_t>(rows[at + 1]));
    boxes.push_back(box);
  }
  std::vector<Detection> found;
  for (const std::int32_t kept : suppress_non_maxima(boxes, scores, labels, kMostOverlap)) {
    const auto i = static_cast<std::size_t>(kept);
    if (found.size() < kMostObjects) found.push_back({0, labels[i], scores[i], boxes[i]});
  }
  return found;
}

}  // namespace

std::vector<std::vector<Detection>> find_objects(const DetectorOutput& output, const at::Tensor& anchors,
                                                 std::span<const ImageFit> fits) {
  const at::NoGradGuard no_grad;
  const at::Tensor rows = candidates(output, anchors);
  const auto a_image = static_cast<std::size_t>(rows.size(1) * rows.size(2));
  std::vector<std::vector<Detection>> found;
  for (std::size_t i = 0; i < fits.size(); ++i) {
    found.push_back(without_repetitions({rows.data_ptr<float>() + i * a_image, a_image}, fits[i]));
  }
  return found;
}

}  // namespace lowtide
