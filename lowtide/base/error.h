#pragma once

#include <stdexcept>
#include <string>

namespace lowtide {

// A user's mistake: a mistyped name, a damaged file, impossible bits. The message is one line that says what
// is wrong, where, what was expected and what to do; the program prints it and exits with 2.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void invariant_failed(const char* condition, const char* file, int line,
                                   const std::string& what);

}  // namespace lowtide

// A broken invariant of ours, never a user's mistake: stops with the file and line.
#define LOWTIDE_CHECK(condition, what) \
  ((condition) ? static_cast<void>(0) : ::lowtide::invariant_failed(#condition, __FILE__, __LINE__, (what)))
