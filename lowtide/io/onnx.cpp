#include "lowtide/io/onnx.h"

#include <fmt/format.h>

#include <limits>

#include "lowtide/base/error.h"
#include "lowtide/io/protobuf.h"

namespace lowtide {
namespace {

// Field numbers of onnx.proto, message by message.
namespace model_field {
constexpr std::uint64_t kIrVersion = 1, kProducer = 2, kGraph = 7, kOpset = 8, kMetadata = 14;
}
namespace opset_field {
constexpr std::uint64_t kDomain = 1, kVersion = 2;
}
namespace entry_field {
constexpr std::uint64_t kKey = 1, kValue = 2;
}
namespace graph_field {
constexpr std::uint64_t kNode = 1, kName = 2, kInitializer = 5, kInput = 11, kOutput = 12;
}
namespace node_field {
constexpr std::uint64_t kInput = 1, kOutput = 2, kName = 3, kOperator = 4, kAttribute = 5;
}
namespace attribute_field {
constexpr std::uint64_t kName = 1, kFloat = 2, kInteger = 3, kString = 4, kGraph = 6, kIntegers = 8,
                        kType = 20;
}
namespace tensor_field {
constexpr std::uint64_t kDimension = 1, kType = 2, kName = 8, kBytes = 9;
}
namespace value_field {
constexpr std::uint64_t kName = 1, kType = 2;
}
namespace type_field {  // TypeProto, its Tensor, the shape of that and a dimension
constexpr std::uint64_t kTensor = 1, kElement = 1, kShape = 2, kDimension = 1, kNumber = 1, kParameter = 2;
}

constexpr std::int64_t kIrVersion = 8;  // the first that has opset 17

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

std::string message_of(const OnnxGraph& graph);

std::string message_of(const OnnxTensor& tensor) {
  std::string message;
  for (const std::int64_t size : tensor.shape) append_integer(message, tensor_field::kDimension, size);
  append_integer(message, tensor_field::kType, static_cast<std::int64_t>(tensor.type));
  append_bytes(message, tensor_field::kName, tensor.name);
  append_bytes(message, tensor_field::kBytes, tensor.bytes);
  return message;
}

std::string message_of(const OnnxDimension& dimension) {
  std::string message;
  std::visit(
      Overloaded{[&](std::int64_t number) { append_integer(message, type_field::kNumber, number); },
                 [&](const std::string& name) { append_bytes(message, type_field::kParameter, name); }},
      dimension);
  return message;
}

std::string message_of(const OnnxValue& value) {
  std::string shape, tensor, type, message;
  for (const OnnxDimension& dimension : value.shape)
    append_bytes(shape, type_field::kDimension, message_of(dimension));
  append_integer(tensor, type_field::kElement, static_cast<std::int64_t>(value.type));
  append_bytes(tensor, type_field::kShape, shape);
  append_bytes(type, type_field::kTensor, tensor);
  append_bytes(message, value_field::kName, value.name);
  append_bytes(message, value_field::kType, type);
  return message;
}

std::string message_of(const OnnxAttribute& attribute) {
  enum Type : std::int64_t { kFloat = 1, kInteger = 2, kString = 3, kGraph = 5, kIntegers = 7 };
  std::string message;
  append_bytes(message, attribute_field::kName, attribute.name);
  const auto type = [&](Type number) { append_integer(message, attribute_field::kType, number); };
  std::visit(Overloaded{[&](std::int64_t value) {
                          append_integer(message, attribute_field::kInteger, value);
                          type(kInteger);
                        },
                        [&](double value) {
                          append_float(message, attribute_field::kFloat, static_cast<float>(value));
                          type(kFloat);
                        },
                        [&](const std::string& value) {
                          append_bytes(message, attribute_field::kString, value);
                          type(kString);
                        },
                        [&](const std::vector<std::int64_t>& values) {
                          for (const std::int64_t value : values)
                            append_integer(message, attribute_field::kIntegers, value);
                          type(kIntegers);
                        },
                        [&](const std::shared_ptr<const OnnxGraph>& graph) {
                          append_bytes(message, attribute_field::kGraph, message_of(*graph));
                          type(kGraph);
                        }},
             attribute.value);
  return message;
}

std::string message_of(const OnnxNode& node) {
  std::string message;
  for (const std::string& name : node.inputs) append_bytes(message, node_field::kInput, name);
  for (const std::string& name : node.outputs) append_bytes(message, node_field::kOutput, name);
  append_bytes(message, node_field::kName, node.name);
  append_bytes(message, node_field::kOperator, node.op);
  for (const OnnxAttribute& attribute : node.attributes)
    append_bytes(message, node_field::kAttribute, message_of(attribute));
  return message;
}

std::string message_of(const OnnxGraph& graph) {
  std::string message;
  for (const OnnxNode& node : graph.nodes) append_bytes(message, graph_field::kNode, message_of(node));
  append_bytes(message, graph_field::kName, graph.name);
  for (const OnnxTensor& tensor : graph.constants)
    append_bytes(message, graph_field::kInitializer, message_of(tensor));
  for (const OnnxValue& value : graph.inputs) append_bytes(message, graph_field::kInput, message_of(value));
  for (const OnnxValue& value : graph.outputs) append_bytes(message, graph_field::kOutput, message_of(value));
  return message;
}

}  // namespace

const OnnxAttribute* OnnxNode::find(const std::string& attribute) const {
  for (const OnnxAttribute& candidate : attributes) {
    if (candidate.name == attribute) return &candidate;
  }
  return nullptr;
}

std::string serialise(const OnnxGraph& graph, const std::map<std::string, std::string>& metadata) {
  std::string opset, model;
  append_bytes(opset, opset_field::kDomain, "");
  append_integer(opset, opset_field::kVersion, kOnnxOpset);
  append_integer(model, model_field::kIrVersion, kIrVersion);
  append_bytes(model, model_field::kProducer, "lowtide");
  append_bytes(model, model_field::kGraph, message_of(graph));
  append_bytes(model, model_field::kOpset, opset);
  for (const auto& [key, value] : metadata) {
    std::string entry;
    append_bytes(entry, entry_field::kKey, key);
    append_bytes(entry, entry_field::kValue, value);
    append_bytes(model, model_field::kMetadata, entry);
  }
  if (model.size() > std::numeric_limits<std::int32_t>::max()) {
    throw UserError(fmt::format("the network takes {:.1f} GiB; ONNX's format holds less than 2 GiB in a file",
                                static_cast<double>(model.size()) / (1 << 30)));
  }
  return model;
}

}  // namespace lowtide
