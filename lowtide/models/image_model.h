#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lowtide/models/initialise.h"
#include "lowtide/schedule/layer_rules.h"

namespace lowtide {

// A network from images (N×C×H×W) to logits (N×classes).
class ImageModel : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& images) = 0;

  // Which layers the papers leave in full precision, as rules that a user's rules may overrule.
  virtual std::vector<std::string> default_rules() const { return {"fc=fp32"}; }
};

struct ImageModelInfo {
  std::string name;
  int input_size;  // height and width it was designed for
  int classes;     // of the data set it was published for
  std::function<std::shared_ptr<ImageModel>(std::int64_t channels, std::int64_t classes)> make;
};

const std::vector<ImageModelInfo>& image_models();

// Adds a network of one's own: recipes, costs and runs then know it by its name. UserError for a name that is taken. To be
// called before tasks are made, by one thread.
void add_image_model(ImageModelInfo info);

// Throws UserError, naming those there are.
const ImageModelInfo& image_model(const std::string& name);

}  // namespace lowtide
