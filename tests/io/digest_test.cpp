#include "lowtide/io/digest.h"

#include <gtest/gtest.h>

#include <array>

namespace lowtide {
namespace {

// Of xxhsum -H2.
TEST(Digest, IsThatOfTheReference) {
  EXPECT_EQ(xxh128({}), "99aa06d3014798d86001c324468d497f");
  const ByteSpan abc = bytes_of("abc");
  EXPECT_EQ(xxh128(std::span(&abc, 1)), "06b05ab6733a618578af5f94892f3950");
}

TEST(Digest, DoesNotDependOnThePieces) {
  const std::string text(1000, 'x');
  const std::array whole{bytes_of(text)};
  for (const std::size_t cut : {0, 1, 500, 1000}) {
    const std::array parts{bytes_of(text).first(cut), bytes_of(text).subspan(cut)};
    EXPECT_EQ(xxh128(parts), xxh128(whole));
  }
}

}  // namespace
}  // namespace lowtide
