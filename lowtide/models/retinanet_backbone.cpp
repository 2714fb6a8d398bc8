#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <string_view>

#include "lowtide/base/error.h"
#include "lowtide/base/torch.h"
#include "lowtide/io/safetensors.h"
#include "lowtide/models/retinanet.h"
#include "lowtide/models/torchvision_names.h"

namespace lowtide {
namespace {

bool is_of_backbone(std::string_view name) {
  const bool is_range = name.ends_with("activation_min") || name.ends_with("activation_range");
  return !is_range && (name.starts_with("conv1.") || name.starts_with("norm1.") || name.starts_with("layer"));
}

void copy(const SafetensorsFile& file, const std::string& path, const std::string& name,
          const at::Tensor& to) {
  const TensorView* view = file.find(name);
  const auto fail = [&](const std::string& what) {
    throw UserError(fmt::format("{}: {}; expected {} F32 {} of a ResNet with torchvision's names", path, what,
                                name, to.sizes().vec()));
  };
  if (view == nullptr) return fail("no tensor " + name);
  if (view->dtype != DType::kF32 || view->shape != to.sizes().vec()) {
    return fail(fmt::format("{} is {} {}", name, dtype_name(view->dtype), view->shape));
  }
  const at::Tensor host = torch::empty(to.sizes());
  std::memcpy(host.data_ptr(), view->data.data(), view->data.size());
  to.copy_(host);
}

}  // namespace

void RetinaNet::load_backbone(const std::filesystem::path& file) {
  const torch::NoGradGuard no_grad;
  const SafetensorsFile tensors(file);
  for (const auto& list : {named_parameters(), named_buffers()}) {
    for (const auto& item : list) {
      if (is_of_backbone(item.key()))
        copy(tensors, file.string(), torchvision_name(item.key()), item.value());
    }
  }
}

}  // namespace lowtide
