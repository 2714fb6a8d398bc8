#include "lowtide/report/metrics_encode.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "lowtide/base/random.h"
#include "lowtide/io/gzip.h"

namespace lowtide {
namespace {

using Values = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Unpacked {
  Json header;
  std::string bytes;
};

Unpacked unpack(const std::string& packed) {
  const std::vector<std::byte> plain = decompress_gzip(bytes_of(packed), "packed", std::size_t{1} << 30);
  const std::string text(text_of(plain));
  const std::size_t end = text.find('\n');
  return {Json::parse(text.substr(0, end)), text.substr(end + 1)};
}

// The format of metrics_encode.h, read by its description.
std::uint64_t row(const std::string& bytes, std::size_t rows, std::size_t width, std::size_t i) {
  std::uint64_t value = 0;
  for (std::size_t byte = 0; byte < width; ++byte)
    value |= std::uint64_t{static_cast<unsigned char>(bytes[byte * rows + i])} << (8 * byte);
  return value;
}

template <typename Pattern, typename Number>
Values decode_patterns(const Json& column, const std::string& bytes, std::size_t rows) {
  std::vector<Pattern> patterns;
  for (std::size_t i = 0; i < rows; ++i) {
    const auto zigzag = static_cast<Pattern>(row(bytes, rows, sizeof(Pattern), i));
    patterns.push_back(zigzag % 2 == 0 ? zigzag / 2 : ~(zigzag / 2));
  }
  for (int i = 0; i < column.at("differences"); ++i)
    std::partial_sum(patterns.begin(), patterns.end(), patterns.begin());
  Values values;
  for (const Pattern pattern : patterns) values.push_back(std::bit_cast<Number>(pattern));
  return values;
}

Values decode(const Json& column, const std::string& bytes, std::size_t rows) {
  const std::string encoding = column.at("encoding");
  if (encoding == "f32") return decode_patterns<std::uint32_t, float>(column, bytes, rows);
  if (encoding == "f64") return decode_patterns<std::uint64_t, double>(column, bytes, rows);
  EXPECT_EQ(encoding, "dictionary");
  Values values;
  for (std::size_t i = 0; i < rows; ++i) {
    const Json& value = column.at("values").at(row(bytes, rows, 2, i));
    values.push_back(value.is_null() ? kNan : value.get<double>());
  }
  return values;
}

// Packs one column, expects it back bit for bit, and tells how it was packed.
std::string encoding_of(const Values& values) {
  Metrics metrics;
  metrics.tables.push_back({"train", values.size(), {{"loss", values}}});
  const Unpacked unpacked = unpack(encode_metrics(metrics));
  const Json& column = unpacked.header.at("tables").at(0).at("columns").at(0);
  EXPECT_EQ(column.at("name"), "loss");
  const Values back = decode(column, unpacked.bytes, values.size());
  EXPECT_EQ(back.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool both_nan = std::isnan(values[i]) && std::isnan(back[i]);
    EXPECT_TRUE(both_nan || std::bit_cast<std::uint64_t>(values[i]) == std::bit_cast<std::uint64_t>(back[i]))
        << values[i] << " came back as " << back[i];
  }
  return column.at("encoding");
}

Values many(std::size_t count, const std::function<double(std::size_t, RandomStream&)>& value) {
  RandomStream random(1, RandomPurpose::kShuffle, 0);
  Values values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(value(i, random));
  return values;
}

TEST(MetricsEncode, FewDifferentNumbersAreADictionary) {
  EXPECT_EQ(encoding_of(many(1000, [](std::size_t i,
                                      auto&) { return i % 7 == 0 ? kNan : static_cast<double>(i % 5) / 3; })),
            "dictionary");
  EXPECT_EQ(encoding_of({}), "dictionary");
  EXPECT_EQ(encoding_of({0.1}), "dictionary");
}

TEST(MetricsEncode, FloatsStayFloats) {
  EXPECT_EQ(encoding_of(many(1000, [](std::size_t i, auto&) { return 100.0 * static_cast<double>(i); })),
            "f32");
  EXPECT_EQ(encoding_of(many(
                1000, [](std::size_t i, auto& random) { return i == 5 ? kNan : random.uniform() * 3.7F; })),
            "f32");
}

TEST(MetricsEncode, DoublesStayDoublesSmoothOrNot) {
  EXPECT_EQ(encoding_of(many(1000, [](std::size_t, auto& random) { return random.uniform() / 3.0; })), "f64");
  EXPECT_EQ(
      encoding_of(many(1000, [](std::size_t i, auto&) { return std::cos(static_cast<double>(i) / 100); })),
      "f64");
  EXPECT_EQ(encoding_of(many(
                1000, [](std::size_t i, auto& random) { return i == 500 ? kNan : random.uniform() / 3.0; })),
            "f64");
}

TEST(MetricsEncode, SmoothNumbersTakeLittleRoom) {
  // A cosine learning rate of 50,000 steps: 400,000 bytes as doubles.
  Metrics metrics;
  metrics.tables.push_back(
      {"train", 50'000, {{"lr", many(50'000, [](std::size_t i, auto&) {
                            return 0.05 * (1 + std::cos(M_PI * static_cast<double>(i) / 50'000));
                          })}}});
  EXPECT_LT(encode_metrics(metrics).size(), 100'000);
}

TEST(MetricsEncode, ExtremesComeBack) {
  const auto expect_back = [](const char* encoding, std::size_t count, double (*value)(double)) {
    const Values values = many(count, [&](std::size_t i, auto&) { return value(static_cast<double>(i)); });
    EXPECT_EQ(encoding_of(values), encoding);
  };
  expect_back("f32", 1000, [](double i) { return i == 3 ? -0.0 : i; });
  expect_back("f64", 1000, [](double i) { return std::ldexp(1.0, static_cast<int>(i) - 1022); });
  expect_back("f64", 1000, [](double i) { return 2251799813685247.0 - i; });
  expect_back("f64", 1000, [](double i) { return 9007199254740991.0 - i; });
  expect_back("f64", 1000, [](double i) { return (std::fmod(i, 2) == 0 ? -1e300 : 1e-300) / (i + 1); });
  expect_back("f64", 70'000, [](double i) { return std::fmod(i, 69'000) / 7; });
}

TEST(MetricsEncode, TablesFollowEachOther) {
  Metrics metrics;
  metrics.tables.push_back({"train", 2, {{"step", {1, 2}}, {"loss", {0.5, 0.25}}}});
  metrics.tables.push_back({"valid", 1, {{"step", {2}}}});
  const Unpacked unpacked = unpack(encode_metrics(metrics, {{"end", 77}}));
  EXPECT_EQ(unpacked.header.at("end"), 77);
  ASSERT_EQ(unpacked.header.at("tables").size(), 2);
  EXPECT_EQ(unpacked.header.at("tables").at(1).at("split"), "valid");
  EXPECT_EQ(unpacked.header.at("tables").at(1).at("rows"), 1);
}

TEST(MetricsEncode, Base64) {
  // RFC 4648, section 10.
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
}

}  // namespace
}  // namespace lowtide
