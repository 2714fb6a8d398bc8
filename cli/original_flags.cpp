#include "cli/original_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

struct Renamed {
  std::string_view original, ours;
};

constexpr std::array kOneValue{
    Renamed{"--num_cyclic_period", "--cycles"}, Renamed{"--iters", "--steps"},
    Renamed{"--batch_size", "--batch"},         Renamed{"--weight_decay", "--weight-decay"},
    Renamed{"--data_dir", "--data-dir"},        Renamed{"--save_folder", "--out"},
};

constexpr std::array kRange{
    Renamed{"--cyclic_num_bits_schedule", "--bits"},
    Renamed{"--cyclic_num_grad_bits_schedule", "--grad-bits"},
};

const Renamed* find(const auto& table, const std::string& flag) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Renamed& r) { return r.original == flag; });
  return found == table.end() ? nullptr : &*found;
}

std::string value_after(const std::vector<std::string>& arguments, std::size_t flag, std::size_t offset) {
  if (flag + offset < arguments.size()) return arguments[flag + offset];
  throw UserError(fmt::format("{} needs {} value{}", arguments[flag], offset, offset == 1 ? "" : "s"));
}

}  // namespace

std::vector<std::string> translate_original_flags(const std::vector<std::string>& arguments) {
  const bool cyclic =
      std::find(arguments.begin(), arguments.end(), "--is_cyclic_precision") != arguments.end();
  std::vector<std::string> ours;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--is_cyclic_precision") {
      ours.insert(ours.end(), {"--schedule", "CR"});
    } else if (arguments[i] == "--num_bits" || arguments[i] == "--num_grad_bits") {
      const std::string bits = value_after(arguments, i, 1);
      if (!cyclic && arguments[i] == "--num_bits")
        ours.insert(ours.end(), {"--schedule", "static", "--bits", bits});
      if (!cyclic && arguments[i] == "--num_grad_bits") ours.insert(ours.end(), {"--grad-bits", bits});
      i += 1;
    } else if (const Renamed* range = find(kRange, arguments[i])) {
      const std::string low = value_after(arguments, i, 1), high = value_after(arguments, i, 2);
      ours.insert(ours.end(), {std::string(range->ours), low == high ? low : low + ":" + high});
      i += 2;
    } else if (const Renamed* one = find(kOneValue, arguments[i])) {
      ours.insert(ours.end(), {std::string(one->ours), value_after(arguments, i, 1)});
      i += 1;
    } else {
      ours.push_back(arguments[i]);
    }
  }
  return ours;
}

}  // namespace lowtide
