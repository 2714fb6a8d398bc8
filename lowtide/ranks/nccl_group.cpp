#define USE_C10D_NCCL  // as libtorch was built: its headers show nothing of NCCL without
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "lowtide/ranks/c10d.h"

namespace lowtide {

c10::intrusive_ptr<C10dGroup> make_nccl_group(const C10dStore& store, const RankEnvironment& environment) {
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, environment.rank, environment.size);
}

}  // namespace lowtide
