#include "lowtide/base/error.h"
#include "lowtide/ranks/c10d.h"

namespace lowtide {

c10::intrusive_ptr<C10dGroup> make_nccl_group(const C10dStore&, const RankEnvironment&) {
  throw UserError("this build has no NCCL, which ranks on GPUs talk by; use --device cpu");
}

}  // namespace lowtide
