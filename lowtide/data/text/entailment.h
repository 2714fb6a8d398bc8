#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lowtide/data/split.h"
#include "lowtide/io/lines.h"

namespace lowtide {

struct SentencePair {
  static constexpr std::int32_t kNoLabel = -1;

  std::string premise;
  std::string hypothesis;
  std::int32_t label = kNoLabel;  // of classes
};

// Whether the second of two sentences follows from the first.
struct EntailmentData {
  std::string place;
  std::vector<SentencePair> pairs;
  std::vector<std::string>
      classes;                 // entailment, neutral, contradiction; entailment, not_entailment; or others
  std::int64_t undecided = 0;  // pairs left out since the annotators did not agree: their label is -

  std::string describe() const;  // one line
};

// Tab-separated, no quoting. With a header the columns are found by name: sentence1, premise or sentence_A;
// sentence2, hypothesis, hypo or sentence_B; gold_label, label or entailment_judgment, without which the pairs
// have no labels. Without one there are three: premise, hypothesis, label. Where there is a column `language`
// and the argument is not empty, only pairs in that language are taken.
EntailmentData parse_entailment_tsv(const LineSource& source, const std::string& language);

// An object a line with sentence1, sentence2, gold_label (MultiNLI, SNLI, XNLI); language as above.
EntailmentData parse_entailment_jsonl(const LineSource& source, const std::string& language);

// What a user says of files of his own.
struct PairLabels {
  std::vector<std::string> columns{};  // premise, hypothesis, label; empty: as in parse_entailment_tsv
  std::vector<std::string> classes{};  // empty: the labels that occur, by name
};

// Tab-separated, no quoting, with labels of any kind: see chosen_columns() for the columns. UserError for a label that
// is none of the classes, where they are given, and for fewer than two or more than 1,000 of them.
EntailmentData parse_labelled_pairs(const LineSource& source, const PairLabels& wanted);

// Formats, as their users have them on disk; LANG is `language`, which the others do not use:
//   xnli  train: multinli.train.LANG.tsv; valid: dev-LANG.tsv or xnli.dev.tsv; test: test-LANG.tsv or xnli.test.tsv
//   mnli  train.tsv, dev_matched.tsv and, to test, dev_mismatched.tsv (GLUE); or multinli_1.0_….jsonl
//   rte   train.tsv, dev.tsv, test.tsv (GLUE; the last without labels)
//   sick  SICK_train.txt, SICK_trial.txt, SICK_test_annotated.txt
EntailmentData open_entailment(const std::string& format, const std::filesystem::path& folder, Split split,
                               const std::string& language = "en");

//   pairs  train.tsv, valid.tsv or dev.tsv, test.tsv
EntailmentData open_labelled_pairs(const std::filesystem::path& folder, Split split,
                                   const PairLabels& wanted);

// Whether there is such a file.
bool has_entailment(const std::string& format, const std::filesystem::path& folder, Split split,
                    const std::string& language = "en");

}  // namespace lowtide
