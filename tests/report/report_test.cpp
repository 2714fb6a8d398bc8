#include "lowtide/report/report.h"

#include <gtest/gtest.h>

#include "lowtide/base/json.h"
#include "lowtide/io/file.h"
#include "lowtide/report/page.h"
#include "tests/io/scratch.h"
#include "tests/report/made_up_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class Report : public testing::Test {
 protected:
  void SetUp() override {
    try {
      report_page();
    } catch (const UserError& error) {
      EXPECT_TRUE(contains(error.what(), "page is missing", "npm ci"));
      GTEST_SKIP() << "built without Node: there is no page to write";
    }
  }

  ReportOutcome write(const std::vector<fs::path>& roots) {
    return write_report(roots, html_, "lowtide test");
  }

  Json index() const {
    const std::string page = read_text_file(html_);
    constexpr std::string_view kBegin = "<script type=\"application/json\" id=\"report\">";
    const std::size_t begin = page.find(kBegin) + kBegin.size();
    return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  }

  const ScratchFolder scratch_;
  const fs::path html_ = scratch_ / "report.html";
};

TEST_F(Report, HoldsTheRunsAndNamesTheRest) {
  write_run(scratch_ / "runs" / "a", {});
  write_run(scratch_ / "runs" / "b", {.seed = 2});
  write_run(scratch_ / "runs" / "bad", {});
  write_atomically(scratch_ / "runs" / "bad" / "metrics.jsonl", "{\"step\":1}\nnonsense\n");
  fs::create_directories(scratch_ / "runs" / "empty");
  const ReportOutcome outcome = write({scratch_ / "runs"});
  EXPECT_EQ(outcome.runs, 2);
  EXPECT_EQ(outcome.bytes, fs::file_size(html_));
  ASSERT_EQ(outcome.skipped.size(), 2);
  EXPECT_TRUE(contains(outcome.skipped[0].folder.string(), "empty"));
  EXPECT_TRUE(contains(outcome.skipped[1].reason, "metrics.jsonl:2:"));
  const Json report = index();
  EXPECT_EQ(report.at("runs").size(), 2);
  EXPECT_EQ(report.at("skipped").size(), 2);
  EXPECT_EQ(report.at("program"), "lowtide test");
  EXPECT_EQ(report.at("count"), "actual");
  EXPECT_EQ(report.at("axis"), "bitops");
  const std::string page = read_text_file(html_);
  EXPECT_TRUE(contains(page, "id=\"rows-0\"", "id=\"rows-1\"", "</html>"));
}

TEST_F(Report, TheSameRunIsThereOnceAndNamesDiffer) {
  write_run(scratch_ / "x" / "run", {});
  write_run(scratch_ / "y" / "run", {.seed = 2});
  EXPECT_EQ(write({scratch_ / "x", scratch_ / "y", scratch_ / "x" / "run", scratch_.path()}).runs, 2);
  const Json report = index();
  EXPECT_NE(report.at("runs").at(0).at("name"), report.at("runs").at(1).at("name"));
}

TEST_F(Report, NothingInANameEndsTheScript) {
  write_run(scratch_ / "runs" / "<!--<script>", {.seed = 2});
  write({scratch_ / "runs"});
  EXPECT_EQ(index().at("runs").at(0).at("name"), "<!--<script>");
}

TEST_F(Report, WithoutARunThereIsNoPage) {
  fs::create_directories(scratch_ / "runs" / "empty");
  const std::string message = user_error([&] { write({scratch_ / "runs"}); });
  EXPECT_TRUE(contains(message, "no run to report", "runs", "empty", "lowtide train"));
  EXPECT_FALSE(fs::exists(html_));
  EXPECT_TRUE(contains(user_error([&] { write({scratch_ / "none"}); }), "none", "no such folder"));
}

TEST_F(Report, AFolderThatCannotBeWrittenIsTold) {
  write_run(scratch_ / "runs" / "a", {});
  EXPECT_TRUE(
      contains(user_error([&] { write_report({scratch_ / "runs"}, scratch_ / "none" / "report.html", ""); }),
               "cannot write", "report.html"));
}

}  // namespace
}  // namespace lowtide
