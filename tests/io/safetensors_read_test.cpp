#include <random>

#include "lowtide/io/safetensors.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>((length >> (8 * i)) & 0xFF));
  return bytes + rest;
}

std::string file_of(const std::string& header, const std::string& data = "") {
  return with_length(header.size(), header + data);
}

std::string error_of(const std::string& bytes) {
  const std::string message = user_error([&] { parse_safetensors(bytes_of(bytes), "dir/x.safetensors"); });
  EXPECT_TRUE(contains(message, "dir/x.safetensors: not a valid safetensors file: "));
  return message;
}

// A file of one tensor "w" whose header entry is as given.
std::string error_of_entry(const std::string& entry, const std::string& data = "") {
  return error_of(file_of("{\"w\":" + entry + "}", data));
}

TEST(SafetensorsReader, ReadsAnotherProgramsFile) {
  // Padded differently, in its own order of keys, with a tensor that is not aligned.
  const std::string bytes = file_of(R"({ "w" : {"shape":[1], "data_offsets":[1,5], "dtype":"F32"},
    "__metadata__":{"format":"pt"}, "b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]} })",
                                    "b1234");
  const Safetensors read = parse_safetensors(bytes_of(bytes), "x");
  ASSERT_EQ(read.tensors.size(), 2u);
  EXPECT_EQ(read.tensors[0].name, "w");
  EXPECT_EQ(text_of(read.tensors[0].data), "1234");
  EXPECT_EQ(text_of(read.tensors[1].data), "b");
  EXPECT_EQ(read.metadata.at("format"), "pt");
}

TEST(SafetensorsReader, HeaderLength) {
  EXPECT_TRUE(contains(error_of(""), "it has 0 bytes"));
  EXPECT_TRUE(contains(error_of("1234567"), "it has 7 bytes"));
  EXPECT_TRUE(contains(error_of(with_length(3, "{}")), "claims 3 bytes, and only 2 follow"));
  EXPECT_TRUE(contains(error_of(with_length(100'000'001, "{}")), "more than the 100000000 allowed"));
  EXPECT_TRUE(contains(error_of(with_length(~0ull, "{}")), "claims 18446744073709551615 bytes"));
}

TEST(SafetensorsReader, HeaderJson) {
  EXPECT_TRUE(contains(error_of(file_of("")), "does not begin with '{'"));
  EXPECT_TRUE(contains(error_of(file_of(" {}")), "does not begin with '{'"));
  EXPECT_TRUE(contains(error_of(file_of("[]")), "does not begin with '{'"));
  EXPECT_TRUE(contains(error_of(file_of("{")), "not valid JSON"));
  EXPECT_TRUE(contains(error_of(file_of("{}x")), "not valid JSON"));
  EXPECT_TRUE(contains(error_of(file_of("{\"\xff\":1}")), "not valid JSON"));
  EXPECT_TRUE(contains(error_of(file_of(std::string("{}\0x", 4))), "not valid JSON"));
  EXPECT_TRUE(
      contains(error_of(file_of("{\"a\":" + std::string(1'000'000, '['))), "nested more than 3 levels deep"));
}

TEST(SafetensorsReader, DuplicateKeys) {
  EXPECT_TRUE(contains(error_of(file_of(R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"w":{}})")),
                       "the key \"w\" twice"));
  EXPECT_TRUE(contains(error_of_entry(R"({"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]})"),
                       "the key \"dtype\" twice"));
  EXPECT_TRUE(contains(error_of(file_of(R"({"__metadata__":{"a":"1","a":"2"}})")), "the key \"a\" twice"));
  EXPECT_TRUE(contains(error_of(file_of(R"({"__metadata__":{},"__metadata__":{}})")), "twice"));
}

TEST(SafetensorsReader, Metadata) {
  EXPECT_TRUE(contains(error_of(file_of(R"({"__metadata__":[]})")), "__metadata__ is not an object"));
  EXPECT_TRUE(contains(error_of(file_of(R"({"__metadata__":{"a":1}})")), "not a string under \"a\""));
}

TEST(SafetensorsReader, Entry) {
  EXPECT_TRUE(contains(error_of_entry("3"), "tensor \"w\" needs dtype, shape and data_offsets"));
  EXPECT_TRUE(contains(error_of_entry("{}"), "needs dtype"));
  EXPECT_TRUE(contains(error_of_entry(R"({"dtype":"U8","shape":[0]})"), "needs dtype"));
  EXPECT_TRUE(contains(error_of_entry(R"({"dtype":"U8","shape":[0],"data_offsets":[0,0],"more":1})"),
                       "nothing else"));
}

TEST(SafetensorsReader, DTypeOfEntry) {
  EXPECT_TRUE(contains(error_of_entry(R"({"dtype":"F8_E4M3","shape":[0],"data_offsets":[0,0]})"),
                       "unknown dtype \"F8_E4M3\" (known are F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL)"));
  EXPECT_TRUE(
      contains(error_of_entry(R"({"dtype":"f32","shape":[0],"data_offsets":[0,0]})"), "unknown dtype"));
  EXPECT_TRUE(contains(error_of_entry(R"({"dtype":1,"shape":[0],"data_offsets":[0,0]})"), "not a string"));
}

TEST(SafetensorsReader, ShapeOfEntry) {
  const auto with_shape = [](const std::string& shape) {
    return error_of_entry(R"({"dtype":"U8","shape":)" + shape + R"(,"data_offsets":[0,1]})", "x");
  };
  EXPECT_TRUE(contains(with_shape("1"), "a shape that is not an array"));
  EXPECT_TRUE(contains(with_shape("[-1]"), "something other than whole numbers"));
  EXPECT_TRUE(contains(with_shape("[1.0]"), "something other than whole numbers"));
  EXPECT_TRUE(contains(with_shape("[[1]]"), "nested more than 3 levels deep"));
  EXPECT_TRUE(contains(with_shape("[\"1\"]"), "something other than whole numbers"));
  EXPECT_TRUE(contains(with_shape("[9223372036854775808]"), "something other than whole numbers"));
  EXPECT_TRUE(contains(with_shape("[4294967296,4294967296]"), "too large to count"));
  EXPECT_TRUE(contains(with_shape("[9223372036854775807,3]"), "too large to count"));
  EXPECT_TRUE(contains(with_shape("[2]"), "needs 2 bytes by its shape, and its data_offsets span 1"));
  EXPECT_TRUE(contains(with_shape("[0]"), "needs 0 bytes"));
}

TEST(SafetensorsReader, OffsetsOfEntry) {
  const auto with_offsets = [](const std::string& offsets) {
    return error_of_entry(R"({"dtype":"U8","shape":[1],"data_offsets":)" + offsets + "}", "x");
  };
  EXPECT_TRUE(contains(with_offsets("{}"), "data_offsets that is not an array"));
  EXPECT_TRUE(contains(with_offsets("[0]"), "has 1 data_offsets, not 2"));
  EXPECT_TRUE(contains(with_offsets("[0,1,2]"), "has 3 data_offsets, not 2"));
  EXPECT_TRUE(contains(with_offsets("[1,0]"), "run backwards"));
  EXPECT_TRUE(contains(with_offsets("[0,2]"), "ends at byte 2 of the data, and the file holds 1"));
  EXPECT_TRUE(contains(with_offsets("[-1,0]"), "something other than whole numbers"));
}

std::string two_tensors(const std::string& a, const std::string& b, const std::string& data) {
  return file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
                     R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}",
                 data);
}

TEST(SafetensorsReader, Layout) {
  EXPECT_TRUE(contains(error_of(two_tensors("[0,2]", "[1,3]", "123")), "they overlap"));
  EXPECT_TRUE(contains(error_of(two_tensors("[0,2]", "[0,2]", "12")), "they overlap"));
  EXPECT_TRUE(contains(error_of(two_tensors("[0,2]", "[3,5]", "12345")), "there is a hole"));
  EXPECT_TRUE(contains(error_of(two_tensors("[1,3]", "[3,5]", "12345")), "there is a hole"));
  EXPECT_TRUE(contains(error_of(two_tensors("[2,4]", "[0,2]", "12345")), "1 bytes follow the last tensor"));
  EXPECT_TRUE(contains(error_of(file_of("{}", "x")), "1 bytes follow the last tensor"));
}

TEST(SafetensorsReader, NamesInMessagesStayOneShortLine) {
  const std::string message = error_of(file_of("{\"a\\n" + std::string(10000, 'x') + "\":1}"));
  EXPECT_TRUE(contains(message, "\"a\\nxxx"));
  EXPECT_LT(message.size(), 400u);
}

std::string small_file() {
  const std::vector<TensorView> tensors{{"weight", DType::kF32, {2}, bytes_of("12345678")},
                                        {"count", DType::kU8, {}, bytes_of("x")}};
  const EncodedSafetensors encoded = encode_safetensors(tensors, {{"k", "v"}});
  return encoded.header + "12345678x";
}

TEST(SafetensorsReader, CutShortAtEveryByte) {
  const std::string whole = small_file();
  EXPECT_EQ(parse_safetensors(bytes_of(whole), "x").tensors.size(), 2u);
  for (std::size_t size = 0; size < whole.size(); ++size) error_of(whole.substr(0, size));
  EXPECT_TRUE(contains(error_of(whole + '\0'), "1 bytes follow"));
}

TEST(SafetensorsReader, ADamagedByteIsReadOrRefused) {
  const std::string whole = small_file();
  std::mt19937 random(1);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int trial = 0; trial < 20; ++trial) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(random());
      try {
        for (const TensorView& tensor : parse_safetensors(bytes_of(damaged), "x").tensors) {
          EXPECT_LE(text_of(tensor.data).size(), whole.size());
        }
      } catch (const UserError& error) {
        EXPECT_TRUE(contains(error.what(), "x: not a valid safetensors file"));
      }
    }
  }
}

TEST(SafetensorsReader, ManyTensorsTakeLinearTime) {
  std::vector<TensorView> tensors;
  for (int i = 0; i < 50'000; ++i) tensors.push_back({"tensor." + std::to_string(i), DType::kU8, {0}, {}});
  const EncodedSafetensors encoded = encode_safetensors(tensors, {});
  EXPECT_EQ(parse_safetensors(bytes_of(encoded.header), "x").tensors.size(), tensors.size());
}

}  // namespace
}  // namespace lowtide
