// A network of one's own, trained on a cyclic schedule.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "lowtide/base/error.h"
#include "lowtide/models/image_model.h"
#include "lowtide/nn/pixel_mean.h"
#include "lowtide/nn/quant_linear.h"
#include "lowtide/train/trainer.h"
#include "lowtide/trunk/trunk.h"

namespace {

// Two convolutions, each with batch normalisation and ReLU, and a classifier. The names of the layers are those that rules such
// as `--layer-bits conv1=8`, checkpoints and tables of costs know them by: conv1, norm1, conv2, norm2, and fc, which stays in
// fp32 unless a rule says otherwise.
class SmallNet final : public lowtide::ImageModel {
 public:
  SmallNet(std::int64_t channels, std::int64_t classes)
      : fc_(lowtide::QuantLinearOptions{.in_features = 32, .out_features = classes}) {
    trunk_.append(lowtide::register_block(*this, {.convs = {conv3x3(channels, 16, 1), conv3x3(16, 32, 2)}}));
    register_module("fc", fc_);
  }

  at::Tensor forward(const at::Tensor& images) override {
    return fc_(lowtide::pixel_mean(trunk_.forward(images)));
  }

 private:
  static lowtide::QuantConv2dOptions conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride) {
    return {.in_channels = in, .out_channels = out, .kernel = 3, .stride = stride, .padding = 1};
  }

  lowtide::Trunk trunk_;
  lowtide::QuantLinear fc_;
};

}  // namespace

int main(int argc, char** argv) try {
  // From here on it is a model like any other: recipes, costs, checkpoints and resume know it by its name.
  lowtide::add_image_model({"small-net", 28, 10, [](std::int64_t channels, std::int64_t classes) {
                              return std::make_shared<SmallNet>(channels, classes);
                            }});

  lowtide::Recipe recipe;
  recipe.model.name = "small-net";
  recipe.data.format = "idx";
  recipe.data.dir = "/usr/share/datasets/fashion-mnist";
  recipe.data.validation = 5000;
  recipe.precision.schedule = "CR";
  recipe.precision.bits = "3:8";
  recipe.training.steps = 500;
  std::string out = "runs/own-network";

  // Every key of a recipe is an option, as it is of `lowtide train`.
  CLI::App app("Train a small network on a cyclic schedule.", "own-network");
  app.add_option("--out", out, "run folder; a run that is there goes on")->capture_default_str();
  lowtide::define_recipe(app, recipe);
  CLI11_PARSE(app, argc, argv);
  lowtide::check(recipe);

  const lowtide::TrainingEnd end = lowtide::Trainer(recipe, "own-network").run(out, /*resume=*/true);
  if (end.signal != 0) return 128 + end.signal;
  fmt::print("test accuracy {:.2f} %, cost {:.4f} of fp32\n", 100 * *end.result.test.metric,
             end.result.relative_cost);
  return 0;
} catch (const lowtide::UserError& error) {
  fmt::print(stderr, "own-network: {}\n", error.what());
  return 2;
}
