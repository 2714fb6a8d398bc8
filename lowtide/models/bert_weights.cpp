#include "lowtide/models/bert_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <map>
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/base/torch.h"
#include "lowtide/io/safetensors.h"

namespace lowtide {
namespace {

const std::map<std::string, std::string> kModules{{"word_embedding", "embeddings.word_embeddings"},
                                                  {"position_embedding", "embeddings.position_embeddings"},
                                                  {"type_embedding", "embeddings.token_type_embeddings"},
                                                  {"embedding_norm", "embeddings.LayerNorm"},
                                                  {"attention.query", "attention.self.query"},
                                                  {"attention.key", "attention.self.key"},
                                                  {"attention.value", "attention.self.value"},
                                                  {"attention.output", "attention.output.dense"},
                                                  {"attention_norm", "attention.output.LayerNorm"},
                                                  {"expand", "intermediate.dense"},
                                                  {"contract", "output.dense"},
                                                  {"output_norm", "output.LayerNorm"},
                                                  {"pooler", "pooler.dense"},
                                                  {"classifier", "classifier"}};

constexpr std::string_view kClassifier = "classifier.";

torch::ScalarType scalar_type_of(const TensorView& view, const std::string& file) {
  switch (view.dtype) {
    case DType::kF32:
      return torch::kFloat32;
    case DType::kF64:
      return torch::kFloat64;
    case DType::kF16:
      return torch::kFloat16;
    case DType::kBF16:
      return torch::kBFloat16;
    default:
      throw UserError(fmt::format("{}: tensor {} is {}; expected floating point", file, view.name,
                                  dtype_name(view.dtype)));
  }
}

// Whatever name the file has it under; nullptr where it has none.
const TensorView* find(const SafetensorsFile& file, const std::string& name) {
  std::vector<std::string> names{name};
  for (const auto& [now, before] :
       {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, std::pair{"LayerNorm.bias", "LayerNorm.beta"}}) {
    if (name.ends_with(now)) names.push_back(name.substr(0, name.size() - std::strlen(now)) + before);
  }
  for (const std::string& candidate : names) {
    for (const char* prefix : {"bert.", ""}) {
      if (const TensorView* view = file.find(prefix + candidate)) return view;
    }
  }
  return nullptr;
}

void copy(const TensorView& view, const torch::Tensor& parameter, const std::string& file) {
  if (view.shape != parameter.sizes().vec()) {
    throw UserError(
        fmt::format("{}: tensor {} is {}; this network has {} there: give the configuration it belongs to",
                    file, view.name, view.shape, parameter.sizes().vec()));
  }
  const torch::Tensor host = torch::empty(parameter.sizes(), scalar_type_of(view, file));
  std::memcpy(host.data_ptr(), view.data.data(), view.data.size());
  parameter.copy_(host);
}

}  // namespace

std::string published_name(const std::string& parameter) {
  const std::size_t leaf = parameter.rfind('.');
  std::string module = parameter.substr(0, leaf), place;
  if (module.starts_with("layer")) {
    const std::size_t dot = module.find('.');
    place = "encoder.layer." + module.substr(5, dot - 5) + ".";
    module = module.substr(dot + 1);
  }
  return place + kModules.at(module) + parameter.substr(leaf);
}

void load_bert_weights(BertClassifier& model, const std::filesystem::path& path) {
  const torch::NoGradGuard no_grad;
  const SafetensorsFile file(path);
  for (const auto& item : model.named_parameters()) {
    const std::string name = published_name(item.key());
    const TensorView* view = find(file, name);
    if (view == nullptr && name.starts_with(kClassifier)) continue;
    if (view == nullptr) {
      throw UserError(fmt::format("{}: no tensor {}; expected the weights of a BERT of {} layers",
                                  path.string(), name, model.config().layers));
    }
    copy(*view, item.value(), path.string());
  }
}

}  // namespace lowtide
