#include "lowtide/bench/model_shapes.h"

#include <algorithm>

#include "lowtide/base/torch.h"
#include "lowtide/engine/simulated.h"
#include "lowtide/models/image_model.h"
#include "lowtide/nn/quant_layer.h"

namespace lowtide {
namespace {

// Computes nothing of use: notes the shapes that a model asks for.
class ShapeRecorder final : public Engine {
 public:
  explicit ShapeRecorder(std::vector<ConvShape>& shapes) : shapes_(shapes) {}
  std::string name() const override { return "recorder"; }
  at::Tensor conv2d(const Quantized& x, const Quantized& /*w*/, const ConvShape& shape) const override {
    shapes_.push_back(shape);
    return at::zeros({shape.input[0], shape.weight[0], shape.output_height(), shape.output_width()},
                     x.scale.defined() ? x.scale.options() : x.code.options());
  }
  at::Tensor conv2d_input_gradient(const Quantized& /*dy*/, const Quantized& w,
                                   const ConvShape& shape) const override {
    return at::zeros(shape.input, w.scale.options());
  }
  at::Tensor conv2d_weight_gradient(const Quantized& /*dy*/, const Quantized& x,
                                    const ConvShape& shape) const override {
    return at::zeros(shape.weight, x.scale.options());
  }
  at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape) const override {
    return SimulatedEngine().product(a, b, shape);
  }
  at::Tensor aggregate(const SparseRows& matrix, const Quantized& features) const override {
    return SimulatedEngine().aggregate(matrix, features);
  }

 private:
  std::vector<ConvShape>& shapes_;
};

std::vector<ConvShape> shapes_of(const std::string& name, std::int64_t batch) {
  const ImageModelInfo& info = image_model(name);
  const std::int64_t pixels = std::int64_t{info.input_size} * info.input_size;
  const std::int64_t items =
      info.input_size <= 32 ? batch : std::max<std::int64_t>(16, batch * 32 * 32 / pixels);
  std::vector<ConvShape> shapes;
  const auto model = info.make(3, info.classes);
  const auto execution = std::make_shared<Execution>();
  execution->engine = std::make_shared<ShapeRecorder>(shapes);
  attach_layers(*model, execution, LayerRules());
  model->eval();
  const torch::NoGradGuard no_grad;
  model->forward(torch::zeros({items, 3, info.input_size, info.input_size}));
  return shapes;
}

bool same_shape(const ConvShape& a, const ConvShape& b) {
  return a.input == b.input && a.weight == b.weight && a.stride == b.stride && a.padding == b.padding &&
         a.groups == b.groups;
}

}  // namespace

std::vector<ModelShape> model_shapes(const std::vector<std::string>& models, std::int64_t batch) {
  std::vector<ModelShape> distinct;
  for (const std::string& model : models) {
    for (const ConvShape& shape : shapes_of(model, batch)) {
      auto found = std::find_if(distinct.begin(), distinct.end(),
                                [&](const ModelShape& other) { return same_shape(other.shape, shape); });
      if (found == distinct.end()) found = distinct.insert(found, {shape, {}});
      if (found->models.empty() || found->models.back() != model) found->models.push_back(model);
    }
  }
  return distinct;
}

}  // namespace lowtide
