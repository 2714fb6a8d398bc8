#include "lowtide/train/run_result.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/io/scratch.h"

namespace lowtide {
namespace {

// As the first version of the run folder had it.
constexpr const char* kFirst = R"({
  "metric": "accuracy", "valid": null, "test": 0.875, "test_loss": 0.5, "eval_bits": 8, "relative_cost": 0.04,
  "gbitops": {"paper": 2.0, "actual": 3.0}, "bitops": {"paper": 2000000000, "actual": "90071992547409930"},
  "averaged": 4, "seconds": 12.5, "steps": 60})";

// With all that came since.
constexpr const char* kLatest = R"({
  "metric": "mAP", "valid": 0.5, "test": 0.25, "test_loss": 1.5, "eval_bits": 0, "relative_cost": 1.0,
  "gbitops": {"paper": 2.0, "actual": 3.0}, "bitops": {"paper": 2000000000, "actual": 3000000000},
  "averaged": 0, "seconds": 12.5, "steps": 40, "test_mAP_11_points": 0.375, "skipped": {"train": 2, "test": 0},
  "stopped_early": true, "planned_steps": 100,
  "best": {"step": 20, "valid": 0.75, "test": null, "test_loss": null}})";

RunResult read(const Json& json) { return run_result_from_json(json, "runs/one/result.json"); }

TEST(RunResult, IsWrittenAsItWasRead) {
  for (const char* text : {kFirst, kLatest}) {
    const Json json = Json::parse(text);
    EXPECT_EQ(to_json(read(json)).dump(), json.dump());  // in this order too
  }
}

TEST(RunResult, HasWhatTheFileSays) {
  const RunResult first = read(Json::parse(kFirst)), latest = read(Json::parse(kLatest));
  EXPECT_EQ(first.metric, "accuracy");
  EXPECT_FALSE(first.valid);
  EXPECT_EQ(first.test.metric, 0.875);
  EXPECT_EQ(first.gbitops_actual, 3);
  EXPECT_EQ(first.averaged, 4);
  EXPECT_FALSE(first.looks_for_best || first.best || first.planned_steps);
  EXPECT_EQ(latest.test.also, (Json{{"mAP_11_points", 0.375}}));
  EXPECT_EQ(latest.planned_steps, 100);
  ASSERT_TRUE(latest.best);
  EXPECT_EQ(latest.best->step, 20);
  EXPECT_EQ(latest.best->valid, 0.75);
  EXPECT_FALSE(latest.best->test.metric);
}

TEST(RunResult, WithoutAFiniteEvaluationBestIsNull) {
  Json json = Json::parse(kLatest);
  json["best"] = nullptr;
  EXPECT_FALSE(read(json).best);
  EXPECT_EQ(to_json(read(json)), json);
}

TEST(RunResult, UnknownKeysArePassedOver) {
  Json json = Json::parse(kFirst);
  json["colour"] = "blue";
  EXPECT_EQ(to_json(read(json)), Json::parse(kFirst));
}

TEST(RunResult, WhatIsMissingOrWrongIsNamed) {
  const auto problem = [](const char* key, const Json& value) {
    Json json = Json::parse(kLatest);
    if (value.is_discarded()) {
      json.erase(key);
    } else {
      json[key] = value;
    }
    return user_error([&] { read(json); });
  };
  const Json missing(Json::value_t::discarded);
  for (const char* key : {"metric", "test", "eval_bits", "relative_cost", "gbitops", "seconds", "steps"}) {
    EXPECT_EQ(problem(key, missing), fmt::format("runs/one/result.json: lacks '{}'", key));
  }
  EXPECT_EQ(problem("metric", 5), "runs/one/result.json: metric is 5, not a name");
  EXPECT_EQ(problem("test", "high"), "runs/one/result.json: test is \"high\", not a number");
  EXPECT_EQ(problem("seconds", nullptr), "runs/one/result.json: seconds is null, not a number");
  EXPECT_EQ(problem("steps", 1e30), "runs/one/result.json: steps is 1e+30, not a whole number");
  EXPECT_EQ(problem("gbitops", 2), "runs/one/result.json: gbitops: not a JSON object");
  EXPECT_EQ(problem("best", {{"step", "many"}, {"test", 0.5}}),
            "runs/one/result.json: best: step is \"many\", not a whole number");
}

}  // namespace
}  // namespace lowtide
