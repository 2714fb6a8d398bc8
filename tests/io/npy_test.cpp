#include "lowtide/io/npy.h"

#include <gmock/gmock.h>

#include <cstdint>

#include "tests/io/scratch.h"
#include "tests/io/zip_files.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;
using testing::npy_of;
using testing::npy_vector;

std::string error_of(const std::string& bytes) {
  return user_error([&] { npy_integers(parse_npy(bytes_of(bytes), "x.npy"), "x.npy"); });
}

template <typename Number>
void expect_type(const std::string& type) {
  const std::string bytes = npy_vector<Number>(type, {1, 0, 77});
  const NpyArray array = parse_npy(bytes_of(bytes), "x.npy");
  EXPECT_THAT(array.shape, ElementsAre(3));
  EXPECT_EQ(array.size(), 3u);
  EXPECT_THAT(npy_floats(array), ElementsAre(1, 0, 77)) << type;
  if (type[1] == 'f') return;
  EXPECT_THAT(npy_integers(array, "x.npy"), ElementsAre(1, 0, 77)) << type;
}

TEST(Npy, ReadsEveryType) {
  expect_type<std::int8_t>("|i1");
  expect_type<std::uint8_t>("|u1");
  expect_type<std::uint8_t>("|b1");
  expect_type<std::int16_t>("<i2");
  expect_type<std::uint16_t>("<u2");
  expect_type<std::int32_t>("<i4");
  expect_type<std::uint32_t>("<u4");
  expect_type<std::int64_t>("<i8");
  expect_type<std::uint64_t>("<u8");
  expect_type<float>("<f4");
  expect_type<double>("<f8");
}

TEST(Npy, SignsAreKept) {
  const std::string bytes = npy_vector<std::int8_t>("|i1", {-1, -128});
  EXPECT_THAT(npy_integers(parse_npy(bytes_of(bytes), "x"), "x"), ElementsAre(-1, -128));
  const std::string large = npy_vector<std::uint32_t>("<u4", {0xffffffffu});
  EXPECT_THAT(npy_integers(parse_npy(bytes_of(large), "x"), "x"), ElementsAre(0xffffffffll));
}

TEST(Npy, ShapesAndVersions) {
  const std::string six = testing::bytes_of_numbers<std::int32_t>({1, 2, 3, 4, 5, 6});
  const auto shape = [](const std::string& bytes) { return parse_npy(bytes_of(bytes), "x").shape; };
  EXPECT_THAT(shape(npy_of("'<i4'", "(2, 3)", six)), ElementsAre(2, 3));
  EXPECT_THAT(shape(npy_of("'<i4'", "(6,)", six, 2)), ElementsAre(6));
  EXPECT_THAT(shape(npy_of("'<i4'", "(1,6,1)", six, 3)), ElementsAre(1, 6, 1));
  EXPECT_THAT(shape(npy_of("'<i4'", "()", six.substr(0, 4))), ElementsAre());
  EXPECT_THAT(shape(npy_of("'<i4'", "(0,)", "")), ElementsAre(0));
}

TEST(Npy, WhatItDoesNotRead) {
  const std::string four(4, '\0');
  EXPECT_TRUE(contains(error_of("some text that is not one"), "x.npy: does not begin as one"));
  EXPECT_TRUE(contains(error_of(npy_of("'<i4'", "(1,)", four, 9)), "version 9"));
  EXPECT_TRUE(contains(error_of(npy_of("'>i4'", "(1,)", four)), "type \">i4\" are not read"));
  EXPECT_TRUE(contains(error_of(npy_of("'|O'", "(1,)", four)), "type \"|O\""));
  EXPECT_TRUE(contains(error_of(npy_of("[('a', '<i4')]", "(1,)", four)), "structures"));
  EXPECT_TRUE(contains(error_of(npy_of("'<i4'", "(2,)", four)), "4 bytes of data, and its shape needs 8"));
  EXPECT_TRUE(
      contains(error_of(npy_of("'<i4'", "(4294967296, 4294967296, 4)", four)), "larger than any file"));
  EXPECT_TRUE(contains(error_of(npy_of("'<i4'", "(-1,)", four)), "cannot be understood"));
  EXPECT_TRUE(contains(error_of(npy_of("'<i4'", "(1 1)", four)), "cannot be understood"));
  EXPECT_TRUE(contains(error_of(npy_of("'<f4'", "(1,)", four)), "holds floats; expected whole numbers"));
  EXPECT_TRUE(contains(error_of(npy_vector<std::uint64_t>("<u8", {~0ull})), "beyond 2^63"));
  std::string columns_first = npy_of("'<i4'", "(1, 1)", four);
  columns_first.replace(columns_first.find("False"), 5, "True ");
  EXPECT_TRUE(contains(error_of(columns_first), "fortran_order"));
}

TEST(Npy, IsCutShortAtEveryByte) {
  const std::string whole = npy_vector<std::int32_t>("<i4", {1, 2});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_TRUE(contains(error_of(whole.substr(0, size)), "x.npy: ", "expected an array of numbers")) << size;
  }
}

}  // namespace
}  // namespace lowtide
