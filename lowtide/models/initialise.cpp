#include "lowtide/models/initialise.h"

#include <torch/nn/modules/embedding.h>

#include <cmath>
#include <numbers>

#include "lowtide/base/torch.h"
#include "lowtide/models/lstm_language_model.h"
#include "lowtide/nn/quant_conv2d.h"
#include "lowtide/nn/quant_gat_conv.h"
#include "lowtide/nn/quant_linear.h"

namespace lowtide {

namespace {

constexpr double kEmbeddingBound = 0.1;

// Glorot & Bengio 2010, eq. 16.
double glorot_bound(const at::Tensor& weight) {
  return std::sqrt(6.0 / static_cast<double>(weight.size(0) + weight.size(1)));
}

}  // namespace

// Box and Muller 1958.
void fill_normal(const at::Tensor& parameter, double deviation, RandomStream stream) {
  at::Tensor values = torch::empty(parameter.sizes());
  float* out = values.data_ptr<float>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double radius = std::sqrt(-2 * std::log(1.0 - stream.uniform()));
    out[i] = static_cast<float>(deviation * radius * std::cos(2 * std::numbers::pi * stream.uniform()));
  }
  parameter.copy_(values);
}

void fill_uniform(const at::Tensor& parameter, double bound, RandomStream stream) {
  at::Tensor values = torch::empty(parameter.sizes());
  float* out = values.data_ptr<float>();
  for (std::int64_t i = 0; i < values.numel(); ++i)
    out[i] = static_cast<float>(bound * (2 * stream.uniform() - 1));
  parameter.copy_(values);
}

void initialise(torch::nn::Module& model, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  std::uint32_t place = 0;
  const auto stream = [&] { return RandomStream(seed, RandomPurpose::kInitialisation, 0, place++); };
  for (const auto& module : model.modules()) {
    if (auto* conv = module->as<QuantConv2dImpl>()) {
      const auto& o = conv->options;
      const std::int64_t fan_out = o.kernel * o.kernel * o.out_channels / o.groups;
      fill_normal(conv->weight, std::sqrt(2.0 / static_cast<double>(fan_out)), stream());
      if (conv->bias.defined()) conv->bias.zero_();
    } else if (auto* linear = module->as<QuantLinearImpl>()) {
      const double bound = 1.0 / std::sqrt(static_cast<double>(linear->options.in_features));
      fill_uniform(linear->weight, bound, stream());
      if (linear->bias.defined()) fill_uniform(linear->bias, bound, stream());
    } else if (auto* lstm = module->as<QuantLstmImpl>()) {
      const double bound = 1.0 / std::sqrt(static_cast<double>(lstm->options.units));
      for (const at::Tensor& parameter : {lstm->input_weight, lstm->bias, lstm->hidden_weight}) {
        fill_uniform(parameter, bound, stream());
      }
    } else if (auto* gcn = module->as<QuantGcnConvImpl>()) {
      fill_uniform(gcn->weight, glorot_bound(gcn->weight), stream());
      gcn->bias.zero_();
    } else if (auto* sage = module->as<QuantSageConvImpl>()) {
      for (const at::Tensor& weight : {sage->self_weight, sage->neighbour_weight}) {
        fill_uniform(weight, std::sqrt(2.0) * glorot_bound(weight), stream());
      }
      sage->bias.zero_();
    } else if (auto* gat = module->as<QuantGatConvImpl>()) {
      for (const at::Tensor& weight : {gat->weight, gat->row_attention, gat->column_attention}) {
        fill_uniform(weight, glorot_bound(weight), stream());
      }
      gat->bias.zero_();
    } else if (auto* embedding = module->as<torch::nn::EmbeddingImpl>()) {
      const double deviation = 1.0 / std::sqrt(static_cast<double>(embedding->weight.size(1)));
      fill_normal(embedding->weight, deviation, stream());
    } else if (auto* language = module->as<LstmLanguageModel>()) {
      fill_uniform(language->embedding, kEmbeddingBound, stream());
    }
  }
}

}  // namespace lowtide
