#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "lowtide/io/json_check.h"
#include "lowtide/io/safetensors.h"
#include "lowtide/io/safetensors_layout.h"

namespace lowtide {
namespace {

// Unordered: finding a key must not take time in proportion to their number.
using HeaderJson = nlohmann::json;

class Parser {
 public:
  Parser(ByteSpan bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Safetensors parse() {
    const std::string_view header = split_header();
    constexpr std::size_t kFormatDepth = 3;  // an object of objects of arrays
    const JsonCheck check = check_json(header, kFormatDepth);
    if (!check.problem.empty()) fail("the header " + check.problem);
    const HeaderJson json = HeaderJson::parse(header);
    Safetensors result;
    for (const std::string& key : check.outermost_keys) {
      if (key == kMetadataKey) {
        result.metadata = parse_metadata(json.at(key));
      } else {
        result.tensors.push_back(parse_tensor(key, json.at(key)));
      }
    }
    check_layout(result.tensors);
    result.header = bytes_.first(bytes_.size() - data_.size());
    result.data = data_;
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(
        fmt::format("{}: not a valid safetensors file: {}; copy the file again or use another", name_, what));
  }

  // Checks the lengths, sets data_ to what follows the header.
  std::string_view split_header() {
    if (bytes_.size() < kLengthBytes) {
      fail(fmt::format("it has {} bytes, and the header's length alone takes {}", bytes_.size(),
                       kLengthBytes));
    }
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < kLengthBytes; ++i)
      length |= std::to_integer<std::uint64_t>(bytes_[i]) << (8 * i);
    if (length > kMaxHeaderBytes) {
      fail(fmt::format("its header claims {} bytes, more than the {} allowed", length, kMaxHeaderBytes));
    }
    if (length > bytes_.size() - kLengthBytes) {
      fail(fmt::format("its header claims {} bytes, and only {} follow", length,
                       bytes_.size() - kLengthBytes));
    }
    const auto header_size = static_cast<std::size_t>(length);
    data_ = bytes_.subspan(kLengthBytes + header_size);
    const std::string_view header = text_of(bytes_.subspan(kLengthBytes, header_size));
    if (!header.starts_with('{')) fail("the header does not begin with '{'");
    return header;
  }

  Metadata parse_metadata(const HeaderJson& json) const {
    if (!json.is_object()) fail("__metadata__ is not an object");
    Metadata metadata;
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string())
        fail(fmt::format("__metadata__ has a value that is not a string under {}", shown(key)));
      metadata.emplace(key, value.get_ref<const std::string&>());
    }
    return metadata;
  }

  TensorView parse_tensor(const std::string& tensor_name, const HeaderJson& json) const {
    const std::string who = "tensor " + shown(tensor_name);
    const bool has_all =
        json.is_object() && json.contains("dtype") && json.contains("shape") && json.contains("data_offsets");
    if (!has_all || json.size() != 3) fail(who + " needs dtype, shape and data_offsets, and nothing else");
    TensorView tensor;
    tensor.name = tensor_name;
    tensor.dtype = parse_dtype(who, json.at("dtype"));
    tensor.shape = parse_integers(who, "shape", json.at("shape"));
    const std::vector<std::int64_t> offsets = parse_integers(who, "data_offsets", json.at("data_offsets"));
    if (offsets.size() != 2) fail(fmt::format("{} has {} data_offsets, not 2", who, offsets.size()));
    tensor.data =
        data_between(who, static_cast<std::uint64_t>(offsets[0]), static_cast<std::uint64_t>(offsets[1]));
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes) fail(who + " has a shape too large to count its bytes");
    if (*bytes != tensor.data.size()) {
      fail(fmt::format("{} needs {} bytes by its shape, and its data_offsets span {}", who, *bytes,
                       tensor.data.size()));
    }
    return tensor;
  }

  DType parse_dtype(const std::string& who, const HeaderJson& json) const {
    if (!json.is_string()) fail(who + " has a dtype that is not a string");
    const auto& name = json.get_ref<const std::string&>();
    const auto* entry =
        std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& d) { return d.name == name; });
    if (entry == kDTypes.end()) {
      std::string known;
      for (const DTypeEntry& d : kDTypes) known += fmt::format("{}{}", known.empty() ? "" : " ", d.name);
      fail(fmt::format("{} has the unknown dtype {} (known are {})", who, shown(name), known));
    }
    return entry->dtype;
  }

  std::vector<std::int64_t> parse_integers(const std::string& who, std::string_view what,
                                           const HeaderJson& json) const {
    if (!json.is_array()) fail(fmt::format("{} has a {} that is not an array", who, what));
    std::vector<std::int64_t> values;
    for (const HeaderJson& value : json) {
      constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
      if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kLargest) {
        fail(
            fmt::format("{} has a {} with something other than whole numbers from 0 to 2^63 - 1", who, what));
      }
      values.push_back(value.get<std::int64_t>());
    }
    return values;
  }

  ByteSpan data_between(const std::string& who, std::uint64_t begin, std::uint64_t end) const {
    if (begin > end) fail(fmt::format("{} has data_offsets that run backwards: {} to {}", who, begin, end));
    if (end > data_.size()) {
      fail(fmt::format("{} ends at byte {} of the data, and the file holds {}", who, end, data_.size()));
    }
    return data_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  }

  // Taken in the order of their data, tensors must follow each other exactly from the data's start to its
  // end.
  void check_layout(const std::vector<TensorView>& tensors) const {
    const auto begin_of = [&](const TensorView* t) {
      return static_cast<std::size_t>(t->data.data() - data_.data());
    };
    std::vector<const TensorView*> order;
    order.reserve(tensors.size());
    for (const TensorView& tensor : tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [&](const TensorView* a, const TensorView* b) {
      return std::pair(begin_of(a), a->data.size()) < std::pair(begin_of(b), b->data.size());
    });
    std::size_t end = 0;
    for (const TensorView* tensor : order) {
      const std::size_t begin = begin_of(tensor);
      if (begin != end) {
        fail(fmt::format("tensor {} begins at byte {} of the data, and the one before it ends at {}: {}",
                         shown(tensor->name), begin, end, begin < end ? "they overlap" : "there is a hole"));
      }
      end += tensor->data.size();
    }
    if (end != data_.size()) {
      fail(fmt::format("{} bytes follow the last tensor", data_.size() - end));
    }
  }

  ByteSpan bytes_;
  const std::string& name_;
  ByteSpan data_;
};

const DTypeEntry& entry_of(DType dtype) {
  const auto* entry =
      std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& d) { return d.dtype == dtype; });
  LOWTIDE_CHECK(entry != kDTypes.end(), "a dtype outside its enumeration");
  return *entry;
}

}  // namespace

std::size_t dtype_size(DType dtype) { return entry_of(dtype).size; }
std::string_view dtype_name(DType dtype) { return entry_of(dtype).name; }

Safetensors parse_safetensors(ByteSpan bytes, const std::string& name) { return Parser(bytes, name).parse(); }

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : name_(path.string()), file_(path), content_(parse_safetensors(file_.bytes(), name_)) {
  for (std::size_t i = 0; i < content_.tensors.size(); ++i) index_.emplace(content_.tensors[i].name, i);
}

const TensorView* SafetensorsFile::find(std::string_view tensor) const {
  const auto found = index_.find(tensor);
  return found == index_.end() ? nullptr : &content_.tensors[found->second];
}

const TensorView& SafetensorsFile::at(std::string_view tensor) const {
  const TensorView* found = find(tensor);
  if (found == nullptr) {
    throw UserError(
        fmt::format("{}: has no tensor {}; is it a checkpoint of another model?", name_, shown(tensor)));
  }
  return *found;
}

}  // namespace lowtide
