#include "lowtide/io/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>

namespace lowtide {

int terminal_columns(int file_number) {
  constexpr int kUsual = 80;
  if (isatty(file_number) != 1) return 0;
  winsize size{};
  return ioctl(file_number, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

std::string cut_to_columns(std::string_view text, int columns) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = static_cast<utf8proc_ssize_t>(text.size());
  utf8proc_ssize_t end = 0;
  while (end < size) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t length = utf8proc_iterate(bytes + end, size - end, &code);
    // A byte that is no character is shown as one.
    columns -= length > 0 ? utf8proc_charwidth(code) : 1;
    if (columns < 0) break;
    end += std::max<utf8proc_ssize_t>(1, length);
  }
  return std::string(text.substr(0, static_cast<std::size_t>(end)));
}

}  // namespace lowtide
