#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lowtide {

// libFuzzer makes inputs of some kilobytes; what ends a parser's stack takes hundreds of them. So an input has a way
// to say it in short: a byte 0xff, which no text has, a count, some text and 0xff again stand for that text 512 · count
// times, in an input that begins with 0xfe: few do, since each takes a hundred times the time of another. A seed "deep" of each
// target that reads what can be nested shows how.
inline std::string deepened(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 18;  // 200 KB ended stacks; more only takes longer
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  if (!rest.starts_with('\xfe')) return std::string(rest);
  rest.remove_prefix(1);
  std::string text;
  while (!rest.empty()) {
    const std::size_t begin = rest.find('\xff');
    const std::size_t end = begin == rest.npos ? rest.npos : rest.find('\xff', begin + 2);
    if (end == rest.npos) break;
    text += rest.substr(0, begin);
    const std::size_t count = std::size_t{512} * static_cast<std::uint8_t>(rest[begin + 1]);
    const std::string_view again = rest.substr(begin + 2, end - begin - 2);
    for (std::size_t i = 0; i < count && text.size() < kMostBytes; ++i) text += again;
    rest.remove_prefix(end + 1);
  }
  return text.append(rest);
}

}  // namespace lowtide
