#include "lowtide/export/graph_builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lowtide/base/error.h"
#include "lowtide/io/digest.h"

namespace lowtide {
namespace {

// Equal where the attribute is. A body is like no other.
std::string text_of(const OnnxAttribute& attribute) {
  const auto text = [](const auto& value) -> std::string {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::shared_ptr<const OnnxGraph>>) {
      return fmt::format("{}", static_cast<const void*>(value.get()));
    } else {
      return fmt::format("{}", value);
    }
  };
  return fmt::format("{}={}", attribute.name, std::visit(text, attribute.value));
}

}  // namespace

OnnxType onnx_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return OnnxType::kFloat;
    case at::kByte:
      return OnnxType::kUint8;
    case at::kChar:
      return OnnxType::kInt8;
    case at::kInt:
      return OnnxType::kInt32;
    case at::kLong:
      return OnnxType::kInt64;
    case at::kBool:
      return OnnxType::kBool;
    case at::kDouble:
      return OnnxType::kDouble;
    default:
      invariant_failed("a type that graphs have", __FILE__, __LINE__, c10::toString(tensor.scalar_type()));
  }
}

std::string GraphBuilder::unused_name(const std::string& name) {
  const std::string whole = layer_.empty() ? name : layer_ + "/" + name;
  std::string candidate = whole;
  for (int i = 2; !names_->insert(candidate).second; ++i) candidate = fmt::format("{}_{}", whole, i);
  return candidate;
}

Value GraphBuilder::input(const std::string& name, OnnxType type, std::vector<OnnxDimension> shape) {
  names_->insert(name);
  own_.insert(name);
  graph_.inputs.push_back({name, type, std::move(shape)});
  return name;
}

// By a node of its own: the name is the user's, and a value may be an output twice.
void GraphBuilder::output(const Value& value, const std::string& name, OnnxType type,
                          std::vector<OnnxDimension> shape) {
  names_->insert(name);
  graph_.nodes.push_back({unused_name(name + "/Identity"), "Identity", {value}, {name}, {}});
  graph_.outputs.push_back({name, type, std::move(shape)});
}

Value GraphBuilder::constant(const at::Tensor& tensor, const std::string& name) {
  if (outer_ != nullptr) return outer_->constant(tensor, name);
  const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
  OnnxTensor stored;
  stored.type = onnx_type(host);
  stored.shape = host.sizes().vec();
  stored.bytes.assign(static_cast<const char*>(host.data_ptr()), host.nbytes());
  const ByteSpan bytes = bytes_of(stored.bytes);
  std::vector<Value>& known =
      known_[fmt::format("{} {} {}", static_cast<int>(stored.type), stored.shape, xxh128({&bytes, 1}))];
  if (known.empty()) {
    stored.name = unused_name(name);
    known = {stored.name};
    graph_.constants.push_back(std::move(stored));
  }
  return known[0];
}

Value GraphBuilder::number(double value) { return constant(at::scalar_tensor(value, at::kFloat), "number"); }

Value GraphBuilder::integers(const std::vector<std::int64_t>& values) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<std::int64_t>());
  return constant(tensor, "integers");
}

Value GraphBuilder::node(const std::string& op, const std::vector<Value>& inputs,
                         const std::vector<OnnxAttribute>& attributes) {
  return nodes(op, inputs, attributes, 1)[0];
}

std::vector<Value> GraphBuilder::nodes(const std::string& op, const std::vector<Value>& inputs,
                                       const std::vector<OnnxAttribute>& attributes, std::size_t outputs) {
  const auto is_own = [&](const Value& value) { return own_.contains(value); };
  if (outer_ != nullptr && std::none_of(inputs.begin(), inputs.end(), is_own))
    return outer_->nodes(op, inputs, attributes, outputs);
  std::string key = fmt::format("{}({})", op, fmt::join(inputs, ", "));
  for (const OnnxAttribute& attribute : attributes) key += " " + text_of(attribute);
  std::vector<Value>& known = known_[key];
  if (known.empty()) {
    OnnxNode node{unused_name(op), op, inputs, {}, attributes};
    for (std::size_t i = 0; i < outputs; ++i) known.push_back(unused_name(op + ".out"));
    node.outputs = known;
    own_.insert(known.begin(), known.end());
    graph_.nodes.push_back(std::move(node));
  }
  return known;
}

}  // namespace lowtide
