#pragma once

// What nearly every file needs of libtorch: tensors and their functions, autograd's own functions, modules. All of
// torch/torch.h makes every file that includes it compile hundreds of modules that nobody uses: 6 s of each.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
