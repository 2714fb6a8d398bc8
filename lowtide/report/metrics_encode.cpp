#include "lowtide/report/metrics_encode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "lowtide/io/gzip.h"

namespace lowtide {
namespace {

static_assert(std::endian::native == std::endian::little);

using Values = std::vector<double>;

// A column's entry in the header, and what it adds to the bytes.
struct Encoded {
  Json header;
  std::string bytes;
};

template <typename T>
std::string planes(const std::vector<T>& rows) {
  std::string bytes(rows.size() * sizeof(T), '\0');
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = std::bit_cast<std::array<char, sizeof(T)>>(rows[i]);
    for (std::size_t byte = 0; byte < sizeof(T); ++byte) bytes[byte * rows.size() + i] = row[byte];
  }
  return bytes;
}

// Bits, learning rates, accuracies of small batches: few different numbers, each many times.
std::optional<Encoded> as_dictionary(const Values& values) {
  const std::size_t most = std::min<std::size_t>(values.size() / 4 + 1, 65536);
  std::unordered_map<std::uint64_t, std::uint16_t> indices;
  std::vector<std::uint16_t> rows;
  Json dictionary = Json::array();
  for (const double value : values) {
    const auto bits = std::isnan(value) ? ~std::uint64_t{0} : std::bit_cast<std::uint64_t>(value);
    const auto [found, added] = indices.try_emplace(bits, static_cast<std::uint16_t>(indices.size()));
    if (added && indices.size() > most) return std::nullopt;
    if (added) dictionary.push_back(value);  // JSON writes NaN as null
    rows.push_back(found->second);
  }
  return Encoded{{{"encoding", "dictionary"}, {"values", std::move(dictionary)}}, planes(rows)};
}

// Small numbers of either sign as small ones without: 0, -1, 1, -2 … become 0, 1, 2, 3 …
template <typename Pattern>
Pattern zigzag(Pattern number) {
  const bool negative = std::bit_width(number) == std::numeric_limits<Pattern>::digits;
  return static_cast<Pattern>(number << 1) ^ (negative ? ~Pattern{0} : Pattern{0});
}

// Steps, learning rates and costs are smooth: the bit patterns of floating-point numbers, taken as whole numbers, rise
// as the numbers do, and their third differences are a few units where the numbers themselves have many digits. Noise
// is not smooth: so the order is the one that leaves the fewest bits.
template <typename Number, typename Pattern>
Encoded as_patterns(const Values& values, const char* name) {
  constexpr int kMostDifferences = 3;
  std::vector<Pattern> rows(values.size()), best;
  std::transform(values.begin(), values.end(), rows.begin(),
                 [](double value) { return std::bit_cast<Pattern>(static_cast<Number>(value)); });
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  int differences = 0;
  for (int order = 0; order <= kMostDifferences; ++order) {
    std::size_t bits = 0;
    for (const Pattern row : rows) bits += static_cast<std::size_t>(std::bit_width(zigzag(row)));
    if (bits < fewest) {
      fewest = bits;
      differences = order;
      best = rows;
    }
    for (std::size_t i = rows.size(); i-- > 1;) rows[i] -= rows[i - 1];
  }
  std::transform(best.begin(), best.end(), best.begin(), zigzag<Pattern>);
  return {{{"encoding", name}, {"differences", differences}}, planes(best)};
}

bool is_float(double value) {
  return std::isnan(value) || (std::abs(value) <= std::numeric_limits<float>::max() &&
                               static_cast<double>(static_cast<float>(value)) == value);
}

Encoded encode(const Column& column) {
  Json header{{"name", column.name}};
  std::optional<Encoded> encoded = as_dictionary(column.values);
  if (!encoded) {
    const bool floats = std::all_of(column.values.begin(), column.values.end(), is_float);
    encoded = floats ? as_patterns<float, std::uint32_t>(column.values, "f32")
                     : as_patterns<double, std::uint64_t>(column.values, "f64");
  }
  header.update(encoded->header);
  return {std::move(header), std::move(encoded->bytes)};
}

}  // namespace

std::string encode_metrics(const Metrics& metrics, Json about) {
  std::string bytes;
  Json& tables = about["tables"] = Json::array();
  for (const MetricsTable& table : metrics.tables) {
    Json columns = Json::array();
    for (const Column& column : table.columns) {
      Encoded encoded = encode(column);
      columns.push_back(std::move(encoded.header));
      bytes += encoded.bytes;
    }
    tables.push_back({{"split", table.split}, {"rows", table.rows}, {"columns", std::move(columns)}});
  }
  return compress_gzip_runs(about.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n' + bytes);
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text((bytes.size() + 2) / 3 * 4, '=');
  char* out = text.data();
  for (std::size_t i = 0; i < bytes.size(); i += 3, out += 4) {
    const std::size_t left = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (j < left ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j <= left; ++j) out[j] = kAlphabet[group >> (18 - 6 * j) & 63];
  }
  return text;
}

}  // namespace lowtide
