#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowtide/data/text/entailment.h"
#include "tests/data/image_files.h"
#include "tests/io/scratch.h"

namespace lowtide::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

EntailmentData read(const std::string& text, const PairLabels& wanted = {}) {
  return parse_labelled_pairs(lines_of_text(text, "x.tsv"), wanted);
}

std::string error_of(const std::string& text, const PairLabels& wanted = {}) {
  return user_error([&] { read(text, wanted); });
}

std::vector<std::int32_t> labels(const EntailmentData& data) {
  std::vector<std::int32_t> result;
  for (const SentencePair& pair : data.pairs) result.push_back(pair.label);
  return result;
}

TEST(LabelledPairs, LabelsAreNumberedByName) {
  const EntailmentData data = read("a\tb\tsame\nc\td\t-\ne\tf\tOther\ng\th\tsame\n");
  EXPECT_THAT(data.classes, ElementsAre("-", "Other", "same"));
  EXPECT_THAT(labels(data), ElementsAre(2, 0, 1, 2));
  EXPECT_EQ(data.pairs[1].hypothesis, "d");
  EXPECT_THAT(data.describe(), HasSubstr("4 pairs of sentences, 3 classes"));
}

TEST(LabelledPairs, ColumnsByUsualNames) {
  const EntailmentData data = read("id\thypothesis\tlabel\tpremise\n1\tb\t0\ta\n2\td\t1\tc\n");
  EXPECT_EQ(data.pairs[0].premise, "a");
  EXPECT_EQ(data.pairs[0].hypothesis, "b");
  EXPECT_THAT(labels(data), ElementsAre(0, 1));
}

TEST(LabelledPairs, ColumnsByChoice) {
  // Quora's question pairs.
  const std::string text = "id\tquestion1\tquestion2\tis_duplicate\n1\ta\tb\tyes\n2\tc\td\tno\n";
  const EntailmentData named = read(text, {{"question2", "question1", "is_duplicate"}});
  ASSERT_EQ(named.pairs.size(), 2u);
  EXPECT_EQ(named.pairs[0].premise, "b");
  EXPECT_THAT(named.classes, ElementsAre("no", "yes"));
  // By numbers there is no header: its line is a pair like any other.
  const EntailmentData numbered = read("yes\tb\ta\nno\td\tc\n", {{"3", "2", "1"}});
  EXPECT_EQ(numbered.pairs[1].premise, "c");
  EXPECT_THAT(labels(numbered), ElementsAre(1, 0));
  // A file to predict has no labels.
  EXPECT_THAT(labels(read("q\tr\na\tb\n", {{"q", "r", "s"}})), ElementsAre(SentencePair::kNoLabel));
  EXPECT_THAT(error_of(text, {{"question1", "question3", "is_duplicate"}}),
              StartsWith("x.tsv:1: no column \"question3\"; expected a header that has it"));
  EXPECT_THAT(error_of(text, {{"1", "2", "5"}}),
              StartsWith("x.tsv: 4 columns, and --columns asks for \"5\"; expected 1 to 4"));
  EXPECT_THAT(error_of(text, {{"0", "1", "2"}}), HasSubstr("asks for \"0\""));
}

TEST(LabelledPairs, ClassesByChoice) {
  const PairLabels wanted{{}, {"same", "other", "rare"}};
  const EntailmentData data = read("a\tb\tother\nc\td\tsame\n", wanted);
  EXPECT_THAT(labels(data), ElementsAre(1, 0));
  EXPECT_EQ(data.classes, wanted.classes);
  EXPECT_THAT(error_of("a\tb\tsame\nc\td\tnew\n", wanted),
              StartsWith("x.tsv:2: label \"new\"; expected one of same, other, rare"));
}

TEST(LabelledPairs, WhatIsWrongIsNamed) {
  EXPECT_THAT(error_of(""), StartsWith("x.tsv: no pairs of sentences"));
  EXPECT_THAT(error_of("a\tb\n"), StartsWith("x.tsv:1: 2 columns; expected 3, separated by tabs: premise,"));
  EXPECT_THAT(error_of("a\tb\tx\nc\td\n"), StartsWith("x.tsv:2: 2 columns; expected 3"));
  EXPECT_THAT(error_of("a\tb\tx\nc\td\t\n"), StartsWith("x.tsv:2: no label"));
  EXPECT_THAT(error_of("a\tb\tx\nc\td\tx\n"), StartsWith("x.tsv: every label is \"x\"; expected two"));
  EXPECT_THAT(error_of("a\xff\tb\tx\n"), StartsWith("x.tsv:1: not UTF-8"));
  EXPECT_THAT(error_of("a\tb\t\xff\n"), StartsWith("x.tsv:1: not UTF-8"));
  std::string many;
  for (int i = 0; i <= 1000; ++i) many += "a\tb\tlabel " + std::to_string(i) + "\n";
  EXPECT_THAT(error_of(many), StartsWith("x.tsv:1001: more than 1000 labels, the last \"label 1000\""));
}

TEST(LabelledPairs, OpensByName) {
  ScratchFolder folder;
  EXPECT_THAT(user_error([&] { open_labelled_pairs(folder.path(), Split::kValid, {}); }),
              HasSubstr(": none of valid.tsv, dev.tsv is there; expected pairs data"));
  write_file(folder / "dev.tsv", "a\tb\t1\nc\td\t2\n");
  EXPECT_EQ(open_labelled_pairs(folder.path(), Split::kValid, {}).pairs.size(), 2u);
  write_gzip(folder / "train.tsv", "a\tb\t1\nc\td\t2\n");
  EXPECT_EQ(open_labelled_pairs(folder.path(), Split::kTrain, {}).classes.size(), 2u)
      << "gzip, by its first bytes";
  EXPECT_TRUE(has_entailment("pairs", folder.path(), Split::kValid));
  EXPECT_FALSE(has_entailment("pairs", folder.path(), Split::kTest));
}

}  // namespace
}  // namespace lowtide::testing
