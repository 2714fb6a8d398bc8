#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/commands.h"
#include "cli/runtime.h"
#include "lowtide/base/error.h"

namespace {

int usage(std::FILE* where, int code) {
  fmt::print(where, "lowtide: neural networks trained in low precision, on a schedule\n\n");
  fmt::print(where, "usage: lowtide COMMAND [options]      lowtide COMMAND --help\n\n");
  for (const lowtide::Command& command : lowtide::commands())
    fmt::print(where, "  {:<10} {}\n", command.name, command.purpose);
  return code;
}

// libtorch tells it in its message alone. Sizes that overflow are more than any machine has, too.
bool is_out_of_memory(const c10::Error& error) {
  const std::string what = error.what_without_backtrace();
  for (const char* part :
       {"allocate memory", "out of memory", "size calculation overflowed", "multiplication overflow"}) {
    if (what.find(part) != std::string::npos) return true;
  }
  return false;
}

int out_of_memory() {
  fmt::print(stderr,
             "lowtide: out of memory; choose a smaller --batch, a smaller model or data, or --recompute\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return usage(stderr, 2);
  const std::string_view name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") return usage(stdout, 0);
  if (name == "--version") return fmt::print("{}\n", lowtide::program_version()), 0;
  try {
    for (const lowtide::Command& command : lowtide::commands()) {
      if (command.name != name) continue;
      if (command.computes) lowtide::tune_libraries(argv);
      return command.run(argc - 1, argv + 1);
    }
    throw lowtide::UserError(fmt::format("unknown command '{}'; `lowtide --help` lists them", name));
  } catch (const lowtide::UserError& error) {
    fmt::print(stderr, "lowtide: {}\n", error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::length_error&) {  // more than a container can count
    return out_of_memory();
  } catch (const std::filesystem::filesystem_error& error) {
    fmt::print(stderr, "lowtide: {}: {}\n", error.path1().string(), error.code().message());
    return 2;
  } catch (const std::system_error& error) {  // the machine's answer too: no more threads
    fmt::print(stderr, "lowtide: {}\n", error.what());
    return 2;
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) return out_of_memory();
    fmt::print(stderr, "lowtide: internal error in libtorch: {}\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "lowtide: internal error: {}\n", error.what());
    return 1;
  }
}
