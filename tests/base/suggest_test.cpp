#include "lowtide/base/suggest.h"

#include <gtest/gtest.h>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

struct Case {
  std::string_view word;
  std::vector<std::string_view> known;
  std::string_view expected;
};

TEST(Suggest, WhatWasMeant) {
  const std::vector<std::string_view> commands{"train", "eval", "compare", "range-test", "study"};
  const std::vector<std::string_view> flags{"--steps",     "--epochs",    "--bits",
                                            "--grad-bits", "--eval-bits", "--layer-bits",
                                            "--lr",        "--lr-steps",  "--data-dir"};
  const std::vector<std::string_view> models{"cifar-resnet8", "cifar-resnet20", "resnet18", "resnet50"};
  const std::vector<std::string_view> schedules{"RR", "CR", "LR", "ER", "CT", "RTH", "RTV", "static"};
  for (const Case& c : std::vector<Case>{
           {"trian", commands, " (did you mean 'train'?)"},   // two neighbours swapped
           {"studdy", commands, " (did you mean 'study'?)"},  // one too many
           {"comprae", commands, " (did you mean 'compare'?)"},
           {"range", commands, " (did you mean 'range-test'?)"},  // a part
           {"Train", commands, " (did you mean 'train'?)"},
           {"quantise", commands, ""},
           {"", commands, ""},
           {"--step", flags, " (did you mean '--steps'?)"},
           {"-steps", flags, " (did you mean '--steps'?)"},
           {"--data_dir", flags, " (did you mean '--data-dir'?)"},
           {"--bit", flags, " (did you mean '--bits'?)"},  // part of four: the nearest
           {"--", flags, ""},
           // A part is nearer than another name of the same length.
           {"resnet20", models, " (did you mean 'cifar-resnet20'?)"},
           {"resnet5O", models, " (did you mean 'resnet50'?)"},
           {"cc", schedules, " (did you mean 'CR' or 'CT'?)"},
           {"RTX", schedules, " (did you mean 'RTH' or 'RTV'?)"},
           {"XR", schedules, ""},  // of four one says nothing
           {"xy", schedules, ""},
       }) {
    EXPECT_EQ(did_you_mean(c.word, c.known), c.expected) << c.word;
  }
}

TEST(Suggest, ALongWordIsNone) {
  EXPECT_EQ(did_you_mean(std::string(1'000'000, 'a'), {std::string(1'000'000, 'a')}), "");
}

TEST(Suggest, Choices) {
  EXPECT_EQ(choices_in("sgd|adam"), (std::vector<std::string_view>{"sgd", "adam"}));
  EXPECT_EQ(choices_in("sgd"), (std::vector<std::string_view>{"sgd"}));
  EXPECT_NO_THROW(expect_choice("split", "valid", "test|valid"));
  try {
    expect_choice("split", "tets", "test|valid");
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "split is 'tets' (did you mean 'test'?); expected one of test, valid");
  }
}

}  // namespace
}  // namespace lowtide
