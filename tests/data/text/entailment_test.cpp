#include "lowtide/data/text/entailment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/image_files.h"
#include "tests/data/real_data.h"
#include "tests/io/scratch.h"

namespace lowtide::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

EntailmentData tsv(const std::string& text, const std::string& language = "") {
  return parse_entailment_tsv(lines_of_text(text, "x.tsv"), language);
}
EntailmentData jsonl(const std::string& text, const std::string& language = "") {
  return parse_entailment_jsonl(lines_of_text(text, "x.jsonl"), language);
}

std::vector<std::int32_t> labels(const EntailmentData& data) {
  std::vector<std::int32_t> result;
  for (const SentencePair& pair : data.pairs) result.push_back(pair.label);
  return result;
}

TEST(Entailment, WithoutAHeader) {
  const EntailmentData data =
      tsv("He said \"no.\tHe spoke.\tentailment\nA\tB\tneutral\nA\t\tcontradiction\n");
  ASSERT_EQ(data.pairs.size(), 3u);
  EXPECT_EQ(data.pairs[0].premise, "He said \"no.");  // quotes mean nothing
  EXPECT_EQ(data.pairs[0].hypothesis, "He spoke.");
  EXPECT_THAT(labels(data), ElementsAre(0, 1, 2));
  EXPECT_THAT(data.classes, ElementsAre("entailment", "neutral", "contradiction"));
  EXPECT_THAT(data.describe(), HasSubstr("x.tsv: 3 pairs of sentences, 3 classes"));
}

TEST(Entailment, ColumnsByName) {
  // GLUE's RTE, two classes.
  const EntailmentData rte =
      tsv("index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n1\tc\td\tentailment\n");
  EXPECT_EQ(rte.pairs[1].premise, "c");
  EXPECT_THAT(labels(rte), ElementsAre(1, 0));
  EXPECT_THAT(rte.classes, ElementsAre("entailment", "not_entailment"));
  // SICK, from Windows, in capitals.
  const EntailmentData sick = tsv(
      "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n6\ta\tb\t3.3\tNEUTRAL\r\n"
      "7\tc\td\t1\tCONTRADICTION\r\n");
  EXPECT_THAT(labels(sick), ElementsAre(1, 2));
  EXPECT_EQ(sick.pairs[1].hypothesis, "d");
  // XNLI's translated MultiNLI.
  const EntailmentData translated = tsv("premise\thypo\tlabel\na\tb\tcontradictory\n");
  EXPECT_THAT(labels(translated), ElementsAre(2));
  // GLUE's MNLI has more columns, and label1 before gold_label.
  const EntailmentData mnli =
      tsv("index\tsentence1\tsentence2\tlabel1\tgold_label\n0\ta\tb\tneutral\tentailment\n");
  EXPECT_THAT(labels(mnli), ElementsAre(0));
}

TEST(Entailment, WithoutLabels) {
  const EntailmentData data = tsv("index\tsentence1\tsentence2\n0\ta\tb\n");
  EXPECT_THAT(labels(data), ElementsAre(SentencePair::kNoLabel));
  EXPECT_TRUE(data.classes.empty());
  EXPECT_THAT(data.describe(), HasSubstr("1 pairs of sentences, no labels"));
}

TEST(Entailment, WithoutAgreement) {
  const EntailmentData data = tsv("gold_label\tsentence1\tsentence2\n-\ta\tb\nneutral\tc\td\n-\te\tf\n");
  ASSERT_EQ(data.pairs.size(), 1u);
  EXPECT_EQ(data.pairs[0].premise, "c");
  EXPECT_EQ(data.undecided, 2);
  EXPECT_THAT(data.describe(), HasSubstr("1 pairs of sentences, 3 classes, 2 without agreement left out"));
}

TEST(Entailment, OneLanguageOfMany) {
  const std::string all =
      "language\tgold_label\tsentence1\tsentence2\nar\tneutral\ta\tb\nde\tentailment\tc\td\n";
  EXPECT_EQ(tsv(all).pairs.size(), 2u);
  EXPECT_EQ(tsv(all, "de").pairs.at(0).premise, "c");
  EXPECT_THAT(user_error([&] { tsv(all, "fr"); }),
              StartsWith("x.tsv: no pairs of sentences for the language \"fr\"; expected some"));
  EXPECT_EQ(tsv("a\tb\tneutral\n", "fr").pairs.size(), 1u);  // no such column: a file of one language
}

TEST(Entailment, JsonLines) {
  const std::string text =
      "{\"gold_label\": \"neutral\", \"sentence1\": \"tab\\there\", \"sentence2\": \"b\", \"language\": "
      "\"en\"}\n"
      "{\"gold_label\": \"-\", \"sentence1\": \"c\", \"sentence2\": \"d\", \"annotator_labels\": [\"x\"]}\n"
      "{\"gold_label\": \"entailment\", \"sentence1\": \"e\", \"sentence2\": \"f\", \"language\": \"de\"}\n";
  const EntailmentData data = jsonl(text);
  ASSERT_EQ(data.pairs.size(), 2u);
  EXPECT_EQ(data.pairs[0].premise, "tab\there");
  EXPECT_THAT(labels(data), ElementsAre(1, 0));
  EXPECT_EQ(data.undecided, 1);
  EXPECT_EQ(jsonl(text, "de").pairs.size(), 1u);
}

TEST(Entailment, DamagedLinesAreNamed) {
  const auto tsv_error = [](const std::string& text) { return user_error([&] { tsv(text); }); };
  EXPECT_THAT(tsv_error("a\tb\n"),
              StartsWith("x.tsv:1: 2 columns; expected 3, separated by tabs: premise, "));
  EXPECT_THAT(tsv_error("a\tb\tneutral\na\tb\n"),
              StartsWith("x.tsv:2: 2 columns; expected 3, separated by tabs"));
  EXPECT_THAT(tsv_error("a\tb\tneutral\n\n"), StartsWith("x.tsv:2: 1 columns"));
  EXPECT_THAT(tsv_error("a\tb\tmaybe\n"),
              StartsWith("x.tsv:1: label \"maybe\"; expected entailment, neutral"));
  EXPECT_THAT(tsv_error("a\tb\tneutral\na\tb\tnot_entailment\n"),
              StartsWith("x.tsv:2: label \"not_entailment\""));
  EXPECT_THAT(tsv_error("a\tb\tnot_entailment\na\tb\tneutral\n"), StartsWith("x.tsv:2: label \"neutral\""));
  EXPECT_THAT(tsv_error("a\xff\tb\tneutral\n"), StartsWith("x.tsv:1: not UTF-8"));
  EXPECT_THAT(tsv_error(""), StartsWith("x.tsv: no pairs of sentences; expected some"));
  EXPECT_THAT(tsv_error("sentence1\tsentence2\n"), StartsWith("x.tsv: no pairs of sentences"));
  const auto json_error = [](const std::string& text) { return user_error([&] { jsonl(text); }); };
  EXPECT_THAT(json_error("{\"sentence1\": \"a\"}\n"),
              StartsWith("x.jsonl:1: no text for \"sentence2\"; expected"));
  EXPECT_THAT(json_error("{\"sentence1\": 1}\n"), StartsWith("x.jsonl:1: no text for \"sentence1\""));
  EXPECT_THAT(json_error("[1]\n"), StartsWith("x.jsonl:1: array; expected one JSON object a line"));
  EXPECT_THAT(json_error("{\"a\": 1, \"a\": 2}\n"), HasSubstr("has the key \"a\" twice"));
  EXPECT_THAT(json_error("{\n"), StartsWith("x.jsonl:1: is not valid JSON"));
}

TEST(Entailment, OpensByName) {
  ScratchFolder folder;
  EXPECT_THAT(user_error([&] { open_entailment("xnli", folder.path(), Split::kValid, "sw"); }),
              HasSubstr(": none of dev-sw.tsv, xnli.dev.tsv, xnli.dev.jsonl is there; expected xnli data"));
  write_file(folder / "xnli.dev.tsv", "language\tgold_label\tsentence1\tsentence2\nsw\tneutral\ta\tb\n");
  EXPECT_EQ(open_entailment("xnli", folder.path(), Split::kValid, "sw").pairs.size(), 1u);
  write_file(folder / "dev-sw.tsv", "a\tb\tneutral\nc\td\tneutral\n");
  EXPECT_EQ(open_entailment("xnli", folder.path(), Split::kValid, "sw").pairs.size(), 2u);
  write_file(folder / "multinli.train.sw.tsv", "premise\thypo\tlabel\na\tb\tcontradictory\n");
  EXPECT_EQ(open_entailment("xnli", folder.path(), Split::kTrain, "sw").pairs.size(), 1u);
  write_file(folder / "multinli_1.0_train.jsonl",
             "{\"gold_label\": \"neutral\", \"sentence1\": \"a\", \"sentence2\": \"b\"}\n");
  EXPECT_EQ(open_entailment("mnli", folder.path(), Split::kTrain).pairs.size(), 1u);
  write_file(folder / "dev_mismatched.tsv", "sentence1\tsentence2\tgold_label\na\tb\tneutral\n");
  EXPECT_EQ(open_entailment("mnli", folder.path(), Split::kTest).pairs.size(), 1u);
  EXPECT_THAT(user_error([&] { open_entailment("anli", folder.path(), Split::kTest); }),
              HasSubstr("entailment format 'anli' is not known; expected xnli, mnli, rte, sick or pairs"));
}

std::vector<std::int64_t> class_counts(const EntailmentData& data) {
  std::vector<std::int64_t> counts(data.classes.size());
  for (const SentencePair& pair : data.pairs) ++counts.at(static_cast<std::size_t>(pair.label));
  return counts;
}

// Sizes that the papers of these data sets state; XNLI is balanced.
TEST(RealEntailment, Xnli) {
  const auto folder = data_folder() / "xnli";
  LOWTIDE_NEEDS_DATA(folder);
  for (const char* language :
       {"ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh"}) {
    const EntailmentData data = open_entailment("xnli", folder, Split::kValid, language);
    EXPECT_EQ(data.pairs.size(), 2490u) << language;
    EXPECT_THAT(class_counts(data), ElementsAre(830, 830, 830)) << language;
  }
}

TEST(RealEntailment, Rte) {
  const auto folder = data_folder() / "entailment" / "RTE";
  LOWTIDE_NEEDS_DATA(folder);
  const EntailmentData train = open_entailment("rte", folder, Split::kTrain);
  EXPECT_EQ(train.pairs.size(), 2490u);
  EXPECT_THAT(train.classes, ElementsAre("entailment", "not_entailment"));
  EXPECT_EQ(open_entailment("rte", folder, Split::kValid).pairs.size(), 277u);
  const EntailmentData test = open_entailment("rte", folder, Split::kTest);
  EXPECT_EQ(test.pairs.size(), 3000u);
  EXPECT_TRUE(test.classes.empty());
}

TEST(RealEntailment, Sick) {
  const auto folder = data_folder() / "entailment" / "SICK";
  LOWTIDE_NEEDS_DATA(folder);
  const EntailmentData train = open_entailment("sick", folder, Split::kTrain);
  EXPECT_EQ(train.pairs.size(), 4500u);
  EXPECT_THAT(class_counts(train), ElementsAre(1299, 2536, 665));
  EXPECT_EQ(open_entailment("sick", folder, Split::kValid).pairs.size(), 500u);
  EXPECT_EQ(open_entailment("sick", folder, Split::kTest).pairs.size(), 4927u);
}

}  // namespace
}  // namespace lowtide::testing
