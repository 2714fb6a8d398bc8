// The names that the data sets of sentence pairs have on disk.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lowtide/base/error.h"
#include "lowtide/data/text/entailment.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

struct Names {
  std::vector<std::string> train, valid, test;  // the first that is there is read

  const std::vector<std::string>& of(Split split) const {
    return split == Split::kTrain ? train : split == Split::kValid ? valid : test;
  }
};

Names names_of(const std::string& format, const std::string& language) {
  if (format == "rte") return {{"train.tsv"}, {"dev.tsv"}, {"test.tsv"}};
  if (format == "pairs") return {{"train.tsv"}, {"valid.tsv", "dev.tsv"}, {"test.tsv"}};
  if (format == "sick") return {{"SICK_train.txt"}, {"SICK_trial.txt"}, {"SICK_test_annotated.txt"}};
  if (format == "mnli") {
    return {{"train.tsv", "multinli_1.0_train.jsonl"},
            {"dev_matched.tsv", "multinli_1.0_dev_matched.jsonl"},
            {"dev_mismatched.tsv", "multinli_1.0_dev_mismatched.jsonl"}};
  }
  if (format == "xnli") {
    return {{"multinli.train." + language + ".tsv"},
            {"dev-" + language + ".tsv", "xnli.dev.tsv", "xnli.dev.jsonl"},
            {"test-" + language + ".tsv", "xnli.test.tsv", "xnli.test.jsonl"}};
  }
  throw UserError(
      fmt::format("entailment format '{}' is not known; expected xnli, mnli, rte, sick or pairs", format));
}

// Empty where there is none of the names.
fs::path file_of(const Names& names, const fs::path& folder, Split split) {
  for (const std::string& name : names.of(split)) {
    if (fs::exists(folder / name)) return folder / name;
  }
  return {};
}

fs::path existing_file(const std::string& format, const std::string& language, const fs::path& folder,
                       Split split) {
  const Names names = names_of(format, language);
  fs::path path = file_of(names, folder, split);
  if (path.empty()) {
    throw UserError(fmt::format("{}: none of {} is there; expected {} data", folder.string(),
                                fmt::join(names.of(split), ", "), format));
  }
  return path;
}

}  // namespace

EntailmentData open_entailment(const std::string& format, const fs::path& folder, Split split,
                               const std::string& language) {
  const fs::path path = existing_file(format, language, folder, split);
  const bool jsonl = path.extension() == ".jsonl";
  return (jsonl ? parse_entailment_jsonl : parse_entailment_tsv)(lines_of_file(path), language);
}

EntailmentData open_labelled_pairs(const fs::path& folder, Split split, const PairLabels& wanted) {
  return parse_labelled_pairs(lines_of_file(existing_file("pairs", "", folder, split)), wanted);
}

bool has_entailment(const std::string& format, const fs::path& folder, Split split,
                    const std::string& language) {
  return !file_of(names_of(format, language), folder, split).empty();
}

}  // namespace lowtide
