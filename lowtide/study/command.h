#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace lowtide {

struct CommandEnd {
  int code = 0;  // 127: there is no such program; 128 + n where signal n ended it
  std::string out, error;
};

// Runs a program of the system, found as a shell finds it, to its end, and ends it where it takes longer than `limit`. `words`
// are its name and its arguments.
CommandEnd run_command(const std::vector<std::string>& words,
                       std::chrono::seconds limit = std::chrono::seconds(60));

// As a shell reads it back.
std::string shell_word(const std::string& text);

}  // namespace lowtide
