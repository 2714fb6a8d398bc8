#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lowtide {

// Graphs of the ONNX format (github.com/onnx/onnx, onnx.proto), as far as networks are written here. Written by the wire
// format itself: a libonnx beside the one inside of PyTorch's builds would register the same messages twice.

inline constexpr std::int64_t kOnnxOpset = 17;

// By the numbers that the format has for them.
enum class OnnxType { kFloat = 1, kUint8 = 2, kInt8 = 3, kInt32 = 6, kInt64 = 7, kBool = 9, kDouble = 11 };

struct OnnxTensor {
  std::string name;
  OnnxType type = OnnxType::kFloat;
  std::vector<std::int64_t> shape;  // empty for a scalar
  std::string bytes;                // little-endian and row-major
};

// A number; or a name, where it is known when the graph is run.
using OnnxDimension = std::variant<std::int64_t, std::string>;

struct OnnxValue {
  std::string name;
  OnnxType type = OnnxType::kFloat;
  std::vector<OnnxDimension> shape;
};

struct OnnxGraph;
struct OnnxAttribute {
  std::string name;
  std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::shared_ptr<const OnnxGraph>>
      value;
};

struct OnnxNode {
  std::string name, op;
  std::vector<std::string> inputs, outputs;  // names of values; an input that is left out is empty
  std::vector<OnnxAttribute> attributes;

  const OnnxAttribute* find(const std::string& attribute) const;  // nullptr where there is none
};

struct OnnxGraph {
  std::string name;
  std::vector<OnnxTensor> constants;
  std::vector<OnnxNode> nodes;  // each after those that it reads
  std::vector<OnnxValue> inputs, outputs;
};

// A file's bytes. UserError for a network of 2 GiB and more, which the format does not hold.
std::string serialise(const OnnxGraph& graph, const std::map<std::string, std::string>& metadata);

}  // namespace lowtide
