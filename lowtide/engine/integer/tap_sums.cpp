#include "lowtide/engine/integer/tap_sums.h"

#include <algorithm>
#include <functional>

#include "lowtide/base/lanes.h"
#include "lowtide/base/parallel.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/tuning.h"

namespace lowtide::integer {
namespace {

bool has(const PositionRun& run, std::int64_t position) {
  const std::int64_t into = position - run.first;
  return into >= 0 && into % run.step == 0 && into / run.step < run.count;
}

// The positions along one dimension that kernel row or column k covers.
PositionRun covered_by(std::int64_t k, const ConvShape& shape, std::size_t dimension, Covered covered) {
  const std::int64_t stride = shape.stride[dimension], padding = shape.padding[dimension];
  const std::int64_t output = dimension == 0 ? shape.output_height() : shape.output_width();
  const std::int64_t first = (std::max<std::int64_t>(0, padding - k) + stride - 1) / stride;
  const std::int64_t room = shape.input[2 + dimension] - 1 + padding - k;
  const std::int64_t last = room < 0 ? first : std::min(output, room / stride + 1);
  const std::int64_t count = std::max<std::int64_t>(0, last - first);
  return covered == Covered::kOutputs ? PositionRun{first, 1, count}
                                      : PositionRun{first * stride + k - padding, stride, count};
}

std::vector<PositionRun> coverage(const ConvShape& shape, std::size_t dimension, Covered covered) {
  std::vector<PositionRun> runs;
  for (std::int64_t k = 0; k < shape.weight[2 + dimension]; ++k) {
    runs.push_back(covered_by(k, shape, dimension, covered));
  }
  return runs;
}

// The next position of a class; no run becomes longer than `most`.
void append(std::int64_t position, std::int64_t most, std::vector<PositionRun>& runs) {
  if (!runs.empty() && runs.back().count < most) {
    PositionRun& last = runs.back();
    if (last.count == 1) last.step = position - last.first;
    if (position == last.first + last.step * last.count) {
      ++last.count;
      return;
    }
  }
  runs.push_back({position, 1, 1});
}

// The largest class first: it brings the few positions at the edges into the cache too.
std::vector<PositionClass> classes_of(std::int64_t size, const std::vector<PositionRun>& taps,
                                      std::int64_t longest_run) {
  std::vector<PositionClass> classes;
  for (std::int64_t position = 0; position < size; ++position) {
    std::vector<bool> covered_by(taps.size());
    for (std::size_t k = 0; k < taps.size(); ++k) covered_by[k] = has(taps[k], position);
    if (std::ranges::find(covered_by, true) == covered_by.end()) continue;
    auto known = std::ranges::find(classes, covered_by, &PositionClass::covered_by);
    if (known == classes.end()) known = classes.insert(known, {std::move(covered_by), {}});
    append(position, longest_run, known->runs);
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

}  // namespace

std::vector<std::int64_t> covered_pixels(const ConvShape& shape) {
  std::vector<std::int64_t> counts;
  for (const PositionRun& rows : coverage(shape, 0, Covered::kOutputs)) {
    for (const PositionRun& cols : coverage(shape, 1, Covered::kOutputs)) {
      counts.push_back(shape.input[0] * rows.count * cols.count);
    }
  }
  return counts;
}

TapSums::TapSums(const Quantized& q, const ConvShape& shape, Covered covered)
    : code_(q.code.data_ptr<std::uint8_t>()),
      items_(q.code.size(0)),
      channels_(q.code.size(1)),
      row_codes_(q.code.size(3) * channels_),
      image_codes_(q.code.size(2) * row_codes_),
      row_coverage_(coverage(shape, 0, covered)),
      col_coverage_(coverage(shape, 1, covered)),
      rows_(classes_of(q.code.size(2), row_coverage_, std::max<std::int64_t>(1, kSummedCodes / row_codes_))),
      cols_(classes_of(q.code.size(3), col_coverage_, std::max<std::int64_t>(1, kSummedCodes / channels_))),
      sums_(static_cast<std::int64_t>(rows_.size() * cols_.size()) * channels_) {}

TapSums::Part::Part(TapSums& whole) : whole_(whole), sums_(kept_array<std::int64_t>(whole.sums_.count())) {
  std::fill_n(sums_.get(), whole.sums_.count(), 0);
}

void TapSums::Part::add_image(std::int64_t item) {
  const std::int64_t channels = whole_.channels_, row_codes = whole_.row_codes_;
  const std::uint8_t* code = whole_.code_ + item * whole_.image_codes_;
  std::int64_t* to = sums_.get();
  for (const PositionClass& row_class : whole_.rows_) {
    for (const PositionClass& col_class : whole_.cols_) {
      for (const PositionRun& rows : row_class.runs) {
        for (const PositionRun& cols : col_class.runs) {
          add_pixels({.code = code + rows.first * row_codes + cols.first * channels,
                      .rows = rows.count,
                      .row_step = rows.step * row_codes,
                      .cols = cols.count,
                      .col_step = cols.step * channels},
                     channels, to);
        }
      }
      to += channels;
    }
  }
}

TapSums::Part::~Part() { whole_.sums_.add(sums_.get()); }

void TapSums::add_all() {
  TaskQueues(items_, kSummedCodesPerThread / image_codes_).run([&](TaskQueues::Worker& worker) {
    Part part(*this);
    while (const std::optional<std::int64_t> item = worker.next_task()) part.add_image(*item);
  });
}

KeptVector<std::int64_t> TapSums::by_tap() const {
  KeptVector<std::int64_t> result(row_coverage_.size() * col_coverage_.size() *
                                  static_cast<std::size_t>(channels_));
  std::int64_t* to = result.data();
  for (std::size_t kernel_row = 0; kernel_row < row_coverage_.size(); ++kernel_row) {
    for (std::size_t kernel_col = 0; kernel_col < col_coverage_.size(); ++kernel_col) {
      const std::int64_t* sum = sums_.get();
      for (const PositionClass& rows : rows_) {
        for (const PositionClass& cols : cols_) {
          const bool covered = rows.covered_by[kernel_row] && cols.covered_by[kernel_col];
          for (std::int64_t c = 0; covered && c < channels_; ++c) to[c] += sum[c];
          sum += channels_;
        }
      }
      to += channels_;
    }
  }
  return result;
}

}  // namespace lowtide::integer
