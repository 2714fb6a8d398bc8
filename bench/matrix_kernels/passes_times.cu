#include <memory>
#include <utility>

#include "bench/matrix_kernels/drawn.h"
#include "bench/matrix_kernels/graph.h"
#include "bench/matrix_kernels/noise.cuh"
#include "bench/matrix_kernels/subjects.h"
#include "bench/matrix_kernels/timing.h"
#include "lowtide/engine/cuda/aggregate_kernels.h"
#include "lowtide/nn/attention_kernels.h"
#include "lowtide/nn/dropout_kernels.h"
#include "lowtide/nn/layer_norm_kernels.h"
#include "lowtide/nn/row_kernels.h"
#include "lowtide/nn/tensor_norm_kernels.h"

namespace lowtide::cuda::bench {

void time_passes() {
  constexpr int kRows = 8192, kWide = 3072;
  constexpr std::size_t kMost = static_cast<std::size_t>(169343) * 512;
  auto x = std::shared_ptr<Buffer<float>>(floats(kMost)), g = std::shared_ptr<Buffer<float>>(floats(kMost));
  auto y = std::make_shared<Buffer<float>>(kMost), z = std::make_shared<Buffer<float>>(kMost);
  auto code = std::make_shared<Buffer<std::uint8_t>>(kMost);
  auto min = std::shared_ptr<Buffer<float>>(floats(200000, 0.1f, -1)),
       range = std::shared_ptr<Buffer<float>>(floats(200000, 0.1f, 2)),
       scale = std::shared_ptr<Buffer<float>>(floats(200000, 0.001f, 0.01f));
  auto scratch = std::make_shared<Buffer<std::uint8_t>>(kRangeScratchBytes);
  auto work = std::make_shared<Buffer<double>>(kTensorMeansWork);
  const auto add = [](const std::string& name, double bytes, std::function<void(int)> f) {
    timings.push_back({name, bytes, 0, std::move(f)});
  };
  for (const int columns : {768, kWide}) {
    const double n = static_cast<double>(kRows) * columns;
    const std::string shape = " 8192 x " + std::to_string(columns);
    add("range" + shape, 4 * n, [=](int) {
      kCudaQuantizer.measure_range({.x = *x,
                                    .min = *min,
                                    .range = *range,
                                    .rows = 1,
                                    .length = static_cast<std::int64_t>(n),
                                    .scratch = *scratch},
                                   stream);
    });
    add("ranges by position" + shape, 4 * n, [=](int) {
      measure_positions_on_gpu(
          {.x = *x, .min = *min, .range = *range, .items = 64, .positions = 128, .length = columns}, stream);
    });
    add("codes with noise" + shape, 5 * n, [=](int) {
      EncodeArguments a;
      a.x = *x;
      a.min = *min;
      a.range = *range;
      a.scale = *scale;
      a.code = *code;
      a.rows = kRows;
      a.length = columns;
      a.bits = 8;
      a.counter = &kCounter;
      kCudaQuantizer.encode(a, stream);
    });
    add("codes summed" + shape, n, [=](int) {
      sum_codes_on_gpu({.code = *code,
                        .scale = *scale,
                        .offset = *min,
                        .by_row = true,
                        .sum = *y,
                        .partial = *z,
                        .rows = kRows,
                        .columns = columns},
                       stream);
    });
  }
  const double u = 8192.0 * 768 * 4;
  const DropoutNoise noise{kKeptScale, kCounter, nullptr};
  add("dropout 8192 x 768", 2.25 * u, [=](int) {
    dropout_on_gpu(
        {.x = *x, .y = *y, .code = *code, .n = 8192 * 768, .scale = kKeptScale, .counter = kCounter}, stream);
  });
  add("residual norm 8192 x 768", 4 * u, [=](int) {
    residual_norm_on_gpu({.x = *x,
                          .added = *g,
                          .dropout = noise,
                          .weight = *scale,
                          .bias = *min,
                          .epsilon = 1e-5,
                          .rows = kRows,
                          .columns = 768,
                          .sum = *y,
                          .y = *z,
                          .mean = *min,
                          .inverse = *range},
                         stream);
  });
  add("  its gradient", 4 * u, [=](int) {
    residual_norm_gradient_on_gpu({.sum = *x,
                                   .gradient = *g,
                                   .weight = *scale,
                                   .mean = *min,
                                   .inverse = *range,
                                   .dropout = noise,
                                   .rows = kRows,
                                   .columns = 768,
                                   .dx = *y,
                                   .dadded = *z,
                                   .partial = *z + kMost / 2,
                                   .weight_and_bias = *scale + 10000},
                                  stream);
  });
  AttendArguments a;
  a.scores = *x;
  a.mask = *min;
  a.mask_item = 128;
  a.factor = 0.125f;
  a.items = 64;
  a.heads = 12;
  a.rows = a.length = 128;
  a.dropout = noise;
  a.p = *y;
  a.weights = *z;
  a.min = *range;
  a.range = *scale;
  const double scores = 64.0 * 12 * 128 * 128 * 4;
  add("attention's weights", 3 * scores, [=](int) { attend_on_gpu(a, stream); });
  add("  their gradient", 3 * scores, [=](int) { attend_gradient_on_gpu({a, *x, *g, *y}, stream); });
  add("  ranges of errors by position, heads", scores, [=](int) {
    measure_positions_on_gpu(
        {.x = *x, .min = *min, .range = *range, .items = 64, .positions = 1536, .length = 128}, stream);
  });
  for (const bool transposed : {false, true})
    add(transposed ? "codes by head, transposed" : "codes by head", 1.25 * u, [=](int) {
      encode_heads_on_gpu({.x = *x,
                           .items = 64,
                           .length = 128,
                           .heads = 12,
                           .units = 64,
                           .transposed = transposed,
                           .bits = 8,
                           .code = *code,
                           .scale = *scale,
                           .min = *min},
                          stream);
    });
  const double features = static_cast<double>(kMost) * 4;
  const NormedTensor of{*x, static_cast<std::int64_t>(kMost), true, noise};
  add("graph: statistics of a norm", 2 * features, [=](int) {
    tensor_statistics_on_gpu({.of = of, .epsilon = 1e-5, .work = *work, .mean = *min, .factor = *range},
                             stream);
  });
  add("graph: ReLU, norm, dropout", 2 * features,
      [=](int) { normalise_on_gpu({.of = of, .mean = *min, .factor = *range, .y = *y}, stream); });
  add("graph: its gradient", 5 * features, [=](int) {
    normalise_gradient_on_gpu(
        {.of = of, .gradient = *g, .mean = *min, .factor = *range, .work = *work, .means = *scale, .dx = *y},
        stream);
  });
  add("graph: rows rounded", 2 * features, [=](int) {
    round_rows_on_gpu(
        {.x = *x, .factor = *range, .bias = *min, .bits = 8, .y = *y, .rows = 169343, .columns = 512},
        stream);
  });
  add("graph: range", features, [=](int) {
    kCudaQuantizer.measure_range({.x = *x,
                                  .min = *min,
                                  .range = *range,
                                  .rows = 1,
                                  .length = static_cast<std::int64_t>(kMost),
                                  .scratch = *scratch},
                                 stream);
  });
  add("graph: codes with noise", 1.25 * features, [=](int) {
    EncodeArguments e;
    e.x = *x;
    e.min = *min;
    e.range = *range;
    e.scale = *scale;
    e.code = *code;
    e.rows = 1;
    e.length = static_cast<std::int64_t>(kMost);
    e.bits = 8;
    e.counter = &kCounter;
    kCudaQuantizer.encode(e, stream);
  });
  add("graph: codes decoded and summed", 1.25 * features, [=](int) {
    sum_codes_on_gpu({.code = *code,
                      .scale = *scale,
                      .offset = *min,
                      .by_row = false,
                      .factor = *range,
                      .y = *y,
                      .sum = *scale + 10000,
                      .partial = *z,
                      .rows = 169343,
                      .columns = 512},
                     stream);
  });
  const Graph graph = drawn_graph(169343, 14.77, 15);
  auto offsets = std::make_shared<Buffer<std::int64_t>>(graph.offsets);
  auto indices = std::make_shared<Buffer<std::int32_t>>(graph.indices);
  for (const int width : {512, 128, 40}) {
    AggregateArguments s;
    s.offsets = *offsets;
    s.indices = *indices;
    s.row_factor = s.column_factor = *scale;
    s.values = *x;
    s.rows = 169343;
    s.width = width;
    s.y = *y;
    add("graph: sums over neighbours of " + std::to_string(width),
        static_cast<double>(graph.indices.size()) * width * 4, [=](int) {
          (void)offsets, (void)indices;
          aggregate(s, stream);
        });
  }
}

}  // namespace lowtide::cuda::bench
