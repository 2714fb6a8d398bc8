#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/parse.h"
#include "lowtide/base/json.h"
#include "lowtide/models/bert.h"
#include "lowtide/models/graph_network.h"
#include "lowtide/models/language_model.h"
#include "lowtide/tasks/detection_setup.h"
#include "lowtide/tasks/image_setup.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {
namespace {

struct Described {
  std::string name;
  std::string item;                 // what the MACs are counted for
  std::vector<std::int64_t> input;  // its size
  std::int64_t classes = 0;
  std::string sizes;  // of a network that is not known by its name alone
};

Json row(const Described& what, const torch::nn::Module& model, const std::vector<Ledger::Layer>& layers) {
  std::int64_t parameters = 0, macs = 0;
  for (const auto& parameter : model.parameters()) parameters += parameter.numel();
  for (const Ledger::Layer& layer : layers) macs += layer.macs;
  return {{"model", what.name},  {"item", what.item},        {"input", what.input}, {"classes", what.classes},
          {"sizes", what.sizes}, {"parameters", parameters}, {"macs", macs}};
}

Json image_row(const ImageModelInfo& info) {
  const ImageShape shape{3, info.input_size, info.input_size, info.classes};
  const auto execution = make_execution({}, {}, /*seed=*/1);
  const auto model = make_image_model(info.name, shape, {}, execution);
  return row({info.name, "image", {3, info.input_size, info.input_size}, info.classes, ""}, *model,
             layers_of(*model, *execution, shape));
}

// As large as the others' images, for comparison; those of VOC are larger.
Json detection_row(const DetectionModelInfo& info) {
  constexpr std::int64_t kSide = 224;
  const std::size_t classes = kVocClasses.size();
  ModelOptions options;
  options.name = info.name;
  const auto execution = make_execution({}, {}, /*seed=*/1);
  const auto model = make_detector(options, classes, {}, execution);
  return row({info.name, "image", {3, kSide, kSide}, static_cast<std::int64_t>(classes), ""}, *model,
             layers_of(*model, *execution, kSide, kSide));
}

// As the recipes of Penn Treebank and WikiText-2 have them.
Json language_row(const std::string& name) {
  const bool recurrent = name == "lstm";
  const std::int64_t length = recurrent ? 35 : 64;
  const LanguageModelOptions options{.words = recurrent ? 10'000 : 33'278,
                                     .units = recurrent ? 800 : 200,
                                     .layers = recurrent ? 1 : 2,
                                     .heads = 4,
                                     .feed_forward = 400};
  const auto model = make_language_model(name, options);
  const auto execution = make_execution({}, {}, /*seed=*/1);
  attach_layers(*model, execution, model->default_rules(), {}, name);
  const auto layers = measure_layers(*model, *execution, length, [&] {
    NamedTensors state = model->initial_state(1);
    model->forward(torch::zeros({length, 1}, torch::kInt64), state);
  });
  return row(
      {name, "word", {length}, options.words, fmt::format("{} x {} units", options.layers, options.units)},
      *model, layers);
}

// BERT base, as XNLI has it.
Json bert_row() {
  constexpr std::int64_t kLength = 128, kClasses = 3;
  const BertConfig config;
  const auto model = std::make_shared<BertClassifier>(config, kClasses);
  const auto execution = make_execution({}, {}, /*seed=*/1);
  attach_layers(*model, execution, {}, {}, "bert");
  const auto layers = measure_layers(*model, *execution, 1, [&] {
    const torch::Tensor words = torch::zeros({1, kLength}, torch::kInt64);
    model->forward({words, words, torch::ones_like(words)});
  });
  return row(
      {"bert", "pair", {kLength}, kClasses, fmt::format("{} x {} units", config.layers, config.hidden)},
      *model, layers);
}

// As the recipes of OGBN-Arxiv (gcn, gat) and OGBN-Products (sage) have them, on the whole graph.
Json graph_row(const std::string& name) {
  const bool products = name == "sage";
  const GraphNetworkOptions options{.features = products ? 100 : 128,
                                    .classes = products ? 47 : 40,
                                    .hidden = 512,
                                    .layers = products ? 2 : 3,
                                    .heads = name == "gat" ? 8 : 1};
  const auto model = make_graph_network(name, options);
  const auto execution = make_execution({}, {}, /*seed=*/1);
  attach_layers(*model, execution, {}, {}, name);
  const auto layers = measure_layers(*model, *execution, 1, [&] {
    const Csr one_node = with_self_loops(csr_from_edges(1, {}));
    model->forward({torch::zeros({1, options.features}), {}, {}},
                   {make_gather(one_node, torch::kCPU, {.gradients = false, .entries = name == "gat"})});
  });
  return row({name,
              "node",
              {options.features},
              options.classes,
              fmt::format("{} x {} units", options.layers, options.hidden)},
             *model, layers);
}

}  // namespace

int models_command(int argc, char** argv) {
  bool json = false;
  CLI::App app("List the models with their parameters and multiply-accumulates.", "models");
  app.add_flag("--json", json, "print JSON");
  if (const auto code = parse(app, argc, argv)) return *code;
  Json list = Json::array();
  for (const ImageModelInfo& info : image_models()) list.push_back(image_row(info));
  for (const DetectionModelInfo& info : detection_models()) list.push_back(detection_row(info));
  for (const std::string& name : language_model_names()) list.push_back(language_row(name));
  list.push_back(bert_row());
  for (const std::string& name : graph_network_names()) list.push_back(graph_row(name));
  if (json) return fmt::print("{}\n", list.dump(2)), 0;
  fmt::print("{:<20} {:<15} {:>10} {:>8} {:>12} {:>18}\n", "model", "", "input", "classes", "parameters",
             "MACs");
  for (const Json& model : list) {
    fmt::print("{:<20} {:<15} {:>10} {:>8} {:>12} {:>8.1f} M per {}\n", model.at("model").get<std::string>(),
               model.at("sizes").get<std::string>(),
               fmt::format("{}", fmt::join(model.at("input").get<std::vector<std::int64_t>>(), "x")),
               model.at("classes").get<std::int64_t>(), model.at("parameters").get<std::int64_t>(),
               model.at("macs").get<double>() / 1e6, model.at("item").get<std::string>());
  }
  return 0;
}

}  // namespace lowtide
