#include "lowtide/study/study.h"

#include <cstdint>

#include "fuzz/deep.h"
#include "lowtide/base/error.h"

// A study's file either is a UserError of one line, or a study that is the same after it was written, with members.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  try {
    Study study = parse_study(deepened(data, size), "study.toml");
    const Study again = parse_study(to_toml(study), "what was written");
    LOWTIDE_CHECK(to_toml(again) == to_toml(study) && differences(again, study).empty(), to_toml(study));
    study.seeds = 1;  // the seeds are alike
    for (const Member& member : members(study)) check(member.recipe);
  } catch (const UserError& error) {
    const std::string message = error.what();
    LOWTIDE_CHECK(!message.starts_with("what was written"), message);
  }
  return 0;
}
