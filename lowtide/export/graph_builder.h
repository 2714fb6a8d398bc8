#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lowtide/io/onnx.h"

namespace lowtide {

// What flows along an edge of a graph, by its name there.
using Value = std::string;

// Of a tensor of float32, float64, uint8, int8, int32, int64 or bool.
OnnxType onnx_type(const at::Tensor& tensor);

// An ONNX graph that grows node by node. What is there already is not written twice: equal constants, and nodes that do the same
// to the same values, are one. So layers that read the same codes share them, as they do in the library.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name) { graph_.name = std::move(name); }

  // A body of a node of `outer`: its values may be read, and no name of theirs is used again. Constants, and what depends on none
  // of the body's inputs, are written there: a body is run many times.
  GraphBuilder(std::string name, GraphBuilder& outer) : GraphBuilder(std::move(name)) {
    names_ = outer.names_;
    outer_ = &outer;
  }

  // What follows is named after this layer.
  void enter(const std::string& layer) { layer_ = layer; }
  const std::string& layer() const { return layer_; }

  Value input(const std::string& name, OnnxType type, std::vector<OnnxDimension> shape);
  void output(const Value& value, const std::string& name, OnnxType type, std::vector<OnnxDimension> shape);

  // Of a type that graphs have, on any device.
  Value constant(const at::Tensor& tensor, const std::string& name);
  Value number(double value);                               // float32, a scalar
  Value integers(const std::vector<std::int64_t>& values);  // int64

  Value node(const std::string& op, const std::vector<Value>& inputs,
             const std::vector<OnnxAttribute>& attributes = {});
  std::vector<Value> nodes(const std::string& op, const std::vector<Value>& inputs,
                           const std::vector<OnnxAttribute>& attributes, std::size_t outputs);

  const OnnxGraph& graph() const { return graph_; }

 private:
  std::string unused_name(const std::string& name);

  OnnxGraph graph_;
  GraphBuilder* outer_ = nullptr;
  std::set<Value> own_;  // inputs and results of nodes
  std::string layer_;
  std::shared_ptr<std::set<std::string>> names_ = std::make_shared<std::set<std::string>>();
  std::map<std::string, std::vector<Value>> known_;  // what is there, by all that it is made of
};

}  // namespace lowtide
