#include "lowtide/schedule/layer_rules.h"

#include <gtest/gtest.h>

#include "tests/schedule/error_of.h"

namespace lowtide {
namespace {

TEST(LayerPrecision, Resolves) {
  const LayerPrecision fixed{LayerPrecision::Kind::kFixed, 8};
  const LayerPrecision fp32{LayerPrecision::Kind::kFp32, 0};
  EXPECT_EQ(LayerPrecision{}.resolve({3, 6}), (Bits{3, 6}));
  EXPECT_EQ(fixed.resolve({3, 6}), (Bits{8, 6}));
  EXPECT_EQ(fp32.resolve({3, 6}), Bits{});
  // A step in fp32 is in fp32 everywhere.
  for (const LayerPrecision& precision : {LayerPrecision{}, fixed, fp32})
    EXPECT_EQ(precision.resolve({}), Bits{});
}

TEST(LayerRules, LastMatchWins) {
  const LayerRules rules({"*=8", "*.shortcut=fp32", "group1.*=scheduled", "group1.block?.conv2=4"});
  EXPECT_EQ(to_string(rules.match("conv1")), "8");
  EXPECT_EQ(to_string(rules.match("group2.block0.shortcut")), "fp32");
  EXPECT_EQ(to_string(rules.match("group1.block0.shortcut")), "scheduled");
  EXPECT_EQ(to_string(rules.match("group1.block0.conv2")), "4");
  EXPECT_EQ(to_string(rules.match("group1.block10.conv2")), "scheduled");
}

TEST(LayerRules, WithoutAMatchTheFallbackHolds) {
  EXPECT_EQ(LayerRules().match("conv1"), LayerPrecision{});
  EXPECT_EQ(to_string(LayerRules({"a=4"}).match("b", {LayerPrecision::Kind::kFp32, 0})), "fp32");
}

TEST(LayerRules, ReportsPatternsThatMatchNothing) {
  const LayerRules rules({"conv1=8", "cnov2=8", "*.shortcut=fp32", "*=4"});
  EXPECT_EQ(rules.unmatched({"conv1", "conv2"}), (std::vector<std::string>{"cnov2", "*.shortcut"}));
  EXPECT_TRUE(rules.unmatched({"conv1", "cnov2", "x.shortcut"}).empty());
}

TEST(LayerRules, PrintAsTheyWereRead) {
  const std::vector<std::string> texts{"conv1=8", "*.shortcut=fp32", "group1.*=scheduled"};
  const LayerRules rules(texts);
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(to_string(rules.rules()[i]), texts[i]);
}

TEST(LayerRules, RefusesTheMalformed) {
  for (const char* text : {"", "conv1", "=8", "conv1=", "conv1=1", "conv1=33", "conv1=0", "conv1=eight",
                           "a=b=8", "conv 1=8", " conv1=8", "conv1=8 ", "conv1=8\n"}) {
    const std::string message = error_of([&] { LayerRules({text}); });
    EXPECT_TRUE(message.starts_with("layer rule '")) << text << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(Glob, Matches) {
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("**a", "a"));
  EXPECT_TRUE(glob_matches("a*b*c", "a.b.b.c"));
  EXPECT_TRUE(glob_matches("?", "x"));
  EXPECT_FALSE(glob_matches("?", ""));
  EXPECT_FALSE(glob_matches("a*b", "a.b.c"));
  EXPECT_FALSE(glob_matches("", "a"));
  EXPECT_FALSE(glob_matches("a", "A"));
}

TEST(Glob, TakesNoExponentialTime) {
  std::string pattern;
  for (int i = 0; i < 50; ++i) pattern += "*a";
  EXPECT_FALSE(glob_matches(pattern + "b", std::string(5000, 'a')));
}

}  // namespace
}  // namespace lowtide
