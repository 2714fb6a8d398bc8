#include "lowtide/models/image_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/models/cifar_mobilenet_v2.h"
#include "lowtide/models/cifar_resnet.h"
#include "lowtide/models/imagenet_resnet.h"

namespace lowtide {
namespace {

std::vector<ImageModelInfo>& all_models() {
  static std::vector<ImageModelInfo> models = [] {
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

}  // namespace

const std::vector<ImageModelInfo>& image_models() { return all_models(); }

void add_image_model(ImageModelInfo info) {
  for (const ImageModelInfo& known : image_models()) {
    if (known.name == info.name) throw UserError(fmt::format("there is a model '{}' already", info.name));
  }
  all_models().push_back(std::move(info));
}

const ImageModelInfo& image_model(const std::string& name) {
  std::vector<std::string_view> names;
  for (const ImageModelInfo& info : image_models()) {
    if (info.name == name) return info;
    names.push_back(info.name);
  }
  throw UserError(fmt::format("unknown model '{}'{}; there are: {}", name, did_you_mean(name, names),
                              fmt::join(names, ", ")));
}

}  // namespace lowtide
