#pragma once

#include <stdio.h>
#include <sys/wait.h>

#include <stdexcept>
#include <string>

namespace lowtide {

struct Finished {
  int code = 0;
  std::string text;  // stdout and stderr
};

// A command line, as the shell runs it.
inline Finished shell(const std::string& command) {
  FILE* pipe = popen(("{ " + command + "\n} 2>&1 < /dev/null").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start a shell");
  Finished finished;
  for (int c = 0; (c = fgetc(pipe)) != EOF;) finished.text += static_cast<char>(c);
  const int status = pclose(pipe);
  finished.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
}

inline bool is_installed(const std::string& program) {
  return shell("command -v " + program + " > /dev/null").code == 0;
}

}  // namespace lowtide
