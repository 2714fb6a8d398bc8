#include "lowtide/base/error.h"
#include "lowtide/ranks/c10d.h"

namespace lowtide {

c10::intrusive_ptr<C10dGroup> make_gloo_group(const C10dStore&, const RankEnvironment&) {
  throw UserError(
      "this build has no Gloo, which ranks on a CPU talk by: on Debian install libgloo-dev and build anew");
}

}  // namespace lowtide
