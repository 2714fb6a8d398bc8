#pragma once

#include <map>
#include <string>
#include <utility>

#include "lowtide/bench/roofline.h"
#include "lowtide/engine/simulated.h"

namespace lowtide {

// Computes as `simulated` does and counts what any engine must do at the least for the products that are asked of it:
// - multiply-accumulates, each product's once;
// - bytes: an operand (an activation, a weight, an error) is written once, and read by each product that it is part of, but no more
//   than twice: what a way forward reads again and again, as a recurrent weight, it may keep; on the way back it must be read anew.
//   Codes of 8 bits and fewer are bytes, all else is 4.
// What lies between two products (sums turned into floats, normalisation, activation, ranges, codes) moves nothing then: it can
// happen where the sums are, as images that stay do it. So do statistics for the way back, by computing outputs again.
class WorkRecorder final : public Engine {
 public:
  std::string name() const override { return "recorder"; }
  LeastWork work() const;

  at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) const override;
  at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w,
                                   const ConvShape& shape) const override;
  at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                    const ConvShape& shape) const override;
  at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape) const override;
  at::Tensor aggregate(const SparseRows& matrix, const Quantized& features) const override;

 private:
  struct Operand {
    at::Tensor kept;  // or its memory would be another's
    double bytes = 0;
    int reads = 0;
  };

  void read(const at::Tensor& tensor, double bytes) const;
  void read(const Quantized& operand) const;
  void record(const Quantized& a, const Quantized& b, std::int64_t macs) const;

  SimulatedEngine simulated_;
  mutable std::map<std::pair<const void*, std::int64_t>, Operand>
      operands_;  // by where they begin, and how many they are
  mutable double byte_macs_ = 0, float_macs_ = 0;
};

// What a step of training adds to its products: every parameter and every number of its optimiser is read and written, and so
// is every gradient.
double least_update_bytes(std::int64_t parameters, std::int64_t optimizer_numbers);

}  // namespace lowtide
