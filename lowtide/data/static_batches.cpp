#include "lowtide/data/static_batches.h"

namespace lowtide {

void copy_to_static(const torch::Tensor& from, const torch::Tensor& to) {
  if (to.is_cuda()) {
    to.copy_(from.pin_memory(), /*non_blocking=*/true);
  } else {
    to.copy_(from);
  }
}

void LoadedBatches::prepare() {
  Batch next = loader_->next();
  if (device_.is_cpu()) {
    batch_ = std::move(next);  // no graph reads it, and a copy would take time
    return;
  }
  if (!batch_.images.defined()) {
    batch_ = {torch::empty_like(next.images, next.images.options().device(device_)),
              torch::empty_like(next.labels, next.labels.options().device(device_))};
  }
  copy_to_static(next.images, batch_.images);
  copy_to_static(next.labels, batch_.labels);
}

}  // namespace lowtide
