#include "lowtide/models/image_model.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/models/cifar_mobilenet_v2.h"
#include "lowtide/models/cifar_resnet.h"
#include "lowtide/models/imagenet_resnet.h"

namespace lowtide {

const std::vector<ImageModelInfo>& image_models() {
  static const std::vector<ImageModelInfo> models = [] {
    std::vector<ImageModelInfo> list;
    for (const int layers : {8, 20, 38, 74, 110, 152}) {
      list.push_back({fmt::format("cifar-resnet{}", layers), 32, 10, [layers](auto channels, auto classes) {
                        return make_cifar_resnet(layers, channels, classes);
                      }});
    }
    list.push_back({"cifar-mobilenet-v2", 32, 10, make_cifar_mobilenet_v2});
    for (const int layers : {18, 34, 50}) {
      list.push_back({fmt::format("resnet{}", layers), 224, 1000, [layers](auto channels, auto classes) {
                        return make_imagenet_resnet(layers, channels, classes);
                      }});
    }
    return list;
  }();
  return models;
}

const ImageModelInfo& image_model(const std::string& name) {
  std::string names;
  for (const ImageModelInfo& info : image_models()) {
    if (info.name == name) return info;
    names += (names.empty() ? "" : ", ") + info.name;
  }
  throw UserError(fmt::format("unknown model '{}'; there are: {}", name, names));
}

}  // namespace lowtide
