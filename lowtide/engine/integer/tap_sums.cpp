#include "lowtide/engine/integer/tap_sums.h"

#include <algorithm>
#include <functional>
#include <mutex>

#include "lowtide/base/lanes.h"
#include "lowtide/base/simd.h"
#include "lowtide/quant/pieces.h"

namespace lowtide::integer {
namespace {

// Positions along one dimension: `count` of them from `first` on, `step` apart.
struct Run {
  std::int64_t first, step, count;

  bool has(std::int64_t position) const {
    const std::int64_t into = position - first;
    return into >= 0 && into % step == 0 && into / step < count;
  }
};

// The positions along one dimension that the tap at kernel position k meets.
Run met_by(std::int64_t k, const ConvShape& shape, std::size_t dimension, Met met) {
  const std::int64_t stride = shape.stride[dimension], padding = shape.padding[dimension];
  const std::int64_t output = dimension == 0 ? shape.output_height() : shape.output_width();
  const std::int64_t first = (std::max<std::int64_t>(0, padding - k) + stride - 1) / stride;
  const std::int64_t room = shape.input[2 + dimension] - 1 + padding - k;
  const std::int64_t last = room < 0 ? first : std::min(output, room / stride + 1);
  const std::int64_t count = std::max<std::int64_t>(0, last - first);
  return met == Met::kOutputs ? Run{first, 1, count} : Run{first * stride + k - padding, stride, count};
}

std::vector<Run> met_by_taps(const ConvShape& shape, std::size_t dimension, Met met) {
  std::vector<Run> runs;
  for (std::int64_t k = 0; k < shape.weight[2 + dimension]; ++k) {
    runs.push_back(met_by(k, shape, dimension, met));
  }
  return runs;
}

// Positions that the same taps meet. Away from the edges nearly all are in one class.
struct PositionClass {
  std::vector<bool> met_by;  // each tap
  std::vector<Run> runs;

  // The next position; no run becomes longer than `most`.
  void append(std::int64_t position, std::int64_t most) {
    if (!runs.empty() && runs.back().count < most) {
      Run& last = runs.back();
      if (last.count == 1) last.step = position - last.first;
      if (position == last.first + last.step * last.count) {
        ++last.count;
        return;
      }
    }
    runs.push_back({position, 1, 1});
  }
};

// The largest first: when the turn of the few positions at the edges comes, they are in the cache.
std::vector<PositionClass> classes_of(std::int64_t size, const std::vector<Run>& taps,
                                      std::int64_t longest_run) {
  std::vector<PositionClass> classes;
  for (std::int64_t position = 0; position < size; ++position) {
    std::vector<bool> met_by;
    for (const Run& tap : taps) met_by.push_back(tap.has(position));
    if (std::ranges::find(met_by, true) == met_by.end()) continue;
    auto known = std::ranges::find(classes, met_by, &PositionClass::met_by);
    if (known == classes.end()) known = classes.insert(known, {std::move(met_by), {}});
    known->append(position, longest_run);
  }
  std::ranges::sort(classes, std::greater<>(), [](const PositionClass& c) { return c.runs.front().count; });
  return classes;
}

// Pixels of an image, `row_step` and `col_step` codes apart.
struct Pixels {
  const std::uint8_t* code;
  std::int64_t rows, row_step, cols, col_step;
};

// to[c] += channel c of all pixels
LOWTIDE_SIMD void add_pixels(const Pixels& of, std::int64_t channels, std::int64_t* to) {
  const Pixels pixels = of;
  if (channels < kSimdLanes) {
    for (std::int64_t row = 0; row < pixels.rows; ++row) {
      const std::uint8_t* code = pixels.code + row * pixels.row_step;
      for (std::int64_t col = 0; col < pixels.cols; ++col, code += pixels.col_step) {
        for (std::int64_t c = 0; c < channels; ++c) to[c] += code[c];
      }
    }
    return;
  }
  for (std::int64_t done = 0; done < channels; done += kSimdLanes) {
    const std::int64_t first = std::min(done, channels - kSimdLanes);  // the last may overlap those before
    Ints sum{};
    for (std::int64_t row = 0; row < pixels.rows; ++row) {
      const std::uint8_t* code = pixels.code + row * pixels.row_step + first;
      for (std::int64_t col = 0; col < pixels.cols; ++col, code += pixels.col_step) {
        sum += LOWTIDE_LOAD_BYTES(code);
      }
    }
    std::int32_t lanes[kSimdLanes];
    LOWTIDE_STORE(lanes, sum);
    for (std::int64_t lane = done - first; lane < kSimdLanes; ++lane) to[first + lane] += lanes[lane];
  }
}

// Rows that a first-level cache holds while their channels are gone through; few enough for sums of 32 bits.
std::int64_t rows_at_once(std::int64_t row_codes) { return std::max<std::int64_t>(1, 16384 / row_codes); }

// Σ q of each class of rows and columns.
class ClassSums {
 public:
  ClassSums(const Quantized& q, const std::vector<Run>& rows, const std::vector<Run>& cols)
      : channels_(q.code.size(1)),
        row_codes_(q.code.size(3) * channels_),
        rows_(classes_of(q.code.size(2), rows, rows_at_once(row_codes_))),
        cols_(classes_of(q.code.size(3), cols, q.code.size(3))),
        sums_(rows_.size() * cols_.size() * static_cast<std::size_t>(channels_)) {
    const std::int64_t image = q.code.size(2) * row_codes_;
    std::mutex adding;  // the order does not matter to sums of integers
    // A core adds some 5 codes a nanosecond: a second thread pays from some 50,000 on.
    Pieces(q.code.size(0), 50'000 / image).share_out([&](Pieces::Share& share) {
      std::vector<std::int64_t> mine(sums_.size());
      while (const std::optional<std::int64_t> item = share.next()) {
        add_image(q.code.data_ptr<std::uint8_t>() + *item * image, mine.data());
      }
      const std::lock_guard lock(adding);
      std::ranges::transform(sums_, mine, sums_.begin(), std::plus<>());
    });
  }

  // to[c] += channel c of all that the tap meets
  void add_tap(std::size_t kernel_row, std::size_t kernel_col, std::int64_t* to) const {
    const std::int64_t* sum = sums_.data();
    for (const PositionClass& rows : rows_) {
      for (const PositionClass& cols : cols_) {
        if (rows.met_by[kernel_row] && cols.met_by[kernel_col]) {
          for (std::int64_t c = 0; c < channels_; ++c) to[c] += sum[c];
        }
        sum += channels_;
      }
    }
  }

 private:
  void add_image(const std::uint8_t* code, std::int64_t* to) const {
    for (const PositionClass& row_class : rows_) {
      for (const PositionClass& col_class : cols_) {
        for (const Run& rows : row_class.runs) {
          for (const Run& cols : col_class.runs) {
            add_pixels({code + rows.first * row_codes_ + cols.first * channels_, rows.count,
                        rows.step * row_codes_, cols.count, cols.step * channels_},
                       channels_, to);
          }
        }
        to += channels_;
      }
    }
  }

  const std::int64_t channels_, row_codes_;
  const std::vector<PositionClass> rows_, cols_;
  std::vector<std::int64_t> sums_;  // [row class][column class][channel]
};

}  // namespace

std::vector<std::int64_t> positions_met(const ConvShape& shape) {
  std::vector<std::int64_t> counts;
  for (const Run& rows : met_by_taps(shape, 0, Met::kOutputs)) {
    for (const Run& cols : met_by_taps(shape, 1, Met::kOutputs)) {
      counts.push_back(shape.input[0] * rows.count * cols.count);
    }
  }
  return counts;
}

std::vector<std::int64_t> sums_met(const Quantized& q, const ConvShape& shape, Met met) {
  const std::vector<Run> rows = met_by_taps(shape, 0, met), cols = met_by_taps(shape, 1, met);
  const ClassSums by_class(q, rows, cols);
  std::vector<std::int64_t> sums(rows.size() * cols.size() * static_cast<std::size_t>(q.code.size(1)));
  std::int64_t* to = sums.data();
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (std::size_t col = 0; col < cols.size(); ++col, to += q.code.size(1)) by_class.add_tap(row, col, to);
  }
  return sums;
}

}  // namespace lowtide::integer
