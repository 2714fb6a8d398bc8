// Run folders of made-up numbers, for the tests of the page and to measure the report:
//   make_runs suite DIR            schedules × seeds, deficits, windows, landscapes, one unfinished, some damaged
//   make_runs many DIR RUNS LINES  so many runs of so many logged lines
//   make_runs growing DIR          one run that is not finished
//   make_runs odd DIR              folders of what is seldom: other lengths and models, long names, single points
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "lowtide/io/file.h"
#include "lowtide/schedule/cycles.h"
#include "tests/report/made_up_run.h"

namespace {

namespace fs = std::filesystem;
using lowtide::MadeUpRun;
using lowtide::write_run;

void write_suite(const fs::path& root) {
  std::vector<std::string> schedules{"fp32", "static 8 grad=8"};
  for (const auto& cyclic : lowtide::cyclic_schedules())
    schedules.push_back(fmt::format("{} 3:8 n=8 grad=8", cyclic.name));
  for (const std::string& schedule : schedules) {
    const std::string name = schedule.substr(0, schedule.find(' '));
    for (const int seed : {1, 2, 3}) {
      MadeUpRun run{.schedule = schedule, .seed = static_cast<std::uint64_t>(seed), .steps = 800};
      run.landscape = seed == 1 && (name == "static" || name == "RR");
      write_run(root / fmt::format("{}-seed{}", name, seed), run);
    }
  }
  for (const int length : {80, 160, 320, 480}) {
    for (const int seed : {1, 2}) {
      write_run(root / "critical" / fmt::format("deficit-{}-seed{}", length, seed),
                {.schedule = fmt::format("deficit 3:8 grad=8 steps={}", length),
                 .seed = static_cast<std::uint64_t>(seed),
                 .steps = 800});
    }
  }
  for (const int start : {0, 100, 200, 400, 640}) {
    write_run(root / "critical" / fmt::format("window-{}", start),
              {.schedule = fmt::format("window 3:8 grad=8 from={} to={}", start, start + 160), .steps = 800});
  }
  write_run(root / "critical" / "no-window", {.schedule = "window 3:8 grad=8 from=0 to=0", .steps = 800});
  write_run(root / "stopped",
            {.schedule = "RR 4:6 n=4 grad=8", .steps = 800, .finished = false, .stopped_at = 430});
}

void write_damaged(const fs::path& root) {
  const auto write = [&](const fs::path& path, std::string_view text) {
    fs::create_directories(path.parent_path());
    lowtide::write_atomically(path, text);
  };
  write(root / "cut-off" / "metrics.jsonl", "{\"step\":10}\n");
  write(root / "holiday" / "photo.txt", "not a run");
  write(root / "scrambled" / "run.json", "{\"format\": 1, ");
  write_run(root / "bad-line", {});
  write(root / "bad-line" / "metrics.jsonl",
        "{\"step\":10,\"loss\":1}\n{\"step\":20,\"lo\n{\"step\":30,\"loss\":1}\n");
}

void write_many(const fs::path& root, int runs, std::int64_t lines) {
  const auto& ten = lowtide::cyclic_schedules();
  for (int i = 0; i < runs; ++i) {
    const auto& cyclic = ten[static_cast<std::size_t>(i) % ten.size()];
    write_run(root / fmt::format("run-{:03}", i), {.schedule = fmt::format("{} 3:8 n=8 grad=8", cyclic.name),
                                                   .seed = static_cast<std::uint64_t>(i) / ten.size() + 1,
                                                   .steps = lines,
                                                   .log_every = 1,
                                                   .eval_every = std::max<std::int64_t>(1, lines / 20)});
  }
}

// As a budget study makes them: ways to spend 0.4 and 0.63 of what static costs in 800 steps.
void write_equal_cost(const fs::path& root) {
  const auto write = [&](const char* name, const char* schedule, std::int64_t steps = 800,
                         int eval_bits = -1) {
    for (const int seed : {1, 2, 3}) {
      write_run(root / fmt::format("{}-seed{}", name, seed),
                {.schedule = schedule,
                 .seed = static_cast<std::uint64_t>(seed),
                 .steps = steps,
                 .plateau_every = steps / 8,  // in steps, of which shorter training has less
                 .eval_bits = eval_bits});
    }
  };
  write("CR-0.4", "CR 3:8 n=8 grad=8 budget=0.4");
  write("constant-0.4", "static 8 grad=8 budget=0.4", 800, 4);
  write("CR-0.63", "CR 3:8 n=8 grad=8 budget=0.63");
  write("long-CR-0.63", "CR 3:8 n=2 grad=8 budget=0.63");
  write("constant-0.63", "static 8 grad=8 budget=0.63", 800, 6);
  write("shorter-0.63", "static 8 grad=8", 504);
  write("4-then-8-0.63", "table 4x508 8x292 grad=8");  // 0.37 · 192 / (192 - 80) · 800
  write("static", "static 8 grad=8");
  write("elsewhere", "static 5 grad=8");  // 0.547: of no budget
}

void write_odd(const fs::path& root) {
  write_equal_cost(root / "equal");
  write_run(root / "stats" / "CR", {.steps = 200, .layer_stats = 20});
  write_run(root / "layerbits" / "table",
            {.schedule = "table 5[8/4/4/5/5/5/6/6/6/8]x50 6[8/5/4/5/5/5/6/6/7/8]x150 grad=8", .steps = 200});
  write_run(root / "stats" / "without", {.seed = 2, .steps = 200});
  // Two lengths, and layers that are not at the scheduled bits.
  for (const int seed : {1, 2}) {
    const auto name = [&](const char* what) { return root / "lengths" / fmt::format("{}-{}", what, seed); };
    const auto number = static_cast<std::uint64_t>(seed);
    write_run(name("CR"), {.seed = number, .steps = 800});
    write_run(name("static"), {.schedule = "static 8 grad=8", .seed = number, .steps = 800});
    write_run(name("brief"), {.seed = number, .steps = 60});
    write_run(name("mixed"), {.seed = number, .steps = 800, .layer_bits = {"*.shortcut=fp32"}});
  }
  write_run(root / "lengths" / "falling", {.schedule = "delayed 377 at=8 static 5 grad=8", .steps = 800});
  // Names that fill a window by themselves.
  const std::vector<std::string> rules{"conv1=8", "group1.0.conv1=6", "group2.*=fp32", "group3.0.shortcut=4"};
  for (const char* schedule :
       {"CR 3:8 n=8 grad=8", "RR 3:8 n=8 grad=8", "delayed 25% at=fp32 RR 3:8 n=8 grad=8"}) {
    for (const std::size_t count : {1, 2, 3, 4}) {
      const std::string name = fmt::format("a-name-that-tells-everything-{}-{}-of-this-run-and-more", count,
                                           std::string_view(schedule).substr(0, 7));
      write_run(root / "names" / name,
                {.schedule = schedule,
                 .steps = 200,
                 .layer_bits = {rules.begin(), rules.begin() + static_cast<long>(count)}});
    }
  }
  write_run(root / "one" / "point", {.steps = 10, .log_every = 10, .eval_every = 100});
  // Logged more seldom than the bits change.
  write_run(root / "bits" / "CR", {.steps = 200, .log_every = 100});
  write_run(root / "bits" / "old",
            {.schedule = "RR 3:8 n=8 grad=8", .steps = 200, .log_every = 100, .old = true});
  write_run(root / "bits" / "loop",
            {.schedule = "progressive 3,4,6,8 grad=8 window=10 threshold=0.2 patience=1",
             .steps = 200,
             .log_every = 100});
  // Deficits as a study makes them, and static training of their length and of another.
  for (const int length : {0, 50, 100}) {
    write_run(root / "periods" / fmt::format("deficit-{}", length),
              {.schedule = fmt::format("deficit 3:8 grad=8 steps={}", length),
               .steps = 200 + length,
               .lr_delay = length});
  }
  write_run(root / "periods" / "static", {.schedule = "static 8 grad=8", .steps = 200});
  write_run(root / "periods" / "static-brief", {.schedule = "static 8 grad=8", .steps = 40});
  write_run(root / "models" / "small", {});
  write_run(root / "models" / "large", {.model = "cifar-resnet74"});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 2 ? argv[1] : "";
  if (what == "suite") {
    write_suite(argv[2]);
    write_damaged(argv[2]);
  } else if (what == "many" && argc == 5) {
    write_many(argv[2], std::atoi(argv[3]), std::atoll(argv[4]));
  } else if (what == "growing") {
    write_run(argv[2], {.steps = 800, .finished = false, .stopped_at = 100});
  } else if (what == "odd") {
    write_odd(argv[2]);
  } else {
    fmt::print(stderr, "usage: make_runs suite DIR | many DIR RUNS LINES | growing DIR | odd DIR\n");
    return 2;
  }
  return 0;
}
