#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/recipe_arguments.h"
#include "cli/study_arguments.h"
#include "cli/submit_arguments.h"
#include "lowtide/base/error.h"
#include "lowtide/io/standard_output.h"
#include "lowtide/recipe/table_file.h"
#include "lowtide/study/folder.h"
#include "lowtide/study/range_test.h"

namespace lowtide {
namespace {

constexpr const char* kHelp =
    "Find the lowest bits at which a network learns: the lower end of a schedule.\n"
    "\n"
    "From 2 bits upward it trains a little at each and follows the training accuracy, averaged over some "
    "steps; the\n"
    "first bits at which it moves by more than a threshold are q_min.";

// Where the short runs go: a folder that is named and stays, or a temporary one.
class Workplace {
 public:
  explicit Workplace(const std::string& out) : path_(out), temporary_(out.empty()) {
    if (!temporary_) return;
    std::string pattern = (std::filesystem::temp_directory_path() / "lowtide-range-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw UserError(fmt::format("cannot make a temporary folder {}: {}", pattern, std::strerror(errno)));
    path_ = pattern;
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace() {
    std::error_code ignored;
    if (temporary_) std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool temporary_;
};

// The recipe with the range that was found; the highest bits stay.
void apply(Recipe recipe, int lowest, const std::string& file) {
  const std::string highest = recipe.precision.bits.substr(recipe.precision.bits.find(':') + 1);
  recipe.precision.bits = fmt::format("{}:{}", lowest, highest);
  check(recipe);
  write_output(file, to_toml(recipe));
  fmt::print(message_stream(file), "wrote {}, with bits = \"{}\"\n", file, recipe.precision.bits);
}

}  // namespace

int range_test_command(int argc, char** argv) {
  constexpr RangeTestOptions kDefaults;
  Study study;
  study.kind = Study::kRangeTest;
  study.test_steps = kDefaults.steps;
  study.window = kDefaults.window;
  study.threshold = kDefaults.threshold;
  std::string out, file;
  bool json = false;
  CLI::App app(kHelp, "range-test");
  add_recipe_file(app, "--recipe,--study",
                  "recipe file or its name, or a range test's study.toml; flags win over it");
  app.add_option("--out", out, "keep the short runs in this folder; default: a temporary one")
      ->type_name("FOLDER")
      ->configurable(false);
  app.add_option("--apply", file, "write the recipe with these lowest bits to this file; -: standard output")
      ->check(no_file_of_a_run())
      ->type_name("FILE")
      ->configurable(false);
  app.add_flag("--json", json, "print JSON")->configurable(false);
  SubmitArguments submission;
  add_submit_options(app, submission);
  define_study(app, study);
  if (const auto code = parse_recipe(app, argc, argv)) return *code;
  check_submit_options(app, submission);
  if (!submission.to.empty() && out.empty())
    throw UserError("--submit needs --out: a folder for the runs, which all machines see");
  expect_kind(study, Study::kRangeTest);
  study.recipe.precision.schedule = with_tables_read(study.recipe.precision.schedule);
  complete(study);
  const std::vector<Member> all = members(study);
  const Workplace place(out);
  const StudyFolder folder(place.path(), study);
  if (!submission.to.empty()) return submit(submission, study, out), 0;
  RunnerOptions runner{.threads = study.recipe.running.threads};
  if (!json && !is_standard_output(file)) runner.say = print_line;
  const RunnerEnd end = run_members(all, place.path(), runner);
  if (end.signal != 0) return 128 + end.signal;
  expect_none_elsewhere(end, all.size());
  const RangeTest test = read_range_test(all, place.path(), range_options(study), end.failed);
  fmt::print(message_stream(file), "{}",
             json ? to_json(test).dump(2) + "\n" : "\n" + to_text(test, terminal_charset()));
  if (!test.lowest) throw UserError("the range test found no bits at which training moves");
  if (!file.empty()) apply(study.recipe, *test.lowest, file);
  return 0;
}

}  // namespace lowtide
