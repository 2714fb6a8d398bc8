#include "lowtide/report/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <functional>
#include <future>
#include <map>
#include <set>
#include <thread>

#include "lowtide/base/cpus.h"
#include "lowtide/base/error.h"
#include "lowtide/io/standard_output.h"
#include "lowtide/report/metrics.h"
#include "lowtide/report/metrics_encode.h"
#include "lowtide/report/page.h"
#include "lowtide/report/run_data.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

struct FoundRun {
  fs::path root, folder;
};

struct LoadedRun {
  Json about;
  std::string rows;     // base64 of encode_metrics
  std::string problem;  // why it is skipped; empty where it is not
};

// Each run once, also where a root lies in another.
std::vector<FoundRun> find_runs(const std::vector<fs::path>& roots, std::vector<SkippedFolder>& skipped) {
  std::vector<FoundRun> found;
  std::set<fs::path> seen;
  for (const fs::path& root : roots) {
    FoundRuns scan = search_runs(root);
    for (const fs::path& folder : scan.runs) {
      if (seen.insert(fs::canonical(folder)).second) found.push_back({root, folder});
    }
    skipped.insert(skipped.end(), scan.skipped.begin(), scan.skipped.end());
  }
  return found;
}

LoadedRun load(const FoundRun& run) {
  try {
    LoadedRun loaded;
    const fs::path lines = RunPaths{run.folder}.metrics();
    const Metrics metrics = is_plain_file(lines) ? read_metrics(lines) : parse_metrics("", "");
    loaded.about = {{"name", run_name(run.root, run.folder)}, {"path", run.folder.string()}};
    loaded.about.update(read_run(run.folder));
    loaded.about.update(describe_lines(metrics, loaded.about.at("result")));
    loaded.rows = base64(encode_metrics(metrics));
    return loaded;
  } catch (const std::exception& error) {
    return {{}, {}, skip_reason(error)};
  }
}

// Files are read and packed by all cores, in any order; what comes out is in the order of the runs.
void for_each_on_all_cores(std::size_t count, const std::function<void(std::size_t)>& work) {
  const auto cores = static_cast<std::size_t>(usable_cpus());
  std::atomic<std::size_t> next{0};
  std::vector<std::future<void>> workers;
  for (std::size_t core = 0; core < std::min(cores, count); ++core) {
    workers.push_back(std::async(std::launch::async, [&] {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    }));
  }
  for (std::future<void>& worker : workers) worker.get();  // throws what the worker threw
}

// Names that two roots share are told apart by their paths.
void make_names_unique(std::vector<LoadedRun>& runs) {
  std::map<std::string, int> count;
  for (const LoadedRun& run : runs) ++count[run.about.at("name")];
  for (LoadedRun& run : runs) {
    if (count.at(run.about.at("name")) > 1) run.about["name"] = run.about.at("path");
  }
}

// As the content of a script element: nothing in it may look like the element's end.
std::string script_json(const Json& json) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string safe;
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

// Returns the number of bytes.
std::uintmax_t write_page(const fs::path& html, const Json& index, const std::vector<LoadedRun>& runs) {
  const Page page = report_page();
  std::uintmax_t bytes = 0;
  write_output(html, [&](FileWriter& file) {
    file.write(page.head);
    file.write("<script type=\"application/json\" id=\"report\">");
    file.write(script_json(index));
    file.write("</script>\n");
    file.write(page.script);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      file.write(fmt::format("<script type=\"text/plain\" id=\"rows-{}\">", i));
      file.write(runs[i].rows);
      file.write("</script>\n");
    }
    file.write(page.tail);
    bytes = file.written();
  });
  return bytes;
}

[[noreturn]] void no_runs(const std::vector<fs::path>& roots, const std::vector<SkippedFolder>& skipped) {
  std::string why = "it holds no run folder";
  // Of one run that was asked for the reason is all there is to say, and it names the file.
  if (skipped.size() == 1 && skipped[0].folder == roots[0]) throw UserError(skipped[0].reason);
  if (!skipped.empty()) why = fmt::format("{}: {}", skipped[0].folder.string(), skipped[0].reason);
  throw UserError(
      fmt::format("no run to report in {}: {}; `lowtide train` makes runs", roots[0].string(), why));
}

}  // namespace

ReportOutcome write_report(const std::vector<fs::path>& roots, const fs::path& html,
                           const std::string& program, const CostMeasure& measure) {
  report_page();  // before the work, not after it
  ReportOutcome outcome;
  const std::vector<FoundRun> found = find_runs(roots, outcome.skipped);
  std::vector<LoadedRun> runs(found.size());
  for_each_on_all_cores(found.size(), [&](std::size_t i) { runs[i] = load(found[i]); });
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!runs[i].problem.empty()) outcome.skipped.push_back({found[i].folder, runs[i].problem});
  }
  std::erase_if(runs, [](const LoadedRun& run) { return !run.problem.empty(); });
  if (runs.empty()) no_runs(roots, outcome.skipped);
  make_names_unique(runs);
  Json index{{"program", program},
             {"count", to_string(measure.count)},
             {"axis", to_string(measure.axis)},
             {"made", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
             {"skipped", to_json(outcome.skipped)}};
  ScheduleRuns schedules;
  Json& list = index["runs"] = Json::array();
  for (LoadedRun& run : runs) {
    schedules.add(run.about);
    run.about["id"] = list.size();
    list.push_back(std::move(run.about));
  }
  index["schedules"] = schedules.json();
  outcome.bytes = write_page(html, index, runs);
  outcome.runs = runs.size();
  return outcome;
}

}  // namespace lowtide
