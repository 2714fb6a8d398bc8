#include "lowtide/io/json_check.h"

#include <gtest/gtest.h>

#include "lowtide/base/json_reason.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

std::string nested(std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

std::string error_of(const std::string& text) {
  return user_error([&] { parse_json(text, "x.json", "expected better"); });
}

TEST(ParseJson, GivesTheValue) {
  EXPECT_EQ(parse_json("{\"a\": [1, 2.5, null]}", "x.json", "").at("a").at(1), 2.5);
  EXPECT_EQ(parse_json<nlohmann::json>("{\"b\": 1, \"a\": 2}", "x.json", "").begin().key(), "a") << "sorted";
  EXPECT_EQ(parse_json("{\"b\": 1, \"a\": 2}", "x.json", "").begin().key(), "b") << "as written";
}

TEST(ParseJson, BoundsTheDepth) {
  EXPECT_NO_THROW(parse_json(nested(kMaxJsonDepth), "x.json", ""));
  EXPECT_EQ(error_of(nested(kMaxJsonDepth + 1)),
            "x.json: is nested more than 64 levels deep; expected better");
  // Where the library's own parser, or what takes its value apart, would end the stack.
  for (const std::string& text : {std::string(10'000'000, '['), nested(1'000'000)})
    EXPECT_TRUE(contains(error_of(text), "nested more than 64 levels"));
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += "{\"a\":";
  EXPECT_TRUE(contains(error_of(objects), "nested more than 64 levels"));
  EXPECT_TRUE(contains(user_error([] { parse_json("[[[0]]]", "x.json", "", 2); }), "more than 2 levels"));
}

TEST(ParseJson, SaysWhatIsWrong) {
  for (const char* text : {"", "{", "{} {}", "nul", "{\"a\": 1e999}", "\"\xff\""})
    EXPECT_EQ(error_of(text), "x.json: is not valid JSON; expected better") << text;
  EXPECT_TRUE(contains(error_of("{\"a\": 1, \"a\": 2}"), "has the key \"a\" twice"));
}

TEST(JsonReason, LeavesTheLibrarysNamesOut) {
  const Json text = "a";
  try {
    text.get<int>();
    ADD_FAILURE() << "a text is no number";
  } catch (const Json::exception& error) {
    EXPECT_EQ(json_reason(error), "type must be number, but is string");
  }
}

}  // namespace
}  // namespace lowtide
