#include "lowtide/recipe/recipe_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <limits>

#include "lowtide/io/file.h"
#include "tests/io/scratch.h"
#include "tests/recipe/recipes.h"

namespace lowtide {
namespace {

class RecipeFiles : public testing::Test {
 protected:
  Recipe read(const std::string& content, std::vector<std::string> flags = {}) const {
    write_atomically(path_, content);
    flags.insert(flags.begin(), {"--recipe", path_.string()});
    return parse_arguments(flags);
  }

  // The message that a person sees.
  std::string error(const std::string& content) const {
    try {
      read(content);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    ADD_FAILURE() << "read without an error: " << content;
    return "";
  }

  void expect_round_trip(const Recipe& recipe) const {
    const std::string text = to_toml(recipe);
    EXPECT_EQ(to_json(read(text)), to_json(recipe)) << text;
  }

  const ScratchFolder folder_;
  const std::filesystem::path path_ = folder_ / "recipe.toml";
};

TEST_F(RecipeFiles, AsWrittenGivesTheSameRecipe) {
  expect_round_trip(Recipe());
  expect_round_trip(unusual_recipe());
}

TEST_F(RecipeFiles, ListsOfAnyLengthGiveTheSameRecipe) {
  for (const std::vector<double>& list : std::vector<std::vector<double>>{{}, {0.5}, {0.25, 0.5, 100}}) {
    Recipe recipe;
    recipe.data.mean = recipe.data.std = list;
    if (!list.empty()) recipe.training.lr_steps = list;
    expect_round_trip(recipe);
  }
  Recipe recipe;
  recipe.precision.layer_bits = {"conv1=8"};
  expect_round_trip(recipe);
  EXPECT_EQ(to_json(read("mean = []\nlayer-bits = [ ]\n")), to_json(Recipe()));
}

TEST_F(RecipeFiles, AnyTextGivesTheSameRecipe) {
  for (const char* text : {"/a b", "/a,b", "/a#b", "/a'b", "/a\"b", "/a\\b", "/a\\", "/a[b]", "a=b", "é/日本",
                           "'a'", "\"a\"", "true", "5", " a ", ";a", "# a", "/a'b\"c\\d#e", "a\tb\nc\x01"}) {
    Recipe recipe;
    recipe.data.dir = text;
    recipe.precision.layer_bits = {text, "b", text};
    expect_round_trip(recipe);
  }
}

TEST_F(RecipeFiles, CommentsBlankLinesAndListsOverLinesAreRead) {
  const Recipe recipe = read(
      "# a comment\n\nsteps = 5   # five\nlr-steps = [0.1,\n  0.2, # more\n  0.3]\nflip = true\n"
      "data-dir = \"a # b\"\n");
  EXPECT_EQ(recipe.training.steps, 5);
  EXPECT_EQ(recipe.training.lr_steps, (std::vector<double>{0.1, 0.2, 0.3}));
  EXPECT_TRUE(recipe.data.flip);
  EXPECT_EQ(recipe.data.dir, "a # b");
}

TEST_F(RecipeFiles, TheRepositorysRecipesAreReadAndPossible) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOWTIDE_SOURCE_DIR "/recipes")) {
    if (entry.path().extension() != ".toml") continue;
    SCOPED_TRACE(entry.path().string());
    ++count;
    Recipe recipe = parse_arguments({"--recipe", entry.path().string()});
    if (recipe.data.dir.empty()) recipe.data.dir = "somewhere";
    EXPECT_NO_THROW(check(recipe));
    expect_round_trip(recipe);
  }
  EXPECT_GT(count, 0);
}

TEST_F(RecipeFiles, FlagsWinOverTheFileAndTheFileOverTheDefault) {
  const Recipe recipe =
      read("steps = 5\nlr = 0.5\nflip = true\nmean = [1, 2]\n", {"--lr", "0.25", "--no-flip", "--mean", "3"});
  EXPECT_EQ(recipe.training.steps, 5);
  EXPECT_EQ(recipe.training.lr, 0.25);
  EXPECT_FALSE(recipe.data.flip);
  EXPECT_EQ(recipe.data.mean.size(), 1);
  EXPECT_EQ(recipe.training.batch, Recipe().training.batch);
}

TEST_F(RecipeFiles, TextAndNumbersAreThoseOfToml) {
  EXPECT_EQ(read(R"(data-dir = "a\t\"b\\\u00e9\U0001F600")").data.dir, "a\t\"b\\é😀");
  EXPECT_EQ(read(R"(data-dir = 'C:\new "x"')").data.dir, R"(C:\new "x")");
  EXPECT_EQ(read("steps = 64_000\r\nlr=+1e-3 # a rate\r\n").training.steps, 64000);
  EXPECT_EQ(read("\xef\xbb\xbfsteps = 7").training.steps, 7);
  EXPECT_EQ(read("lr-steps = [\n  0.5, # half\n  0.75,\n]").training.lr_steps,
            (std::vector<double>{0.5, 0.75}));
}

TEST_F(RecipeFiles, WhatIsWrongIsToldWithItsLine) {
  EXPECT_TRUE(contains(error("# one\n\nstepz = 5\n"), "line 3", "unknown key 'stepz'"));
  EXPECT_TRUE(contains(error("help = true\n"), "line 1", "unknown key 'help'"));
  EXPECT_TRUE(contains(error("recipe = \"other.toml\"\n"), "line 1", "unknown key 'recipe'"));
  EXPECT_TRUE(contains(error("[training]\nsteps = 5\n"), "line 1", "no sections"));
  EXPECT_TRUE(contains(error("steps = 5\nlr = 1\nsteps = 6\n"), "line 3"));
  EXPECT_TRUE(contains(error("flip = true\nno-flip = true\n"), "line 2", "given twice"));
  EXPECT_TRUE(contains(error("lr-steps = []\n"), "lr-steps", "empty list"));
  EXPECT_TRUE(contains(error("mean = [1, [2]]\n"), "line 1", "mean must be"));
  EXPECT_TRUE(contains(error("steps = 1979-05-27\n"), "line 1", "steps must be"));
  for (const char* malformed :
       {"lr = 1\nsteps\n", "lr = 1\n= 5\n", "lr = 1\nsteps = 5 6\n", "lr = 1\nmodel = resnet18\n",
        "lr = 1\nmodel = \"resnet18\n", "lr = 1\nmodel = \"a\\qb\"\n", "lr = 1\nmean = [1 2]\n"}) {
    EXPECT_TRUE(contains(error(malformed), "line 2")) << malformed;
  }
}

TEST_F(RecipeFiles, AValueOfTheWrongTypeIsTold) {
  EXPECT_TRUE(contains(error("steps = \"many\"\n"), "steps", "many", "whole number"));
  EXPECT_TRUE(contains(error("steps = 1.5\n"), "steps", "1.5", "whole number"));
  EXPECT_TRUE(contains(error("steps = true\n"), "steps", "true", "whole number"));
  EXPECT_TRUE(contains(error("steps = [1, 2]\n"), "steps is one value"));
  EXPECT_TRUE(contains(error("lr = \"fast\"\n"), "lr", "fast"));
  EXPECT_TRUE(contains(error("lr-steps = [0.5, \"x\"]\n"), "lr-steps", "x"));
  EXPECT_TRUE(contains(error("flip = 7\n"), "flip is 7", "true or false"));
  EXPECT_TRUE(contains(error("seed = -1\n"), "seed", "-1", "whole number from 0 to"));
  EXPECT_TRUE(contains(error("batch = 99999999999999999999\n"), "line 1"));
}

TEST_F(RecipeFiles, AMissingFileIsTold) {
  EXPECT_THROW(parse_arguments({"--recipe", (folder_ / "missing.toml").string()}), CLI::FileError);
}

TEST(RecipeFlags, NumbersBeyondTheirTypeAreTold) {
  EXPECT_THROW(parse_arguments({"--seed", "-1"}), CLI::ValidationError);
  EXPECT_THROW(parse_arguments({"--padding", "3000000000"}), CLI::ValidationError);
  EXPECT_EQ(parse_arguments({"--eval-bits", "-1", "--seed", "18446744073709551615"}).training.seed,
            std::numeric_limits<std::uint64_t>::max());
}

TEST_F(RecipeFiles, KeysOfManyPartsAreRefused) {
  const auto parts = [](std::size_t count, const std::string& part) {
    std::string key = part;
    for (std::size_t i = 1; i < count; ++i) key += "." + part;
    return key;
  };
  // Each part is a table in a table: with so many the stack would end where they are taken apart.
  constexpr std::size_t kMany = 100'000;
  for (const std::string& text : {parts(kMany, "a") + " = 1\n", "[" + parts(kMany, "a") + "]\n",
                                  "x = {" + parts(kMany, "\"b\"") + " = 1}\n",
                                  parts(kMany, "'c.'") + " = 1\n", parts(kMany, " \"\\\".\" ") + " = 1\n"}) {
    EXPECT_TRUE(contains(error(text), "line 1: a key of more than 8 parts")) << text.substr(0, 20);
  }
  EXPECT_TRUE(contains(error("data = \"\"\"\n\"a.\"\n\"\"\"\n# .........\n" + parts(9, "a") + " = 1\n"),
                       "line 5: a key of more than 8 parts"));
  EXPECT_TRUE(contains(error(parts(8, "a") + " = 1\n"), "sections")) << "few enough to be told what is wrong";
  // Points that part no keys.
  EXPECT_EQ(read("data-dir = '../../../../../../../../../..'\nmean = [0.1, 0.2, 0.3]\n# .........\n")
                .data.mean.size(),
            3u);
}

TEST_F(RecipeFiles, NestedListsAndTablesAreRefused) {
  for (const std::string open : {"[", "{a="}) {
    std::string text = "mean = ";
    for (int i = 0; i < 100'000; ++i) text += open;
    EXPECT_TRUE(contains(error(text), "line 1:")) << open;
  }
}

TEST_F(RecipeFiles, AFileThatIsNoRecipeIsNotReadToItsEnd) {
  const auto error_of = [](const std::string& path) {
    try {
      parse_arguments({"--recipe", path});
    } catch (const CLI::ParseError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_TRUE(contains(error_of("/dev/zero"), "more than 1048576 bytes"));
  EXPECT_TRUE(contains(error_of("/proc/self/mem"), "cannot be read"));
  EXPECT_EQ(recipe_path_problem("/dev/stdin"), "");
  EXPECT_EQ(recipe_path_problem((folder_ / "none").string()), "") << "told where it is read";
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(contains(recipe_path_problem((folder_ / "pipe").string()), "is a pipe"));
}

}  // namespace
}  // namespace lowtide
