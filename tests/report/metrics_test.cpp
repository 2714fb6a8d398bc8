#include "lowtide/report/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lowtide/io/file.h"
#include "lowtide/io/jsonl.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

using Values = std::vector<double>;

Values column(const MetricsTable& table, const std::string& name) {
  const Column* found = table.find(name);
  EXPECT_NE(found, nullptr) << name;
  return found == nullptr ? Values() : found->values;
}

TEST(Metrics, LinesBecomeColumnsOfTheirSplit) {
  const Metrics metrics = parse_metrics(
      "{\"step\":10,\"loss\":2.5,\"accuracy\":0.25,\"bits\":3}\n"
      "{\"step\":20,\"loss\":1.25,\"accuracy\":0.5,\"bits\":8}\n"
      "{\"step\":20,\"split\":\"valid\",\"accuracy\":0.625,\"loss\":1}\n"
      "{\"step\":30,\"split\":\"test\",\"accuracy\":0.75,\"loss\":0.5,\"final\":true}\n",
      "metrics.jsonl");
  ASSERT_EQ(metrics.tables.size(), 3);
  EXPECT_EQ(metrics.train().rows, 2);
  EXPECT_EQ(column(metrics.train(), "step"), (Values{10, 20}));
  EXPECT_EQ(column(metrics.train(), "loss"), (Values{2.5, 1.25}));
  EXPECT_EQ(column(metrics.train(), "bits"), (Values{3, 8}));
  EXPECT_EQ(metrics.tables[1].split, "valid");
  EXPECT_EQ(column(metrics.tables[1], "accuracy"), Values{0.625});
  EXPECT_EQ(metrics.tables[2].split, "test");
  EXPECT_EQ(column(metrics.tables[2], "final"), Values{1});
}

TEST(Metrics, NumbersAreThoseOfTheOtherReader) {
  const std::string text =
      "{\"step\":1,\"loss\":2.3259841442108153}\n{\"step\":2,\"loss\":1e-320}\n"
      "{\"step\":3,\"loss\":9007199254740993}\n{\"step\":4,\"loss\":-0.0}\n{\"step\":5,\"loss\":1."
      "7976931348623157e308}\n"
      "{\"step\":6,\"loss\":0.1}\n{\"step\":7,\"loss\":123456789.123456789}\n";
  const Values losses = column(parse_metrics(text, "").train(), "loss");
  const std::vector<Json> lines = parse_jsonl(text, "").lines;
  ASSERT_EQ(losses.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(losses[i], lines[i].at("loss").get<double>());
    EXPECT_EQ(std::signbit(losses[i]), std::signbit(lines[i].at("loss").get<double>()));
  }
}

TEST(Metrics, WhatALineLacksIsNotANumber) {
  const Metrics metrics = parse_metrics(
      "{\"step\":1,\"loss\":null}\n{\"loss\":2,\"step\":2,\"lr\":0.5}\n{\"step\":3}\n", "metrics.jsonl");
  const Values loss = column(metrics.train(), "loss"), rate = column(metrics.train(), "lr");
  ASSERT_EQ(loss.size(), 3);
  ASSERT_EQ(rate.size(), 3);
  EXPECT_TRUE(std::isnan(loss[0]));
  EXPECT_EQ(loss[1], 2);
  EXPECT_TRUE(std::isnan(loss[2]));
  EXPECT_TRUE(std::isnan(rate[0]));
  EXPECT_EQ(rate[1], 0.5);
  EXPECT_TRUE(std::isnan(rate[2]));
}

TEST(Metrics, WhatIsNotANumberIsNotAColumn) {
  const Metrics metrics = parse_metrics(
      "{\"note\":\"text with \\\" and "
      "\\u00e9\",\"step\":1,\"more\":{\"a\":[1,2]},\"loss\":1}\n",
      "");
  ASSERT_EQ(metrics.train().columns.size(), 2);
  EXPECT_EQ(metrics.train().columns[0].name, "step");
  EXPECT_EQ(metrics.train().columns[1].name, "loss");
}

TEST(Metrics, AnUnfinishedLastLineIsLeftOut) {
  const std::string whole = "{\"step\":1,\"loss\":1}\n";
  const Metrics metrics = parse_metrics(whole + "{\"step\":2,\"lo", "metrics.jsonl");
  EXPECT_EQ(metrics.train().rows, 1);
  EXPECT_EQ(metrics.end, whole.size());
  EXPECT_EQ(parse_metrics("", "").train().rows, 0);
  EXPECT_EQ(parse_metrics("{\"step\":1}", "").end, 0);
}

TEST(Metrics, ADamagedLineIsNamed) {
  for (const char* line :
       {"{\"step\":2,\"lo", "not JSON", "[1]", "7", "", "{\"step\":2}}", "{\"step\":2} {\"step\":3}",
        "{\"step\":2,\"loss\":nan}", "{\"step\":2,\"loss\":nonsense}", "{\"step\":2,\"loss\":1e999}",
        "{\"step\" 2}", "{\"step\":2,\"loss\":}", "{\"step\":2,\"name\":\"\xff\"}"}) {
    SCOPED_TRACE(line);
    const std::string text = std::string("{\"step\":1}\n") + line + "\n{\"step\":3}\n";
    const std::string message = user_error([&] { parse_metrics(text, "runs/a/metrics.jsonl"); });
    EXPECT_TRUE(contains(message, "runs/a/metrics.jsonl:2:", "one JSON object a line"));
  }
}

TEST(Metrics, ALineNeedsAStep) {
  for (const char* line :
       {"{}", "{\"loss\":1}", "{\"step\":\"ten\"}", "{\"step\":null}", "{\"step\":true}"}) {
    SCOPED_TRACE(line);
    const std::string text = std::string(line) + "\n";
    EXPECT_TRUE(contains(user_error([&] { parse_metrics(text, "file"); }), "file:1:", "step"));
  }
}

TEST(Metrics, ReadingGoesOnWhereItEnded) {
  const ScratchFolder scratch;
  const auto path = scratch / "metrics.jsonl";
  write_atomically(path, "{\"step\":1}\n{\"step\":2}\n{\"st");
  const Metrics first = read_metrics(path);
  EXPECT_EQ(column(first.train(), "step"), (Values{1, 2}));
  write_atomically(path, "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
  const Metrics second = read_metrics(path, first.end);
  EXPECT_EQ(column(second.train(), "step"), (Values{3, 4}));
  EXPECT_EQ(second.end, std::filesystem::file_size(path));
  EXPECT_EQ(read_metrics(path, second.end).train().rows, 0);
  EXPECT_EQ(read_metrics(path, 10'000).train().rows, 0);
  EXPECT_TRUE(contains(user_error([&] { read_metrics(scratch / "none"); }), "cannot read", "none"));
}

}  // namespace
}  // namespace lowtide
