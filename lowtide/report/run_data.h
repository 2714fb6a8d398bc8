#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/report/metrics.h"
#include "lowtide/report/run_search.h"

namespace lowtide {

// All of a run folder but its logged lines, as the page reads it; docs/report.md lists the keys. A folder that
// is damaged, of another format or not made of plain files is a UserError. A run that is not finished is
// whole: its `result` is null.
Json read_run(const std::filesystem::path& folder);

// What its logged lines add: how many there are, the last one, and the name of the metric.
Json describe_lines(const Metrics& metrics, const Json& result);

// Whether the path is a plain file, not a link, a pipe or a folder. UserError where it is something else;
// false where there is nothing.
bool is_plain_file(const std::filesystem::path& path);

// The runs of [bits, steps] that a schedule's line has in so many steps, with the learning rate that read_run found its bits to
// follow; the means of neighbours where they are more than a picture can show. Null where they are not known before training
// (closed loops), or the line is of another program.
Json schedule_runs(const std::string& line, std::int64_t total_steps, const std::string& rates = "");

// "schedule's line|steps", and "|rates" where bits follow them, → schedule_runs, each looked at once, however many runs have it.
class ScheduleRuns {
 public:
  void add(const Json& run);  // as read_run gave it
  const Json& json() const { return runs_; }

 private:
  Json runs_ = Json::object();
};

Json to_json(const std::vector<SkippedFolder>& skipped);

}  // namespace lowtide
