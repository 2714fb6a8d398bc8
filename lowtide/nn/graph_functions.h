#pragma once

#include "lowtide/nn/gather.h"
#include "lowtide/nn/layer_call.h"

// What quantised layers on graphs are made of. Values have a range for each node (row), measured in evaluation too, and
// are rounded to nearest; errors have one range for the whole tensor and are rounded as the call's noise says.

namespace lowtide {

// Every row times its factor: the codes stay.
Quantized scaled_rows(const Quantized& x, const at::Tensor& factor);

// How a weight is stored: as the papers' code has it, inputs × outputs with a range for each input (GCN, GAT), or
// outputs × inputs with a range for each output (GraphSAGE).
enum class WeightRows { kInputs, kOutputs };

// factor · x · weight, where factor (one a row, or undefined) scales the rows of x. `codes` are those of x.
at::Tensor graph_product(const at::Tensor& x, const Quantized& codes, const at::Tensor& factor,
                         const at::Tensor& weight, WeightRows weight_rows,
                         const c10::intrusive_ptr<LayerCall>& call);

// The same for sparse x, which asks for no gradient.
at::Tensor sparse_product(const SparseFeatures& x, const at::Tensor& factor, const at::Tensor& weight,
                          WeightRows weight_rows, const c10::intrusive_ptr<LayerCall>& call);

// Sums over neighbours: those of row i are multiplied by column_factor and their sum by row_factor. With `quantized`
// (Q-Agg) what is summed is quantised first, and so is the gradient at the sum; else both are fp32 (FP-Agg).
struct Aggregation {
  std::shared_ptr<const Gather> gather;
  at::Tensor row_factor, column_factor;
  bool quantized = false;
};
at::Tensor graph_aggregate(const at::Tensor& x, const Aggregation& how,
                           const c10::intrusive_ptr<LayerCall>& call);

// factor · x, quantised, plus the bias, quantised as a whole; the gradient at the sum is quantised.
at::Tensor graph_add_bias(const at::Tensor& x, const at::Tensor& factor, const at::Tensor& bias,
                          const c10::intrusive_ptr<LayerCall>& call);

// x quantised by row on its way forward, its gradient as a whole on its way back.
at::Tensor quantize_both_ways(const at::Tensor& x, const c10::intrusive_ptr<LayerCall>& call);

}  // namespace lowtide
