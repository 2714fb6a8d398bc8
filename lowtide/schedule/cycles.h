#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "lowtide/schedule/profile.h"

namespace lowtide {

// The ten cyclic schedules, in order of falling saving, and the group of saving they belong to.
struct CyclicSchedule {
  std::string_view name;
  Profile profile;
  Shape shape;
  std::string_view group;
  std::string_view description;
};
const std::array<CyclicSchedule, 10>& cyclic_schedules();

// By canonical name; null if there is none.
const CyclicSchedule* find_cyclic(std::string_view name);

// What a schedule's line may begin with: the ten, then the others.
std::vector<std::string_view> schedule_names();

}  // namespace lowtide
