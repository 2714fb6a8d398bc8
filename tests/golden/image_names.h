#pragma once

#include <array>
#include <string>

namespace lowtide {

// The names of the original experiments for ours, in convolutional networks; empty for the classifier's range, as the
// classifier is fp32 in all recordings. `pairs` come before those that all networks share.
struct Renaming {
  std::string ours, recorded;
};

template <std::size_t N>
std::string recorded_image_name(std::string name, const std::array<Renaming, N>& pairs) {
  static const std::array kShared{Renaming{"activation_min", "quantize_input.running_zero_point"},
                                  Renaming{"activation_range", "quantize_input.running_range"},
                                  Renaming{"running_variance", "running_var"}, Renaming{"norm", "bn"}};
  if (name.starts_with("fc.activation")) return "";
  const auto rename = [&](const Renaming& renaming) {
    if (const auto at = name.find(renaming.ours); at != std::string::npos) {
      name.replace(at, renaming.ours.size(), renaming.recorded);
    }
  };
  for (const Renaming& renaming : pairs) rename(renaming);
  for (const Renaming& renaming : kShared) rename(renaming);
  return name;
}

inline std::string resnet_name(const std::string& name) {
  static const std::array kPairs{Renaming{"shortcut_norm", "norm3"}, Renaming{"shortcut", "downsample"},
                                 Renaming{"group1.0", "group1_layer0"}, Renaming{"group2.0", "group2_layer0"},
                                 Renaming{"group3.0", "group3_layer0"}};
  return recorded_image_name(name, kPairs);
}

inline std::string mobilenet_name(const std::string& name) {
  static const std::array kPairs{Renaming{"shortcut_norm", "norm4"}};
  return recorded_image_name(name, kPairs);
}

}  // namespace lowtide
