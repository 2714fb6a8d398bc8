#include "lowtide/train/run_result.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>

#include "lowtide/base/error.h"
#include "lowtide/base/whole_number.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {
namespace {

constexpr std::string_view kTestPrefix = "test_";
constexpr std::string_view kTestLoss = "test_loss";

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

void add_also(Json& json, const TestFigures& test) {
  for (const auto& [name, value] : test.also.items()) json[std::string(kTestPrefix) + name] = value;
}

// Values of one object, with the name of what holds it for messages.
class Reader {
 public:
  Reader(const Json& json, const std::string& where) : json_(json), where_(where) {
    if (!json.is_object()) throw UserError(where + ": not a JSON object");
  }

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }

  Reader part(const char* key) const { return {at(key), fmt::format("{}: {}", where_, key)}; }

  std::string text(const char* key) const {
    if (!at(key).is_string()) throw wrong(key, "a name");
    return at(key);
  }

  double number(const char* key) const {
    if (!at(key).is_number()) throw wrong(key, "a number");
    return at(key);
  }

  std::optional<double> number_or_nothing(const char* key) const {
    return has(key) ? std::optional(number(key)) : std::nullopt;
  }

  // From 0 on: steps, bits, counts.
  std::int64_t whole(const char* key) const {
    if (!is_whole_number(at(key), 0, std::numeric_limits<std::int64_t>::max()))
      throw wrong(key, "a whole number");
    return at(key);
  }

  Json anything(const char* key) const { return json_.value(key, Json()); }

  TestFigures test() const {
    at("test");
    TestFigures test{number_or_nothing("test"), number_or_nothing("test_loss")};
    for (const auto& [key, value] : json_.items()) {
      if (key.starts_with(kTestPrefix) && key != kTestLoss) test.also[key.substr(kTestPrefix.size())] = value;
    }
    return test;
  }

 private:
  const Json& at(const char* key) const {
    if (!json_.contains(key)) throw UserError(fmt::format("{}: lacks '{}'", where_, key));
    return json_.at(key);
  }

  UserError wrong(const char* key, std::string_view expected) const {
    return UserError(fmt::format("{}: {} is {}, not {}", where_, key, at(key).dump(), expected));
  }

  const Json& json_;
  std::string where_;
};

}  // namespace

Json to_json(const RunResult& result) {
  Json json{{"metric", result.metric},
            {"valid", or_null(result.valid)},
            {"test", or_null(result.test.metric)},
            {"test_loss", or_null(result.test.loss)},
            {"eval_bits", result.eval_bits},
            {"relative_cost", result.relative_cost},
            {"gbitops", {{"paper", result.gbitops_paper}, {"actual", result.gbitops_actual}}},
            {"bitops", result.bitops},
            {"averaged", result.averaged},
            {"seconds", result.seconds},
            {"steps", result.steps}};
  add_also(json, result.test);
  if (!result.skipped.is_null()) json["skipped"] = result.skipped;
  if (result.planned_steps) {
    json["stopped_early"] = result.steps < *result.planned_steps;
    json["planned_steps"] = *result.planned_steps;
  }
  if (result.looks_for_best) json["best"] = result.best ? to_json(*result.best) : Json();
  return json;
}

Json to_json(const RunResult::Best& best) {
  Json json{{"step", best.step},
            {"valid", or_null(best.valid)},
            {"test", or_null(best.test.metric)},
            {"test_loss", or_null(best.test.loss)}};
  add_also(json, best.test);
  return json;
}

RunResult run_result_from_json(const Json& json, const std::string& where) {
  const Reader read(json, where);
  RunResult result{.metric = read.text("metric"),
                   .valid = read.number_or_nothing("valid"),
                   .test = read.test(),
                   .eval_bits = static_cast<int>(read.whole("eval_bits")),
                   .relative_cost = read.number("relative_cost"),
                   .gbitops_paper = read.part("gbitops").number("paper"),
                   .gbitops_actual = read.part("gbitops").number("actual"),
                   .bitops = read.anything("bitops"),
                   .averaged = read.has("averaged") ? read.whole("averaged") : 0,
                   .seconds = read.number("seconds"),
                   .steps = read.whole("steps"),
                   .skipped = read.anything("skipped"),
                   .looks_for_best = json.contains("best")};
  if (read.has("planned_steps")) result.planned_steps = read.whole("planned_steps");
  if (read.has("best")) {
    const Reader best = read.part("best");
    result.best = {best.whole("step"), best.number_or_nothing("valid"), best.test()};
  }
  return result;
}

RunResult read_run_result(const std::filesystem::path& file) {
  return run_result_from_json(read_run_file(file), file.string());
}

}  // namespace lowtide
