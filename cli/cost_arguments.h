#pragma once

#include <CLI/CLI.hpp>

#include "lowtide/report/run_cost.h"

namespace lowtide {

// The options --count and --axis: what runs are compared by. `measure` must outlive the parsing.
void add_cost_options(CLI::App& app, CostMeasure& measure);

}  // namespace lowtide
