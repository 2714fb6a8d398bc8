#include "lowtide/io/onnx.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lowtide {
namespace {

std::string hex_of(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

OnnxGraph body() {
  OnnxGraph graph;
  graph.name = "body";
  graph.nodes.push_back({"inner", "Identity", {"a"}, {"b"}, {}});
  graph.inputs.push_back({"a", OnnxType::kFloat, {std::int64_t{1}}});
  graph.outputs.push_back({"b", OnnxType::kFloat, {std::int64_t{1}}});
  return graph;
}

// The bytes are those of onnx 1.12 in Python, by ModelProto.SerializeToString().
TEST(Onnx, WritesTheBytesOfTheFormatsOwnLibrary) {
  OnnxGraph graph;
  graph.name = "net";
  graph.constants.push_back({"w", OnnxType::kUint8, {2, 1}, "\x07\xc8"});
  graph.nodes.push_back({"conv",
                         "Conv",
                         {"x", "w", ""},
                         {"y"},
                         {{"pads", std::vector<std::int64_t>{1, -1}},
                          {"group", std::int64_t{300}},
                          {"mode", std::string("floor")},
                          {"epsilon", 0.5},
                          {"body", std::make_shared<const OnnxGraph>(body())}}});
  graph.inputs.push_back({"x", OnnxType::kFloat, {"items", std::int64_t{3}}});
  graph.outputs.push_back({"y", OnnxType::kInt64, {}});
  EXPECT_EQ(
      hex_of(serialise(graph, {{"k", "v"}})),
      "080812076c6f77746964653aef010ab1010a01780a01770a001201791a04636f6e762204436f6e762a160a0470616473400140"
      "ffffffffffffffffff01a001072a0d0a0567726f757018ac02a001022a100a046d6f64652205666c6f6f72a001032a110a0765"
      "7073696c6f6e150000003fa001012a4c0a04626f647932410a170a01611201621a05696e6e657222084964656e746974791204"
      "626f64795a0f0a0161120a0a08080112040a020801620f0a0162120a0a08080112040a020801a0010512036e65742a0d080208"
      "0110024201774a0207c85a180a017812130a110801120d0a0712056974656d730a020803620b0a017912060a04080712004204"
      "0a00101172060a016b120176");
}

}  // namespace
}  // namespace lowtide
