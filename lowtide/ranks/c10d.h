#pragma once

// What differs of c10d between Debian's libtorch 1.13 and PyTorch 2.x. Apart from torch_compat.h: few files need c10d.

#include <torch/version.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include "lowtide/ranks/environment.h"

namespace lowtide {

#if TORCH_VERSION_MAJOR >= 2
using C10dGroup = c10d::Backend;
#else
using C10dGroup = c10d::ProcessGroup;
#endif
using C10dStore = c10::intrusive_ptr<c10d::Store>;

// UserError where this build has none.
c10::intrusive_ptr<C10dGroup> make_gloo_group(const C10dStore& store, const RankEnvironment& environment);
c10::intrusive_ptr<C10dGroup> make_nccl_group(const C10dStore& store, const RankEnvironment& environment);

}  // namespace lowtide
