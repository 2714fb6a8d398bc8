#include "lowtide/engine/engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/engine/cuda.h"
#include "lowtide/engine/integer.h"
#include "lowtide/engine/plain_conv_norm.h"
#include "lowtide/engine/simulated.h"

namespace lowtide {

at::Tensor Engine::linear(const Quantized& x, const Quantized& w, const at::Tensor& bias) const {
  at::Tensor y = product(x, w, {.transpose_b = true});
  return bias.defined() ? y.add_(bias) : y;
}

std::unique_ptr<const PreparedOperand> Engine::prepare(const Quantized& b, bool transposed) const {
  return std::make_unique<PreparedOperand>(b, transposed);
}

at::Tensor Engine::multiply(const Quantized& a, const PreparedOperand& b) const {
  return product(a, b.codes, {.transpose_b = b.transposed});
}

std::vector<std::shared_ptr<const PreparedConv>> Engine::prepare_convs(const std::vector<ConvWeight>& weights,
                                                                       bool /*keeps*/) const {
  std::vector<std::shared_ptr<const PreparedConv>> prepared;
  for (const ConvWeight& of : weights) {
    auto conv = std::make_shared<PreparedConv>();
    conv->weight = encode_rows(of.weight, of.bits);
    prepared.push_back(std::move(conv));
  }
  return prepared;
}

std::unique_ptr<ConvNorm> Engine::conv_norm(const ConvNormCall& call) const {
  return std::make_unique<PlainConvNorm>(*this, call);
}

std::vector<std::string> engine_names() {
  std::vector<std::string> names{"simulated", "integer"};
  if (kWithCuda) names.emplace_back("cuda");
  return names;
}

std::string choose_engine(const std::string& asked, const std::string& device) {
  const bool on_cpu = device == "cpu";
  if (asked == "auto") {
    const bool is_fast = integer::instruction_sets().front() >= integer::InstructionSet::kVnni;
    if (!on_cpu) return kWithCuda ? "cuda" : "simulated";
    return is_fast ? "integer" : "simulated";
  }
  if (asked == "integer" && !on_cpu) {
    throw UserError(
        fmt::format("engine 'integer' runs on the CPU, device is '{}'; use --engine auto", device));
  }
  if (asked == "cuda" && on_cpu)
    throw UserError("engine 'cuda' runs on a GPU, device is 'cpu'; use --device cuda, or --engine auto");
  return asked;
}

std::shared_ptr<const Engine> make_engine(const std::string& name) {
  if (name == "simulated") return std::make_shared<SimulatedEngine>();
  if (name == "integer") return std::make_shared<IntegerEngine>();
#if defined(LOWTIDE_WITH_CUDA)
  if (name == "cuda") return std::make_shared<CudaEngine>();
#endif
  const std::vector<std::string> names = engine_names();
  throw UserError(fmt::format("unknown engine '{}'{}; this build has: {}", name,
                              did_you_mean(name, {names.begin(), names.end()}), fmt::join(names, ", ")));
}

}  // namespace lowtide
