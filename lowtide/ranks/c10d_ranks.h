#pragma once

#include <memory>
#include <string>

#include "lowtide/base/error.h"
#include "lowtide/ranks/environment.h"
#include "lowtide/ranks/ranks.h"

namespace lowtide {

// Another rank failed, and this one cannot go on. One of the ranks tells people what it was.
class RankFailure : public UserError {
 public:
  RankFailure(const std::string& what, bool tells) : UserError(what), tells_(tells) {}
  bool tells() const { return tells_; }  // whether this is the one

 private:
  bool tells_;
};

// One of several processes, which talk by c10d: by Gloo between CPUs, by NCCL between GPUs.
class C10dRanks : public Ranks {
 public:
  // Waits for the others. On CUDA each takes the GPU of its local rank. UserError where they do not come, or where this build
  // has nothing to talk by. `problem` is what keeps this rank from taking part, or empty: if any has one, this throws on all
  // ranks, a RankFailure on all but one.
  static std::shared_ptr<C10dRanks> join(RankEnvironment environment, const std::string& device,
                                         const std::string& problem);

  // For a rank that ends by an exception other than RankFailure. Whether it is the one to tell why: the first that fails
  // does. The others learn of it at their next call.
  virtual bool is_first_to_fail() = 0;
};

}  // namespace lowtide
