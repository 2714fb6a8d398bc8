// A network of one's own, trained on a cyclic schedule.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "lowtide/base/error.h"
#include "lowtide/models/image_model.h"
#include "lowtide/nn/norm_act.h"
#include "lowtide/nn/pixel_mean.h"
#include "lowtide/nn/quant_conv2d.h"
#include "lowtide/nn/quant_linear.h"
#include "lowtide/train/trainer.h"

namespace {

// Two convolutions and a classifier. The names of the layers are those that rules such as `--layer-bits conv1=8`,
// checkpoints and tables of costs know them by; a classifier named fc stays in fp32 unless a rule says otherwise.
class SmallNet final : public lowtide::ImageModel {
 public:
  SmallNet(std::int64_t channels, std::int64_t classes)
      : conv1_(register_module("conv1", convolution(channels, 16, 1))),
        norm1_(register_module("norm1", lowtide::NormAct(lowtide::NormActOptions{.channels = 16}))),
        conv2_(register_module("conv2", convolution(16, 32, 2))),
        norm2_(register_module("norm2", lowtide::NormAct(lowtide::NormActOptions{.channels = 32}))),
        fc_(register_module("fc", lowtide::QuantLinear(lowtide::QuantLinearOptions{
                                      .in_features = 32, .out_features = classes}))) {}

  at::Tensor forward(const at::Tensor& images) override {
    const lowtide::Activation x = norm1_(conv1_(images));
    return fc_(lowtide::pixel_mean(norm2_(conv2_(x)).value));
  }

 private:
  static lowtide::QuantConv2d convolution(std::int64_t in, std::int64_t out, std::int64_t stride) {
    return lowtide::QuantConv2d(lowtide::QuantConv2dOptions{
        .in_channels = in, .out_channels = out, .kernel = 3, .stride = stride, .padding = 1});
  }

  lowtide::QuantConv2d conv1_;
  lowtide::NormAct norm1_;
  lowtide::QuantConv2d conv2_;
  lowtide::NormAct norm2_;
  lowtide::QuantLinear fc_;
};

}  // namespace

int main(int argc, char** argv) try {
  // From here on it is a model like any other: recipes, costs, checkpoints and resume know it by its name.
  lowtide::add_image_model({"small-net", 28, 10, [](std::int64_t channels, std::int64_t classes) {
                              return std::make_shared<SmallNet>(channels, classes);
                            }});

  lowtide::Recipe recipe;
  recipe.model = "small-net";
  recipe.data = "idx";
  recipe.data_dir = "/usr/share/datasets/fashion-mnist";
  recipe.validation = 5000;
  recipe.schedule = "CR";
  recipe.bits = "3:8";
  recipe.steps = 500;
  std::string out = "runs/own-network";

  // Every key of a recipe is an option, as it is of `lowtide train`.
  CLI::App app("Train a small network on a cyclic schedule.", "own-network");
  app.add_option("--out", out, "run folder; a run that is there goes on")->capture_default_str();
  lowtide::define_recipe(app, recipe);
  CLI11_PARSE(app, argc, argv);
  lowtide::check(recipe);

  const lowtide::TrainingEnd end = lowtide::Trainer(recipe, "own-network").run(out, /*resume=*/true);
  if (end.signal != 0) return 128 + end.signal;
  fmt::print("test accuracy {:.2f} %, cost {:.4f} of fp32\n", 100 * end.result.at("test").get<double>(),
             end.result.at("relative_cost").get<double>());
  return 0;
} catch (const lowtide::UserError& error) {
  fmt::print(stderr, "own-network: {}\n", error.what());
  return 2;
}
