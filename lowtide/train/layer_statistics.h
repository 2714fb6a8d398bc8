#pragma once

#include <vector>

#include "lowtide/tasks/task.h"
#include "lowtide/train/metrics_line.h"

namespace lowtide {

// What rounding does to each convolution, linear layer, LSTM and layer on a graph, by the last batch of training and the
// weights as they are: the batch is computed once more, in floats, and what the layers multiply and their gradients are
// quantised at the bits in force, on the side, with the ranges that training would measure. Nothing that training goes on
// with is changed. `rate` is the learning rate of the last step, `batch` the number of items that its loss is the mean of.
//
// Sensitivity: s = [r_x²·‖∂L/∂x‖² + batch·Σ_o r_w,o²·‖∂L/∂w_o‖²] / (24·η·‖G‖²) with the widest range r_x of a layer's input
// and r_w,o of the rows of its weights. Rounding to b bits moves a value by noise of variance r²/(12·(2^b − 1)²) and so the
// loss; s/(2^b − 1)² is half of that variance over η·‖G‖², by which a step lets the loss fall.
std::vector<LayerFigures> layer_statistics(Task& task, double rate, std::int64_t batch);

}  // namespace lowtide
