#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/commands.h"
#include "cli/runtime.h"
#include "lowtide/base/error.h"
#include "lowtide/base/machine_error.h"
#include "lowtide/io/lease.h"
#include "lowtide/io/standard_output.h"

namespace {

int run(int argc, char** argv) {
  if (argc < 2) return fmt::print(stderr, "{}", lowtide::usage()), 2;
  const std::string_view name = argv[1];
  if (name == "--help" || name == "-h") return fmt::print("{}", lowtide::usage()), 0;
  if (name == "--version") return fmt::print("{}", lowtide::version_text()), 0;
  const lowtide::Command& command = lowtide::find_command(lowtide::commands(), name);
  if (command.computes) lowtide::tune_libraries(argv);
  return command.run(argc - 1, argv + 1);
}

// One line, whatever a path in it is made of. Not by fmt, which throws where stderr cannot be written either.
int complain(int code, std::string what) {
  std::replace_if(
      what.begin(), what.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
  std::fputs(("lowtide: " + what + "\n").c_str(), stderr);
  return code;
}

int complain_of(const std::exception& error, const std::string& unless_machine) {
  if (const auto what = lowtide::machine_error(error)) return complain(2, *what);
  return complain(1, unless_machine);
}

// A command whose output was lost has not done what it was asked to. A reader who went away wanted no more of it.
int after_output(int code) {
  const int error = lowtide::standard_output_error();
  if (code != 0 || error == 0 || error == EPIPE) return code;
  return complain(2, lowtide::cannot_write("standard output", error).what());
}

}  // namespace

int main(int argc, char** argv) {
  lowtide::occupy_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows beyond a limit is an error of the write, with a message
  try {
    return after_output(run(argc, argv));
  } catch (const lowtide::LeaseTaken& error) {
    return complain(lowtide::kLeaseTakenCode, error.what());
  } catch (const lowtide::UserError& error) {
    return complain(2, error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return complain(2, lowtide::cannot_read(error.path1(), error.code().value()).what());
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) == 0) return complain(2, error.what());  // the machine's answer: no more threads
    return complain(2, lowtide::cannot_write("standard output", error.code().value()).what());  // fmt's
  } catch (const c10::Error& error) {
    return complain_of(error, fmt::format("internal error in libtorch: {}", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return complain_of(error, fmt::format("internal error: {}", error.what()));
  }
}
