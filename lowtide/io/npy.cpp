#include "lowtide/io/npy.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "lowtide/io/json_check.h"
#include "lowtide/io/lines.h"

namespace lowtide {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMagic = "\x93NUMPY"sv;

[[noreturn]] void damaged(const std::string& name, const std::string& what) {
  throw UserError(fmt::format("{}: {}; expected an array of numbers as NumPy saves it", name, what));
}

// The header is a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyArray parse() {
    expect('{');
    while (!taken('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr") {
        parse_type();
      } else if (key == "fortran_order") {
        fortran_ = parse_truth();
      } else if (key == "shape") {
        parse_shape();
      } else {
        damaged(name_, fmt::format("the header has the key {}", shown(key)));
      }
      if (!taken(',') && peek() != '}') broken();
    }
    if (array_.kind == 0 || !has_shape_) damaged(name_, "the header lacks the type or the shape");
    if (fortran_ && array_.shape.size() > 1)
      damaged(name_, "its columns come one after the other (fortran_order)");
    return array_;
  }

 private:
  [[noreturn]] void broken() const { damaged(name_, "the header cannot be understood"); }

  char peek() {
    text_.remove_prefix(std::min(text_.find_first_not_of(' '), text_.size()));
    return text_.empty() ? '\0' : text_.front();
  }

  bool taken(char symbol) {
    if (peek() != symbol) return false;
    text_.remove_prefix(1);
    return true;
  }

  void expect(char symbol) {
    if (!taken(symbol)) broken();
  }

  std::string_view quoted() {
    expect('\'');
    const std::size_t end = text_.find('\'');
    if (end == text_.npos) broken();
    const std::string_view content = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return content;
  }

  bool parse_truth() {
    peek();
    for (const auto& [word, value] : {std::pair{"True"sv, true}, {"False"sv, false}}) {
      if (!text_.starts_with(word)) continue;
      text_.remove_prefix(word.size());
      return value;
    }
    broken();
  }

  // Byte order, kind, bytes: <f4. A structure is a list and not a text.
  void parse_type() {
    if (peek() != '\'') damaged(name_, "it holds structures");
    const std::string_view type = quoted();
    const bool known = type == "|b1" || type == "|i1" || type == "|u1" || type == "<i2" || type == "<u2" ||
                       type == "<i4" || type == "<u4" || type == "<i8" || type == "<u8" || type == "<f4" ||
                       type == "<f8";
    if (!known) damaged(name_, fmt::format("numbers of type {} are not read", shown(type)));
    array_.kind = type[1];
    array_.item_bytes = static_cast<std::size_t>(type[2] - '0');
  }

  void parse_shape() {
    expect('(');
    array_.shape.clear();
    while (!taken(')')) {
      peek();
      const std::string_view digits = text_.substr(0, text_.find_first_not_of("0123456789"));
      const auto dimension = parse_number<std::int64_t>(digits);
      if (!dimension) broken();
      array_.shape.push_back(*dimension);
      text_.remove_prefix(digits.size());
      if (!taken(',') && peek() != ')') broken();
    }
    has_shape_ = true;
  }

  std::string_view text_;
  const std::string& name_;
  NpyArray array_;
  bool fortran_ = false;
  bool has_shape_ = false;
};

// Where the header's text begins and how long it is: two bytes say so in version 1, four later.
std::pair<std::size_t, std::size_t> find_header(ByteSpan bytes, const std::string& name) {
  constexpr std::size_t kLength = 8;
  if (bytes.size() < kLength + 4 || !text_of(bytes).starts_with(kMagic))
    damaged(name, "does not begin as one");
  const auto byte = [&](std::size_t i) { return std::to_integer<std::size_t>(bytes[i]); };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3) damaged(name, fmt::format("version {} is not known", version));
  std::size_t size = byte(kLength) | byte(kLength + 1) << 8;
  if (version > 1) size |= byte(kLength + 2) << 16 | byte(kLength + 3) << 24;
  const std::size_t begin = kLength + (version == 1 ? 2 : 4);
  if (bytes.size() - begin < size) damaged(name, "the header is cut short");
  return {begin, size};
}

void check_size(const NpyArray& array, const std::string& name) {
  std::uint64_t expected = array.item_bytes;
  for (const std::int64_t dimension : array.shape) {
    if (__builtin_mul_overflow(expected, static_cast<std::uint64_t>(dimension), &expected)) {
      damaged(name, "its shape is larger than any file");
    }
  }
  if (array.data.size() != expected) {
    damaged(name, fmt::format("{} bytes of data, and its shape needs {}", array.data.size(), expected));
  }
}

template <typename Item, typename Value>
std::vector<Value> converted(const NpyArray& array) {
  std::vector<Value> values(array.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    Item item;  // the bytes need not be aligned
    std::memcpy(&item, array.data.data() + i * sizeof(Item), sizeof(Item));
    values[i] = static_cast<Value>(item);  // NOLINT(bugprone-signed-char-misuse): an int8 is a number here
  }
  return values;
}

template <typename Value>
std::vector<Value> converted_integers(const NpyArray& array) {
  const bool is_signed = array.kind == 'i';
  switch (array.item_bytes) {
    case 1:
      return is_signed ? converted<std::int8_t, Value>(array) : converted<std::uint8_t, Value>(array);
    case 2:
      return is_signed ? converted<std::int16_t, Value>(array) : converted<std::uint16_t, Value>(array);
    case 4:
      return is_signed ? converted<std::int32_t, Value>(array) : converted<std::uint32_t, Value>(array);
    default:
      return is_signed ? converted<std::int64_t, Value>(array) : converted<std::uint64_t, Value>(array);
  }
}

}  // namespace

NpyArray parse_npy(ByteSpan bytes, const std::string& name) {
  const auto [begin, size] = find_header(bytes, name);
  NpyArray array = HeaderParser(text_of(bytes.subspan(begin, size)), name).parse();
  array.data = bytes.subspan(begin + size);
  check_size(array, name);
  return array;
}

std::vector<float> npy_floats(const NpyArray& array) {
  if (array.kind != 'f') return converted_integers<float>(array);
  return array.item_bytes == 4 ? converted<float, float>(array) : converted<double, float>(array);
}

std::vector<std::int64_t> npy_integers(const NpyArray& array, const std::string& name) {
  if (array.kind == 'f') {
    throw UserError(fmt::format("{}: holds floats; expected whole numbers", name));
  }
  std::vector<std::int64_t> values = converted_integers<std::int64_t>(array);
  if (array.kind == 'u' && array.item_bytes == 8) {
    for (const std::int64_t value : values) {
      if (value < 0) throw UserError(fmt::format("{}: a number beyond 2^63; expected smaller ones", name));
    }
  }
  return values;
}

}  // namespace lowtide
