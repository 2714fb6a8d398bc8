#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/io/scratch.h"

namespace lowtide {

// Stand-ins for SLURM's programs, before all others while one of these lives.
class FakeSlurm {
 public:
  FakeSlurm() { setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1); }
  ~FakeSlurm() { setenv("PATH", path_.c_str(), 1); }
  FakeSlurm(const FakeSlurm&) = delete;
  FakeSlurm& operator=(const FakeSlurm&) = delete;

  void have(const std::string& program, const std::string& script) const {
    std::ofstream(folder_ / program) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(folder_ / program, std::filesystem::perms::owner_all);
  }

 private:
  const ScratchFolder folder_;
  const std::string path_ = getenv("PATH");
};

}  // namespace lowtide
