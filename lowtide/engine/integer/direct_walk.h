#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "lowtide/base/fetch.h"
#include "lowtide/base/parallel.h"
#include "lowtide/base/scratch.h"
#include "lowtide/engine/cpu/image_watcher.h"
#include "lowtide/engine/integer/method.h"
#include "lowtide/engine/integer/pack.h"
#include "lowtide/engine/integer/plan.h"
#include "lowtide/engine/integer/tiles.h"
#include "lowtide/engine/integer/tuning.h"

// The walk that a convolution's output and its input gradient have in common: pack an image, sum the tiles row by
// row, hand each row of integer sums to whoever makes floats of them.

namespace lowtide::integer {

// Vectors that a kernel works on together.
struct VectorBlock {
  std::int64_t first = 0;  // vector
  int vectors = 0;
};

// Blocks of 4 vectors, then 2, then 1; blocks of 3 if `threes`.
inline std::vector<VectorBlock> vector_blocks(std::int64_t vectors, bool threes = false) {
  std::vector<VectorBlock> blocks;
  for (std::int64_t first = 0; first < vectors;) {
    const std::int64_t left = vectors - first;
    const int now = threes ? 3 : left >= kMostVectors ? kMostVectors : left >= 2 ? 2 : 1;
    blocks.push_back({first, now});
    first += now;
  }
  return blocks;
}

inline std::int64_t vectors_for(std::int64_t channels) { return (channels + kLanes - 1) / kLanes; }
inline std::int64_t quads_for(std::int64_t channels) { return (channels + kQuad - 1) / kQuad; }

// The weights of one phase as the tiles read them: block after block, [tap][quad][vector of the block][16][4].
class PackedWeights {
 public:
  PackedWeights(std::int64_t vectors, std::int64_t taps, std::int64_t quads, bool threes = false)
      : blocks(vector_blocks(vectors, threes)), vector_bytes_(taps * quads * kVectorBytes), quads_(quads) {
    memory_.reserve(std::max<std::int64_t>(1, vectors * vector_bytes_));
  }

  // Where the 64 bytes of one vector stand.
  std::uint8_t* at(const VectorBlock& block, int vector, std::int64_t tap, std::int64_t quad) {
    return memory_.get() + block.first * vector_bytes_ +
           ((tap * quads_ + quad) * block.vectors + vector) * kVectorBytes;
  }
  const std::uint8_t* of(const VectorBlock& block) const {
    return memory_.get() + block.first * vector_bytes_;
  }

  const std::vector<VectorBlock> blocks;

 private:
  std::int64_t vector_bytes_, quads_;
  Scratch<std::uint8_t> memory_;
};

// One row of sums: [pixel][block.vectors · 16], with what turns them into floats.
struct SumRow {
  VectorBlock block;
  const std::int32_t* sum = nullptr;
  const std::int32_t* window_sum = nullptr;  // Σ of the signed input codes under each pixel's valid taps
  std::size_t row_class = 0;
  const std::vector<Phase::Run>* runs = nullptr;
  float* out = nullptr;           // of the row's first pixel, at the group's first channel
  std::int64_t out_step = 0;      // floats from a pixel to the next
  const float* addend = nullptr;  // added, where there is something
  std::int64_t addend_step = 0;
};

// Operands of one phase within one group. Epilogue has: row(const SumRow&) const.
template <typename Epilogue>
struct PhaseOperands {
  PackedWeights weights;
  Epilogue epilogue;
};

// The image that is packed, and the float tensor that is written, both channels last.
struct DirectCall {
  const std::uint8_t* code = nullptr;
  std::int64_t items = 0, groups = 1;
  std::int64_t in_channels = 0, out_channels = 0;  // of one group
  std::int32_t code_bias = 0;                      // see Affine
  at::Tensor out;
  ImageWatcher* watcher = nullptr;
  at::Tensor addend{};  // for the epilogue to add: like `out`, or the first phase's pixels alone
};

template <typename Epilogue>
class DirectWalk {
 public:
  // `operands` are ordered by group, then by phase.
  DirectWalk(const Plan& plan, const DirectCall& call, std::vector<PhaseOperands<Epilogue>>& operands,
             const TileKernels& tiles)
      : plan_(plan), call_(call), operands_(operands), tiles_(tiles), quads_(quads_for(call.in_channels)) {
    for (const Phase& phase : plan.phases) {
      TapOffsets& offsets = tap_offsets_.emplace_back();
      for (const Tap& tap : phase.taps) {
        offsets.pixels.push_back(static_cast<std::int32_t>(tap.row * plan.pitch() + plan.column(tap.col)));
        offsets.bytes.push_back(
            static_cast<std::int32_t>(offsets.pixels.back() * tiles.layout(quads_, 0).pixel_step));
      }
      offsets.run = run_of(offsets.pixels);
    }
  }

  void run(std::int64_t macs) {
    const std::int64_t rows = plan_.rows_of_longest_phase();
    band_ = rows_at_once(rows);
    const std::int64_t bands = (rows + band_ - 1) / band_;
    const std::int64_t tasks = call_.items * call_.groups * bands;
    watcher_ = tasks == call_.items ? call_.watcher : nullptr;
    if (watcher_) watcher_->begin(call_.out);
    TaskQueues(tasks, grain_for(macs, tasks)).run([&](TaskQueues::Worker& worker) {
      const TileUse use(tiles_);
      while (const std::optional<std::int64_t> task = worker.next_task()) {
        const std::int64_t first = *task % bands * band_;
        const std::int64_t group = *task / bands % call_.groups;
        work(*task / bands / call_.groups, group, first, std::min(rows, first + band_));
        if (watcher_) watcher_->image(*task);
      }
    });
  }

 private:
  // The packed rows of a task stay in a cache, and a small batch of large images is cut so that several cores find work.
  std::int64_t rows_at_once(std::int64_t rows) const {
    const std::int64_t row_bytes = quads_ * kQuad * plan_.pitch();
    const std::int64_t fit = (kPackedBytes / row_bytes - plan_.window_rows()) / plan_.row_step;
    const std::int64_t tasks = call_.items * call_.groups;
    const std::int64_t rows_per_task =
        tasks >= kEnoughTasks ? rows : std::max(kLeastBandRows, rows * tasks / kEnoughTasks);
    return std::clamp<std::int64_t>(std::min(fit, rows_per_task), 1, rows);
  }

  // Packed ones that a band reads; the last band of an image may have fewer.
  std::int64_t band_pixels() const {
    return std::min(plan_.packed_rows, (band_ - 1) * plan_.row_step + plan_.window_rows()) * plan_.pitch();
  }

  // Rows [first, last) of every phase of one image's group.
  void work(std::int64_t item, std::int64_t group, std::int64_t first, std::int64_t last) const {
    thread_local Scratch<std::int8_t> packed_memory;
    thread_local Scratch<std::int32_t> channel_sum_memory;
    const std::int64_t packed_first = first * plan_.row_step;
    const std::int64_t packed_rows =
        std::min(plan_.packed_rows, (last - 1) * plan_.row_step + plan_.window_rows()) - packed_first;
    const std::int64_t pixels = packed_rows * plan_.pitch();
    const std::int64_t all_channels = call_.in_channels * call_.groups;
    std::int8_t* packed = packed_memory.at_least(quads_ * band_pixels() * kQuad);
    std::int32_t* channel_sums = channel_sum_memory.at_least(band_pixels());
    const ImageCodes image{.code = call_.code + item * plan_.source_rows * plan_.source_cols * all_channels +
                                   group * call_.in_channels,
                           .channels = call_.in_channels,
                           .pixel_step = all_channels,
                           .code_bias = call_.code_bias};
    const auto pack = tiles_.reads_whole_pixels() ? pack_pixels : pack_quads;
    pack(plan_, image, packed_first, packed_rows, packed);
    tiles_.channel_sums(packed, quads_, tiles_.layout(quads_, pixels), pixels, channel_sums);
    for (std::size_t i = 0; i < plan_.phases.size(); ++i) {
      const std::int64_t end = std::min(last, plan_.phases[i].rows);
      if (first < end) phase_rows(i, item, group, first, end, {packed, channel_sums, pixels});
    }
  }

  struct Packed {
    const std::int8_t* code;
    const std::int32_t* channel_sums;
    std::int64_t pixels;
  };

  void phase_rows(std::size_t index, std::int64_t item, std::int64_t group, std::int64_t first,
                  std::int64_t last, const Packed& packed) const {
    thread_local Scratch<std::int32_t> window_memory, sum_memory;
    const Phase& phase = plan_.phases[index];
    const TapOffsets& taps = tap_offsets_[index];
    PhaseOperands<Epilogue>& operands =
        operands_[static_cast<std::size_t>(group) * plan_.phases.size() + index];
    std::int32_t* window_sum = window_memory.at_least(band_ * phase.cols);
    const std::int64_t row_pixels = plan_.row_step * plan_.pitch(), together = rows_together(phase);
    std::int32_t* sum =
        sum_memory.at_least(((together - 1) * row_pixels + phase.cols) * kMostVectors * kLanes);
    for (std::int64_t row = 0; row < last - first; ++row) {
      window_sums(packed.channel_sums + row * row_pixels, taps.pixels.data(), taps.pixels.size(), phase.cols,
                  window_sum + row * phase.cols);
    }
    DotRow dot;
    dot.tap = taps.bytes.data();
    dot.taps = static_cast<int>(taps.bytes.size());
    dot.quads = quads_;
    dot.run = taps.run;
    dot.layout = tiles_.layout(quads_, packed.pixels);
    dot.sum = sum;
    const std::int64_t out_channels = call_.out_channels * call_.groups;
    const std::int64_t pixel_step = plan_.out_col_step * out_channels;
    float* image = call_.out.data_ptr<float>() + item * plan_.out_rows * plan_.out_cols * out_channels;
    const float* hint = watcher_ ? watcher_->prefetch_hint(item) : nullptr;
    for (const VectorBlock& block : operands.weights.blocks) {
      dot.weight = operands.weights.of(block);
      for (std::int64_t row = first; row < last; ++row) {
        const std::int64_t out_row = phase.first_row + row * plan_.out_row_step;
        const std::int64_t first_float =
            (out_row * plan_.out_cols + phase.first_col) * out_channels + group * call_.out_channels;
        const std::int64_t joined = (row - first) % together;
        if (joined == 0) {
          const std::int64_t rows = std::min(together, last - row);
          dot.pixels = (rows - 1) * row_pixels + phase.cols;
          dot.input = packed.code + (row - first) * row_pixels * dot.layout.pixel_step;
          dot.prefetch = {};
          if (block.first == 0) {
            dot.prefetch = {.write = image + first_float,
                            .read = hint ? hint + first_float : nullptr,
                            .step = pixel_step,
                            .floats = call_.out_channels};
            // Some of the pixels lie between rows then: each fetches an equal part of the results.
            if (rows > 1)
              dot.prefetch.step = dot.prefetch.floats = rows * phase.cols * out_channels / dot.pixels;
          }
          tiles_.dot_row(dot, block.vectors);
        }
        if (index == 0 && block.first == 0) fetch_next(item, row, phase.rows);
        const Addend addend = addend_row(phase, item, row, group, first_float);
        operands.epilogue.row(
            {.block = block,
             .sum = sum + joined * row_pixels * block.vectors * kLanes,
             .window_sum = window_sum + (row - first) * phase.cols,
             .row_class = static_cast<std::size_t>(phase.row_class[static_cast<std::size_t>(row)]),
             .runs = &phase.col_runs,
             .out = image + first_float,
             .out_step = pixel_step,
             .addend = addend.first,
             .addend_step = addend.step});
      }
    }
  }

  // The part of the next image's codes that falls to one of the rows of this one.
  LOWTIDE_FETCHES void fetch_next(std::int64_t item, std::int64_t row, std::int64_t rows) const {
    const std::int64_t image = plan_.source_rows * plan_.source_cols * call_.in_channels * call_.groups;
    const std::int64_t first = image * row / rows, last = image * (row + 1) / rows;
    if (item + 1 < call_.items)
      fetch<Fetch::kToReadLater>(call_.code + (item + 1) * image + first, last - first);
  }

  // Rows that are summed as one, with what lies between them.
  std::int64_t rows_together(const Phase& phase) const {
    const bool gains = joins_rows(phase.cols, call_.groups, tiles_.set);
    const bool neighbours = plan_.row_step == 1 && plan_.out_row_step == 1 && plan_.out_col_step == 1;
    return gains && neighbours ? std::clamp<std::int64_t>(kJoinedPixels / plan_.pitch(), 1, phase.rows) : 1;
  }

  // Where the taps of a phase read, relative to an output pixel.
  struct TapOffsets {
    std::vector<std::int32_t> pixels, bytes;
    int run = 1;  // see DotRow
  };

  static int run_of(const std::vector<std::int32_t>& pixels) {
    std::size_t run = 1;
    while (run < pixels.size() && pixels[run] == pixels[run - 1] + 1) ++run;
    for (std::size_t i = 1; i < pixels.size(); ++i) {
      if (i % run != 0 && pixels[i] != pixels[i - 1] + 1) return 1;
    }
    return pixels.size() % run == 0 ? static_cast<int>(run) : 1;
  }

  struct Addend {
    const float* first = nullptr;
    std::int64_t step = 0;
  };

  // What is added to the row of results that begins `first_float` floats into its image.
  Addend addend_row(const Phase& phase, std::int64_t item, std::int64_t row, std::int64_t group,
                    std::int64_t first_float) const {
    if (!call_.addend.defined()) return {};
    const std::int64_t channels = call_.out_channels * call_.groups;
    const float* addend = call_.addend.data_ptr<float>();
    if (call_.addend.sizes() == call_.out.sizes()) {
      return {addend + item * plan_.out_rows * plan_.out_cols * channels + first_float,
              plan_.out_col_step * channels};
    }
    if (phase.first_row != 0 || phase.first_col != 0) return {};
    return {addend + (item * phase.rows + row) * phase.cols * channels + group * call_.out_channels,
            channels};
  }

  const Plan& plan_;
  const DirectCall call_;
  std::vector<PhaseOperands<Epilogue>>& operands_;
  const TileKernels& tiles_;
  const std::int64_t quads_;
  std::vector<TapOffsets> tap_offsets_;  // by phase
  ImageWatcher* watcher_ = nullptr;
  std::int64_t band_ = 0;  // rows
};

}  // namespace lowtide::integer
