#include "lowtide/models/torchvision_names.h"

#include <array>
#include <string_view>

namespace lowtide {
namespace {

struct Renaming {
  std::string_view ours, torchvisions;
};

// In this order: a shortcut's normalisation before the shortcut.
constexpr std::array kRenamings{Renaming{"shortcut_norm.", "downsample.1."},
                                Renaming{"shortcut.", "downsample.0."}, Renaming{"norm", "bn"},
                                Renaming{"running_variance", "running_var"}};

}  // namespace

std::string torchvision_name(std::string name) {
  for (const Renaming& renaming : kRenamings) {
    if (const auto at = name.find(renaming.ours); at != name.npos) {
      name.replace(at, renaming.ours.size(), renaming.torchvisions);
    }
  }
  return name;
}

}  // namespace lowtide
