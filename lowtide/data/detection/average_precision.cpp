#include "lowtide/data/detection/average_precision.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct Candidate {
  const GroundTruth* object;
  bool taken = false;
};

// The detections of one class so far that were right, and wrong, after each one that counts.
struct Counts {
  std::int64_t right = 0;
  std::int64_t wrong = 0;
  double precision() const { return static_cast<double>(right) / static_cast<double>(right + wrong); }
};

std::vector<Counts> count_detections(const std::vector<const Detection*>& detections,
                                     std::map<std::int64_t, std::vector<Candidate>>& of_image,
                                     double overlap) {
  std::vector<Counts> counts;
  Counts now;
  for (const Detection* detection : detections) {
    Candidate* best = nullptr;
    double best_overlap = 0;
    const auto candidates = of_image.find(detection->image);
    if (candidates != of_image.end()) {
      for (Candidate& candidate : candidates->second) {
        const double found = intersection_over_union(candidate.object->box, detection->box);
        if (best == nullptr || found > best_overlap) {
          best = &candidate;
          best_overlap = found;
        }
      }
    }
    const bool hit = best != nullptr && best_overlap >= overlap;
    if (hit && best->object->difficult) continue;
    if (hit && !best->taken) {
      best->taken = true;
      ++now.right;
    } else {
      ++now.wrong;
    }
    counts.push_back(now);
  }
  return counts;
}

// `counts` with precision replaced by the best at this recall or a higher one.
std::vector<double> best_precisions(const std::vector<Counts>& counts) {
  std::vector<double> best(counts.size());
  double highest = 0;
  for (std::size_t i = counts.size(); i-- > 0;) best[i] = highest = std::max(highest, counts[i].precision());
  return best;
}

double area_under(const std::vector<Counts>& counts, std::int64_t objects) {
  const auto best = best_precisions(counts);
  double sum = 0;
  std::int64_t right = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sum += static_cast<double>(counts[i].right - right) * best[i];
    right = counts[i].right;
  }
  return sum / static_cast<double>(objects);
}

// Recall right / objects is at least k / 10 where 10 right ≥ k objects: in whole numbers, so that 3 of 10 do
// reach 0.3.
double mean_at_eleven(const std::vector<Counts>& counts, std::int64_t objects) {
  const auto best = best_precisions(counts);
  double sum = 0;
  for (std::int64_t k = 0; k <= 10; ++k) {
    const auto reached = std::find_if(counts.begin(), counts.end(),
                                      [&](const Counts& count) { return 10 * count.right >= k * objects; });
    if (reached != counts.end()) sum += best[static_cast<std::size_t>(reached - counts.begin())];
  }
  return sum / 11;
}

}  // namespace

std::vector<double> average_precisions(std::span<const Detection> detections,
                                       std::span<const GroundTruth> objects, int classes, PrecisionForm form,
                                       double overlap) {
  struct ClassData {
    std::vector<const Detection*> detections;
    std::map<std::int64_t, std::vector<Candidate>> of_image;
    std::int64_t objects = 0;  // not difficult
  };
  std::vector<ClassData> of_class(static_cast<std::size_t>(classes));
  for (const GroundTruth& object : objects) {
    ClassData& data = of_class.at(static_cast<std::size_t>(object.label));
    data.of_image[object.image].push_back({&object});
    data.objects += !object.difficult;
  }
  for (const Detection& detection : detections) {
    of_class.at(static_cast<std::size_t>(detection.label)).detections.push_back(&detection);
  }
  std::vector<double> precisions;
  for (ClassData& data : of_class) {
    std::stable_sort(data.detections.begin(), data.detections.end(),
                     [](const Detection* a, const Detection* b) { return a->score > b->score; });
    const auto counts = count_detections(data.detections, data.of_image, overlap);
    if (data.objects == 0) {
      precisions.push_back(kNone);
    } else {
      precisions.push_back(form == PrecisionForm::kArea ? area_under(counts, data.objects)
                                                        : mean_at_eleven(counts, data.objects));
    }
  }
  return precisions;
}

double mean_average_precision(std::span<const double> precisions) {
  double sum = 0;
  std::int64_t count = 0;
  for (const double precision : precisions) {
    if (std::isnan(precision)) continue;
    sum += precision;
    ++count;
  }
  return count == 0 ? kNone : sum / static_cast<double>(count);
}

}  // namespace lowtide
