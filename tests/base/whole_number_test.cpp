#include "lowtide/base/whole_number.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/io/scratch.h"

namespace lowtide {
namespace {

TEST(WholeNumber, IsWhatTheFileHas) {
  const Json object{{"n", 5}, {"low", -3}};
  EXPECT_EQ(whole_number(object, "n", 5, 5, "here"), 5);
  EXPECT_EQ(whole_number(object, "low", -3, 0, "here"), -3);
}

TEST(WholeNumber, IsNeverMadeOfSomethingElse) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  for (const char* value : {"1.5", "1e18", "5.0", "\"5\"", "null", "true", "[5]", "-1", "9223372036854775808",
                            "18446744073709551615"}) {
    const Json object{{"n", Json::parse(value)}};
    EXPECT_TRUE(contains(user_error([&] { whole_number(object, "n", 0, kMost, "here"); }), "here: n is ",
                         "expected a whole number from 0 to"))
        << value;
  }
  EXPECT_TRUE(
      contains(user_error([&] { whole_number(Json::object(), "n", 0, 1, "here"); }), "here: n is missing"));
}

}  // namespace
}  // namespace lowtide
