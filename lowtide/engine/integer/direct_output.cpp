#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/conv_methods.h"
#include "lowtide/engine/integer/direct_walk.h"
#include "lowtide/engine/integer/output_epilogue.h"

namespace lowtide::integer {
namespace {

void pack_weights(const GroupWeights& w, const Phase& phase, std::int64_t channels, PackedWeights& packed) {
  const std::int64_t quads = quads_for(w.inputs);
  for (const VectorBlock& block : packed.blocks) {
    for (int v = 0; v < block.vectors; ++v) {
      const std::int64_t first = (block.first + v) * kLanes;
      for (std::size_t tap = 0; tap < phase.taps.size(); ++tap) {
        for (std::int64_t quad = 0; quad < quads; ++quad) {
          std::uint8_t* to = packed.at(block, v, static_cast<std::int64_t>(tap), quad);
          std::fill_n(to, kVectorBytes, std::uint8_t{0});
          const std::int64_t bytes = std::min<std::int64_t>(kQuad, w.inputs - quad * kQuad);
          for (std::int64_t lane = 0; lane < std::min<std::int64_t>(kLanes, channels - first); ++lane) {
            const std::uint8_t* from = w.at(first + lane, phase.taps[tap]) + quad * kQuad;
            for (std::int64_t i = 0; i < bytes; ++i) to[lane * kQuad + i] = from[i];
          }
        }
      }
    }
  }
}

}  // namespace

at::Tensor direct_output(const Quantized& x, const Quantized& w, const ConvShape& shape,
                         ImageWatcher* watcher, const TileKernels& tiles) {
  const Plan plan = output_plan(shape);
  const std::int64_t outputs = shape.weight[0] / shape.groups, inputs = shape.weight[1];
  at::Tensor y = at::empty({shape.input[0], shape.weight[0], plan.out_rows, plan.out_cols},
                           x.scale.options().memory_format(at::MemoryFormat::ChannelsLast));
  std::vector<PhaseOperands<OutputEpilogue>> operands;
  const Phase& phase = plan.phases[0];
  const Affine input = Affine::of(x);
  const auto taps = static_cast<std::int64_t>(phase.taps.size());
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    const GroupWeights weights{w.code.data_ptr<std::uint8_t>() + group * outputs * taps * inputs,
                               shape.weight[2], shape.weight[3], inputs};
    operands.push_back(
        {PackedWeights(vectors_for(outputs), taps, quads_for(inputs)),
         make_output_epilogue(weights, phase, input, affine_rows(w, group * outputs, outputs))});
    pack_weights(weights, phase, outputs, operands.back().weights);
  }
  const DirectCall call{.code = x.code.data_ptr<std::uint8_t>(),
                        .items = shape.input[0],
                        .groups = shape.groups,
                        .in_channels = inputs,
                        .out_channels = outputs,
                        .code_bias = input.code_bias,
                        .out = y,
                        .watcher = watcher};
  DirectWalk<OutputEpilogue>(plan, call, operands, tiles).run(shape.macs() * shape.input[0]);
  return y;
}

}  // namespace lowtide::integer
