#include <gtest/gtest.h>

#include "lowtide/io/digest.h"
#include "lowtide/io/safetensors.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

std::string joined(const EncodedSafetensors& encoded) {
  std::string bytes = encoded.header;
  for (const ByteSpan piece : encoded.data) bytes += text_of(piece);
  return bytes;
}

const std::vector<TensorView> kTensors{{"w", DType::kU8, {3}, bytes_of("xyz")},
                                       {"header_xxh128", DType::kI16, {1}, bytes_of("ab")}};

TEST(Seal, HoldsForWhatWasWritten) {
  // Keys and values that look like the digests' own.
  const Metadata metadata{{"a\"header_xxh128", "0"},
                          {"a,\"data_xxh128", "1"},
                          {"note", ",\"header_xxh128\":\""},
                          {"header_xxh128", "not a digest"}};
  const std::string bytes = joined(encode_sealed_safetensors(kTensors, metadata));
  const Safetensors file = parse_safetensors(bytes_of(bytes), "x");
  check_sealed_header(file, "x");
  check_sealed_data(file, "x");
  EXPECT_EQ(file.metadata.size(), 5u);
  EXPECT_EQ(file.metadata.at("a\"header_xxh128"), "0");
  const ByteSpan data = bytes_of("abxyz");  // by falling size of the elements
  EXPECT_EQ(file.metadata.at("data_xxh128"), xxh128(std::span(&data, 1)));
}

TEST(Seal, TheSameContentGivesTheSameBytes) {
  const Metadata metadata{{"lowtide", "{}"}};
  EXPECT_EQ(joined(encode_sealed_safetensors(kTensors, metadata)),
            joined(encode_sealed_safetensors(kTensors, metadata)));
}

TEST(Seal, AHeaderIsCheckedWithoutTheTensors) {
  std::string bytes = joined(encode_sealed_safetensors(kTensors, {}));
  bytes.back() ^= 1;
  const Safetensors file = parse_safetensors(bytes_of(bytes), "x");
  check_sealed_header(file, "x");
  EXPECT_TRUE(contains(user_error([&] { check_sealed_data(file, "x"); }), "x: the bytes of its tensors"));
}

TEST(Seal, WhatNeverHadOneDoesNotPass) {
  const std::string bytes = joined(encode_safetensors(kTensors, {{"lowtide", "{}"}}));
  const Safetensors file = parse_safetensors(bytes_of(bytes), "x");
  EXPECT_TRUE(contains(user_error([&] { check_sealed_header(file, "x"); }), "x: the bytes of its header"));
  EXPECT_TRUE(contains(user_error([&] { check_sealed_data(file, "x"); }), "x: the bytes of its tensors"));
}

}  // namespace
}  // namespace lowtide
