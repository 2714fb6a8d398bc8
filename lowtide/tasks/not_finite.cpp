#include <fmt/format.h>

#include "lowtide/tasks/task.h"

namespace lowtide {
namespace {

bool is_finite(const torch::Tensor& tensor) { return torch::isfinite(tensor).all().item<bool>(); }

}  // namespace

std::string Task::find_not_finite() {
  std::string where;
  execution().listener = [&](const LayerEvent& event) {
    if (where.empty() && !is_finite(event.output)) where = fmt::format("the output of layer {}", event.layer);
  };
  {
    const torch::NoGradGuard no_grad;
    const bool finite_loss = is_finite(repeat_loss());
    if (where.empty() && !finite_loss) where = "the loss";
  }
  execution().listener = nullptr;
  if (!where.empty()) return where;
  // Gradients flow from the last layer to the first: the last one that is not finite is where it began.
  for (const auto& item : model().named_parameters()) {
    if (item.value().grad().defined() && !is_finite(item.value().grad())) {
      where = fmt::format("the gradient of {}", item.key());
    }
  }
  return where.empty() ? "the norm of all gradients" : where;
}

}  // namespace lowtide
