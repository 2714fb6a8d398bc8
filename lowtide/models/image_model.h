#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/models/initialise.h"
#include "lowtide/nn/quant_linear.h"
#include "lowtide/schedule/layer_rules.h"
#include "lowtide/trunk/trunk.h"

namespace lowtide {

// What such a network is made of, for whoever writes it down elsewhere: trunks in a row, the mean over the pixels, a
// classifier.
struct ImageLayout {
  std::vector<Trunk> trunks;
  bool pools_first = false;  // a max pooling of 3×3 in steps of 2 after the first trunk
  QuantLinear classifier{nullptr};
};

// A network from images (N×C×H×W) to logits (N×classes).
class ImageModel : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& images) = 0;

  // Which layers the papers leave in full precision, as rules that a user's rules may overrule.
  virtual std::vector<std::string> default_rules() const { return {"fc=fp32"}; }

  // Nothing where the network is not of that form.
  virtual std::optional<ImageLayout> layout() const { return std::nullopt; }
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
