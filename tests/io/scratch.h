#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "lowtide/base/error.h"

namespace lowtide {

// A folder of the test's own, removed when the test ends.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lowtide-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
    path_ = pattern;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

// The message of the UserError that `call` must end with; it must be one line.
template <typename Call>
std::string user_error(Call call) {
  try {
    call();
  } catch (const UserError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  ADD_FAILURE() << "no UserError";
  return "";
}

// Whether a message holds all of the parts; shows it where it does not.
template <typename... Parts>
testing::AssertionResult contains(const std::string& message, const Parts&... parts) {
  for (const std::string_view part : {std::string_view(parts)...}) {
    if (message.find(part) == std::string::npos) {
      return testing::AssertionFailure() << "no \"" << part << "\" in: " << message;
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace lowtide
