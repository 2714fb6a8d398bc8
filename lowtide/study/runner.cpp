#include "lowtide/study/runner.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <numeric>
#include <optional>
#include <thread>

#include "lowtide/base/cpus.h"
#include "lowtide/base/error.h"
#include "lowtide/io/lease.h"
#include "lowtide/ranks/environment.h"
#include "lowtide/report/comparison.h"
#include "lowtide/study/child.h"
#include "lowtide/study/folder.h"
#include "lowtide/study/loop_bits.h"
#include "lowtide/study/script.h"
#include "lowtide/study/stalls.h"
#include "lowtide/study/status.h"
#include "lowtide/train/metric.h"
#include "lowtide/train/progress.h"
#include "lowtide/train/signals.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr auto kPollInterval = std::chrono::milliseconds(50);

constexpr std::string_view kSilent = "it printed nothing";

// The last line after `from` that says something: what a program that fails writes in the end.
std::string last_line(const fs::path& log, std::uintmax_t from) {
  const std::string text = read_text_file(log).substr(from);
  const auto end = text.find_last_not_of(" \r\n");
  if (end == std::string::npos) return std::string(kSilent);
  const auto before = text.find_last_of("\r\n", end);
  const auto begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, end + 1 - begin);
}

// How many processes the kernel has ended for want of memory since it started; 0 where it does not say.
std::int64_t out_of_memory_kills(const fs::path& vmstat) {
  std::ifstream file(vmstat);
  std::string key;
  for (std::int64_t count = 0; file >> key >> count;) {
    if (key == "oom_kill") return count;
  }
  return 0;
}

// "SIGKILL"
std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

class Runner {
 public:
  Runner(const std::vector<Member>& members, const fs::path& folder, const RunnerOptions& options)
      : members_(members),
        folder_(folder),
        options_(options),
        slots_(static_cast<std::size_t>(options.jobs)),
        waiting_(options.only ? 1 : members.size()) {
    std::iota(waiting_.begin(), waiting_.end(), options.only.value_or(0));
  }

  RunnerEnd run() {
    const StopSignals signals;
    while (true) {
      for (Slot& slot : slots_) {
        if (slot.child) look_at(slot);
        if (!slot.child && end_.signal == 0) start_next(slot);
      }
      if (std::none_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.child.has_value(); }))
        break;
      heed_signals();
      std::this_thread::sleep_for(kPollInterval);
    }
    return end_;
  }

 private:
  struct Slot {
    std::optional<Child> child;
    std::optional<Lease> lease;  // of a script, which may know of none; training has its own
    std::size_t member = 0;
    std::uintmax_t log_start = 0;   // what is before is of an earlier process
    std::int64_t memory_kills = 0;  // of the whole machine, when it started
    std::int64_t kept_step = 0;     // when it started
    std::chrono::steady_clock::time_point started;
  };

  MemberPaths paths(std::size_t member) const { return {folder_, members_[member]}; }

  void start_next(Slot& slot) {
    for (std::size_t i = 0; i < waiting_.size() && !slot.child;) {
      const std::size_t member = waiting_[i];
      if (must_wait(member)) {
        ++i;
        continue;
      }
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;  // others may have waited for this one
      if (!file_exists(paths(member).run.result())) start_or_leave(slot, member);
    }
  }

  // For the member whose bits it has, as long as that one is still to come.
  bool must_wait(std::size_t member) const {
    const std::optional<BitsOf>& bits = members_[member].bits_of;
    if (!bits) return false;
    const auto is_source = [&](std::size_t other) { return members_[other].name == bits->member; };
    return std::any_of(waiting_.begin(), waiting_.end(), is_source) ||
           std::any_of(slots_.begin(), slots_.end(),
                       [&](const Slot& slot) { return slot.child && is_source(slot.member); });
  }

  void start_or_leave(Slot& slot, std::size_t member) {
    slot.member = member;
    try {
      if (const auto lease = lease_state(paths(member).run.lease());
          lease && lease->holder == LeaseState::Holder::kAlive) {
        leave(member, lease);
      } else {
        start(slot);
      }
    } catch (const LeaseTaken&) {
      leave(member, lease_state(paths(member).lease()));
    } catch (const UserError& error) {
      slot.lease.reset();
      fail(member, error.what());
    }
  }

  Recipe recipe_of(const Member& member) const {
    Recipe recipe = member.recipe;
    if (!member.bits_of) return recipe;
    const RunPaths source{folder_ / member.bits_of->member};
    if (!file_exists(source.result()))
      throw UserError(fmt::format("it has the bits of {}, which has no result yet; that one comes first",
                                  member.bits_of->member));
    BitTable bits = logged_bits(source, recipe.training.steps);
    if (member.bits_of->shuffled) bits = shuffled(bits, recipe.training.seed);
    recipe.precision.schedule =
        fmt::format("table {} grad={}", to_string(bits), schedule_of(member.recipe.precision).grad.high);
    // The loop may not have had its highest bits, at which it was evaluated.
    recipe.precision.eval_bits = evaluation_bits(member.recipe.precision).forward;
    return recipe;
  }

  void start(Slot& slot) {
    const Member& member = members_[slot.member];
    const MemberPaths place = paths(slot.member);
    make_folders(place.run.folder);
    if (member.command.empty()) {
      write_atomically(place.recipe(), to_toml(recipe_of(member)));
    } else {
      slot.lease.emplace(place.lease(),
                         LeaseOptions{.taken = "another process runs this member", .say = options_.say});
      if (file_exists(place.run.result())) return slot.lease.reset();  // done by the one that had it before
    }
    slot.log_start = file_exists(place.log()) ? fs::file_size(place.log()) : 0;
    const bool resumed = file_exists(place.run.run());
    slot.memory_kills = out_of_memory_kills(options_.vmstat);
    slot.kept_step = kept_step(place);
    slot.started = std::chrono::steady_clock::now();
    if (member.command.empty()) {
      slot.child.emplace(options_.program, train_arguments(slot), place.log());
    } else {
      slot.child.emplace("/bin/sh", shell_arguments(member, place.run.folder, threads_of(slot)), place.log());
    }
    remove_file(place.failure());
    say(slot.member, resumed ? "goes on" : "starts");
  }

  std::vector<std::string> train_arguments(const Slot& slot) const {
    const MemberPaths place = paths(slot.member);
    std::vector<std::string> arguments{
        "train",    "--recipe",  place.recipe().string(),         "--out", place.run.folder.string(),
        "--resume", "--threads", fmt::to_string(threads_of(slot))};
    // All jobs are on one GPU, whose memory is shared out as the threads are.
    const RunningOptions& running = members_[slot.member].recipe.running;
    if (running.device == "cuda" && options_.jobs > 1)
      arguments.insert(arguments.end(), {"--gpu-memory", fmt::to_string(running.gpu_memory / options_.jobs)});
    return arguments;
  }

  // All threads are shared out; those that are left over go to the first slots. The ranks of a run have equal work, and equal
  // threads.
  int threads_of(const Slot& slot) const {
    const int all = options_.threads > 0 ? options_.threads : usable_cpus();
    const auto index = static_cast<int>(&slot - slots_.data());
    const int of_slot = all / options_.jobs + (index < all % options_.jobs ? 1 : 0);
    return std::max(1, of_slot / ranks_of(members_[slot.member]));
  }

  static int ranks_of(const Member& member) {
    return member.command.empty() ? static_cast<int>(member.recipe.running.ranks) : 1;
  }

  void look_at(Slot& slot) {
    const auto code = slot.child->ended();
    if (!code) return;
    const int killed_by = slot.child->killed_by();
    slot.child.reset();
    // A scheduler tells every process of a job, this one perhaps a moment after its child.
    if (*code > 128) std::this_thread::sleep_for(kPollInterval);
    heed_signals();
    const MemberPaths place = paths(slot.member);
    if (*code == 0 && file_exists(place.run.result())) {
      finish(slot.member);
    } else if (end_.signal != 0 && is_stopped(*code)) {
      note_stop(slot);
    } else if (const auto lease = lease_state(place.run.lease());
               was_refused(slot, *code) || (lease && lease->is_alive())) {
      leave(slot.member, lease);
    } else {
      const std::string said = last_line(place.log(), slot.log_start);
      fail(slot.member, killed_by != 0 ? fmt::format("{}; {}{}", death_of(slot, killed_by),
                                                     said == kSilent ? "" : "its last line: ", said)
                                       : fmt::format("{}; {}", said, end_of(*code)));
    }
    slot.lease.reset();
  }

  // Training has watched the lease; of one on another machine only the clocks would tell here. A script's codes are its own.
  bool was_refused(const Slot& slot, int code) const {
    return code == kLeaseTakenCode && members_[slot.member].command.empty();
  }

  // One that a scheduler starts again must get on.
  void note_stop(const Slot& slot) {
    const MemberPaths place = paths(slot.member);
    if (kept_step(place) > slot.kept_step)
      forget_stalls(place);
    else if (options_.only && add_stall(place) >= kMostStalls)
      return fail_for_stalls(slot);
    say(slot.member, "stopped");
  }

  void fail_for_stalls(const Slot& slot) {
    const std::chrono::duration<double> lived = std::chrono::steady_clock::now() - slot.started;
    forget_stalls(paths(slot.member));
    fail(slot.member,
         fmt::format("stopped {} times in a row before it had made a step, the last time {} after it "
                     "started; give it more time",
                     kMostStalls, duration_text(lived.count())));
  }

  // By the signal that was passed on, or by the one that this process had too.
  bool is_stopped(int code) const { return code == 128 + end_.signal || code == 128 + Child::kStopSignal; }

  // Of one that a signal ended. The kernel ends a process for want of memory by SIGKILL, as others may too.
  std::string death_of(const Slot& slot, int signal) const {
    std::string killed = fmt::format("killed by {}", signal_name(signal));
    if (signal != SIGKILL || out_of_memory_kills(options_.vmstat) == slot.memory_kills) return killed;
    return killed +
           ", out of memory: the kernel ended a process for want of it; fewer --jobs or a smaller "
           "--batch need less";
  }

  // Of one that ended by itself. Training that a signal stops saves, and ends with 128 + the signal.
  static std::string end_of(int code) {
    if (code == 0) return "it ended without a result";
    if (code > 128) return fmt::format("stopped by {}, after it saved", signal_name(code - 128));
    return fmt::format("exit code {}", code);
  }

  void finish(std::size_t member) {
    forget_stalls(paths(member));
    try {
      const RunSummary run = read_run_summary(paths(member).run.folder);
      // Of a member by itself nobody knows how many others there are at once.
      const std::string left =
          options_.only
              ? ""
              : "; left " + duration_text(seconds_left(read_status(members_, folder_), options_.jobs));
      say(member, fmt::format("done: {} {}, cost {:.4f} (actual), {}{}", run.metric,
                              metric_text(find_metric(run.metric), run.test), run.cost.relative_actual,
                              duration_text(run.cost.seconds), left));
    } catch (const UserError& error) {
      fail(member, error.what());
    }
  }

  void fail(std::size_t member, const std::string& reason) {
    write_atomically(paths(member).failure(), reason + "\n");
    say(member, fmt::format("failed: {} (see {})", reason, paths(member).log().string()));
    end_.failed.push_back({members_[member].name, reason});
  }

  void leave(std::size_t member, const std::optional<LeaseState>& lease) {
    const std::string writer =
        lease && lease->who ? describe(*lease->who) : "a process that its lease does not name";
    say(member, "is trained elsewhere: " + writer);
    end_.elsewhere.push_back({members_[member].name, writer});
  }

  void heed_signals() {
    if (const int signal = StopSignals::received(); signal != 0 && end_.signal == 0) stop(signal);
  }

  void stop(int signal) {
    end_.signal = signal;
    options_.say("stopping: the runs save what they have");
    for (const Slot& slot : slots_) {
      if (slot.child) slot.child->stop();
    }
  }

  void say(std::size_t member, const std::string& what) const {
    options_.say(fmt::format("[{:>{}}/{}] {} {}", member + 1, fmt::formatted_size("{}", members_.size()),
                             members_.size(), members_[member].name, what));
  }

  const std::vector<Member>& members_;
  const fs::path folder_;
  const RunnerOptions options_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> waiting_;  // to be started, in their order
  RunnerEnd end_;
};

}  // namespace

RunnerEnd run_members(const std::vector<Member>& members, const fs::path& folder,
                      const RunnerOptions& options) {
  forget_launcher();  // who starts several members starts runs of their own
  return Runner(members, folder, options).run();
}

}  // namespace lowtide
