#pragma once

#include "lowtide/base/torch.h"
#include "lowtide/engine/engine.h"

namespace lowtide {

// The three products of a convolution as loops in double precision over decoded values.
namespace naive {

inline torch::Tensor values(const Quantized& q) { return decode(q).to(torch::kDouble).contiguous(); }

// Calls term(n, o, oy, ox, c, iy, ix, part, ky, kx) for every product there is: `c` is the input's channel,
// `part` the same within its group. Positions in the padding are zeros and give none.
template <typename Term>
void for_each_term(const ConvShape& s, const Term& term) {
  const std::int64_t channels = s.weight[1], outputs = s.weight[0] / s.groups;
  for (std::int64_t n = 0; n < s.input[0]; ++n)
    for (std::int64_t o = 0; o < s.weight[0]; ++o)
      for (std::int64_t oy = 0; oy < s.output_height(); ++oy)
        for (std::int64_t ox = 0; ox < s.output_width(); ++ox)
          for (std::int64_t ky = 0; ky < s.weight[2]; ++ky)
            for (std::int64_t kx = 0; kx < s.weight[3]; ++kx) {
              const std::int64_t iy = oy * s.stride[0] + ky * s.dilation[0] - s.padding[0];
              const std::int64_t ix = ox * s.stride[1] + kx * s.dilation[1] - s.padding[1];
              if (iy < 0 || ix < 0 || iy >= s.input[2] || ix >= s.input[3]) continue;
              for (std::int64_t part = 0; part < channels; ++part)
                term(n, o, oy, ox, o / outputs * channels + part, iy, ix, part, ky, kx);
            }
}

inline torch::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& s) {
  torch::Tensor y =
      torch::zeros({s.input[0], s.weight[0], s.output_height(), s.output_width()}, torch::kDouble);
  const torch::Tensor xv = values(x), wv = values(w);
  const auto xa = xv.accessor<double, 4>(), wa = wv.accessor<double, 4>();
  auto ya = y.accessor<double, 4>();
  for_each_term(s, [&](auto n, auto o, auto oy, auto ox, auto c, auto iy, auto ix, auto part, auto ky,
                       auto kx) { ya[n][o][oy][ox] += xa[n][c][iy][ix] * wa[o][part][ky][kx]; });
  return y;
}

inline torch::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& s) {
  torch::Tensor dx = torch::zeros(s.input, torch::kDouble);
  const torch::Tensor dyv = values(dy), wv = values(w);
  const auto dya = dyv.accessor<double, 4>(), wa = wv.accessor<double, 4>();
  auto dxa = dx.accessor<double, 4>();
  for_each_term(s, [&](auto n, auto o, auto oy, auto ox, auto c, auto iy, auto ix, auto part, auto ky,
                       auto kx) { dxa[n][c][iy][ix] += dya[n][o][oy][ox] * wa[o][part][ky][kx]; });
  return dx;
}

inline torch::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& s) {
  torch::Tensor dw = torch::zeros(s.weight, torch::kDouble);
  const torch::Tensor dyv = values(dy), xv = values(x);
  const auto dya = dyv.accessor<double, 4>(), xa = xv.accessor<double, 4>();
  auto dwa = dw.accessor<double, 4>();
  for_each_term(s, [&](auto n, auto o, auto oy, auto ox, auto c, auto iy, auto ix, auto part, auto ky,
                       auto kx) { dwa[o][part][ky][kx] += dya[n][o][oy][ox] * xa[n][c][iy][ix]; });
  return dw;
}

}  // namespace naive
}  // namespace lowtide
