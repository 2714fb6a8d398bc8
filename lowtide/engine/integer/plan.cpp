#include "lowtide/engine/integer/plan.h"

#include <algorithm>

namespace lowtide::integer {
namespace {

// Along one dimension: the class of each output and, by class, which taps are valid.
struct Classes {
  std::vector<int> of;
  std::vector<std::vector<bool>> valid;
};

// `offset[k]` is where tap k reads relative to output i · step; only taps that are `used` count.
Classes classify(std::int64_t outputs, std::int64_t step, const std::vector<std::int64_t>& offset,
                 const std::vector<bool>& used, std::int64_t margin, std::int64_t source) {
  Classes classes;
  std::vector<bool> valid(offset.size());
  for (std::int64_t i = 0; i < outputs; ++i) {
    for (std::size_t k = 0; k < offset.size(); ++k) {
      const std::int64_t at = i * step + offset[k] - margin;
      valid[k] = used[k] && at >= 0 && at < source;
    }
    // Most outputs are like their neighbour.
    if (i > 0 && classes.valid[static_cast<std::size_t>(classes.of.back())] == valid) {
      classes.of.push_back(classes.of.back());
      continue;
    }
    auto found = std::find(classes.valid.begin(), classes.valid.end(), valid);
    if (found == classes.valid.end()) found = classes.valid.insert(found, valid);
    classes.of.push_back(static_cast<int>(found - classes.valid.begin()));
  }
  return classes;
}

// Along one dimension of an input gradient: output i = first + stride · t reads error t + offset[k] from the
// taps k that divide evenly.
struct Dilation {
  std::vector<std::int64_t> offset;
  std::vector<bool> used;
};

Dilation dilation(std::int64_t first, std::int64_t stride, std::int64_t padding, std::int64_t kernel) {
  Dilation result;
  for (std::int64_t k = 0; k < kernel; ++k) {
    const std::int64_t distance = first + padding - k;
    const bool even = distance % stride == 0;
    result.used.push_back(even);
    result.offset.push_back(even ? distance / stride : 0);
  }
  return result;
}

struct Extent {
  std::int64_t lowest = 0, end = 0;  // of what is read, relative to the source

  void include(const Dilation& d, std::int64_t outputs) {
    for (std::size_t k = 0; k < d.offset.size(); ++k) {
      if (!d.used[k] || outputs == 0) continue;
      lowest = std::min(lowest, d.offset[k]);
      end = std::max(end, outputs + d.offset[k]);
    }
  }
};

std::vector<Phase::Run> runs_of(const std::vector<int>& classes) {
  std::vector<Phase::Run> runs;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (runs.empty() || runs.back().of_class != classes[i]) runs.push_back({at, at, classes[i]});
    runs.back().last = at + 1;
  }
  return runs;
}

void set_classes(Phase& phase, Classes rows, Classes cols) {
  phase.row_class = std::move(rows.of);
  phase.row_valid = std::move(rows.valid);
  phase.col_class = std::move(cols.of);
  phase.col_valid = std::move(cols.valid);
  phase.col_runs = runs_of(phase.col_class);
}

std::int64_t phase_length(std::int64_t size, std::int64_t first, std::int64_t stride) {
  return first < size ? (size - first + stride - 1) / stride : 0;
}

void add_margin(Dilation& d, std::int64_t margin) {
  for (std::size_t k = 0; k < d.offset.size(); ++k) d.offset[k] += margin;
}

}  // namespace

std::int64_t Plan::rows_of_longest_phase() const {
  std::int64_t rows = 0;
  for (const Phase& phase : phases) rows = std::max(rows, phase.rows);
  return rows;
}

std::int64_t Plan::window_rows() const {
  std::int64_t rows = 1;
  for (const Phase& phase : phases) {
    for (const Tap& tap : phase.taps) rows = std::max(rows, tap.row + 1);
  }
  return rows;
}

Plan output_plan(const ConvShape& shape) {
  Plan plan;
  plan.source_rows = shape.input[2];
  plan.source_cols = shape.input[3];
  plan.top = shape.padding[0];
  plan.left = shape.padding[1];
  plan.out_rows = shape.output_height();
  plan.out_cols = shape.output_width();
  plan.row_step = shape.stride[0];
  plan.column_split = shape.stride[1];
  plan.packed_rows = (plan.out_rows - 1) * shape.stride[0] + shape.weight[2];
  plan.packed_cols = (plan.out_cols - 1) * shape.stride[1] + shape.weight[3];
  Phase phase;
  phase.rows = plan.out_rows;
  phase.cols = plan.out_cols;
  std::vector<std::int64_t> rows, cols;
  for (std::int64_t ky = 0; ky < shape.weight[2]; ++ky) rows.push_back(ky);
  for (std::int64_t kx = 0; kx < shape.weight[3]; ++kx) cols.push_back(kx);
  for (const std::int64_t ky : rows) {
    for (const std::int64_t kx : cols)
      phase.taps.push_back({.kernel_row = ky, .kernel_col = kx, .row = ky, .col = kx});
  }
  set_classes(phase,
              classify(phase.rows, shape.stride[0], rows, std::vector<bool>(rows.size(), true), plan.top,
                       plan.source_rows),
              classify(phase.cols, shape.stride[1], cols, std::vector<bool>(cols.size(), true), plan.left,
                       plan.source_cols));
  plan.phases.push_back(std::move(phase));
  return plan;
}

Plan input_gradient_plan(const ConvShape& shape) {
  Plan plan;
  plan.source_rows = shape.output_height();
  plan.source_cols = shape.output_width();
  plan.out_rows = shape.input[2];
  plan.out_cols = shape.input[3];
  plan.out_row_step = shape.stride[0];
  plan.out_col_step = shape.stride[1];
  Extent rows_read, cols_read;
  std::vector<Dilation> by_row, by_col;
  for (std::int64_t first = 0; first < shape.stride[0]; ++first) {
    by_row.push_back(dilation(first, shape.stride[0], shape.padding[0], shape.weight[2]));
    rows_read.include(by_row.back(), phase_length(plan.out_rows, first, shape.stride[0]));
  }
  for (std::int64_t first = 0; first < shape.stride[1]; ++first) {
    by_col.push_back(dilation(first, shape.stride[1], shape.padding[1], shape.weight[3]));
    cols_read.include(by_col.back(), phase_length(plan.out_cols, first, shape.stride[1]));
  }
  plan.top = -rows_read.lowest;
  plan.left = -cols_read.lowest;
  plan.packed_rows = rows_read.end + plan.top;
  plan.packed_cols = cols_read.end + plan.left;
  for (Dilation& d : by_row) add_margin(d, plan.top);
  for (Dilation& d : by_col) add_margin(d, plan.left);
  for (std::int64_t a = 0; a < shape.stride[0]; ++a) {
    for (std::int64_t b = 0; b < shape.stride[1]; ++b) {
      const Dilation& rows = by_row[static_cast<std::size_t>(a)];
      const Dilation& cols = by_col[static_cast<std::size_t>(b)];
      Phase phase;
      phase.first_row = a;
      phase.first_col = b;
      phase.rows = phase_length(plan.out_rows, a, shape.stride[0]);
      phase.cols = phase_length(plan.out_cols, b, shape.stride[1]);
      if (phase.rows == 0 || phase.cols == 0) continue;
      // Kernel and error run against each other: from the last tap on, they read one pixel after another.
      for (std::size_t ky = rows.offset.size(); ky-- > 0;) {
        for (std::size_t kx = cols.offset.size(); kx-- > 0;) {
          if (!rows.used[ky] || !cols.used[kx]) continue;
          phase.taps.push_back({.kernel_row = static_cast<std::int64_t>(ky),
                                .kernel_col = static_cast<std::int64_t>(kx),
                                .row = rows.offset[ky],
                                .col = cols.offset[kx]});
        }
      }
      set_classes(phase, classify(phase.rows, 1, rows.offset, rows.used, plan.top, plan.source_rows),
                  classify(phase.cols, 1, cols.offset, cols.used, plan.left, plan.source_cols));
      plan.phases.push_back(std::move(phase));
    }
  }
  return plan;
}

}  // namespace lowtide::integer
