#include "lowtide/schedule/cycles.h"

namespace lowtide {
namespace {

constexpr std::array<CyclicSchedule, 10> kCyclic{{
    {"RR", Profile::kRex, Shape::kRepeated, "large", "REX, repeated"},
    {"RTH", Profile::kRex, Shape::kTriangularHorizontal, "large", "REX, triangular, horizontal flip"},
    {"LR", Profile::kLinear, Shape::kRepeated, "medium", "linear, repeated"},
    {"LT", Profile::kLinear, Shape::kTriangularVertical, "medium", "linear, triangular"},
    {"CR", Profile::kCosine, Shape::kRepeated, "medium", "cosine, repeated"},
    {"CT", Profile::kCosine, Shape::kTriangularVertical, "medium", "cosine, triangular"},
    {"ETV", Profile::kExponential, Shape::kTriangularVertical, "medium",
     "exponential, triangular, vertical flip"},
    {"RTV", Profile::kRex, Shape::kTriangularVertical, "medium", "REX, triangular, vertical flip"},
    {"ER", Profile::kExponential, Shape::kRepeated, "small", "exponential, repeated"},
    {"ETH", Profile::kExponential, Shape::kTriangularHorizontal, "small",
     "exponential, triangular, horizontal flip"},
}};

}  // namespace

const std::array<CyclicSchedule, 10>& cyclic_schedules() { return kCyclic; }

const CyclicSchedule* find_cyclic(std::string_view name) {
  for (const CyclicSchedule& cyclic : kCyclic) {
    if (cyclic.name == name) return &cyclic;
  }
  return nullptr;
}

std::vector<std::string_view> schedule_names() {
  std::vector<std::string_view> names;
  for (const CyclicSchedule& cyclic : cyclic_schedules()) names.push_back(cyclic.name);
  names.insert(names.end(), {"static", "fp32", "deficit", "window", "delayed", "table", "matched", "price",
                             "waterfill", "progressive"});
  return names;
}

}  // namespace lowtide
