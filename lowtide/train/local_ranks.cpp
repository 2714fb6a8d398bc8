#include "lowtide/train/local_ranks.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/io/file.h"
#include "lowtide/train/signals.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Others see a broken connection at the end of their step, and end by themselves. A long step is not waited for: there is
// nothing to save. Less than the time after which a rank would tell, too, of one that shows no life.
constexpr std::chrono::seconds kGrace{5};
constexpr std::chrono::milliseconds kPoll{20};
// Asks a rank to stop: of this one any number is one request. A rank may have had the signal that this process got by itself, and
// take a second one as an order to end without saving.
constexpr int kStop = SIGUSR1;

// Where ranks of one machine meet, while it lives.
class MeetingPlace {
 public:
  MeetingPlace() {
    std::string path = (fs::temp_directory_path() / "lowtide-ranks-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) throw cannot_write(path, errno);
    folder_ = path;
  }
  ~MeetingPlace() {
    std::error_code ignored;
    if (getpid() == owner_) fs::remove_all(folder_, ignored);
  }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  const fs::path& folder() const { return folder_; }

 private:
  pid_t owner_ = getpid();
  fs::path folder_;
};

bool is_stop_signal(int signal) {
  return std::find(kStopSignals.begin(), kStopSignals.end(), signal) != kStopSignals.end();
}

// The processes, by rank, as long as they run.
class LocalRanks {
 public:
  explicit LocalRanks(const RankEnvironment& environment) : environment_(environment) {}

  // Whether this is the parent; in a child `rank` is its own.
  bool start(int count, int& rank) {
    const pid_t parent = getpid();
    std::fflush(nullptr);  // or every child prints it again
    for (rank = 0; rank < count; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGUSR1);
        if (getppid() != parent) _exit(1);  // it died before it could be watched
        return false;
      }
      if (pid < 0) {
        const int error = errno;
        send(SIGKILL);
        throw UserError(fmt::format("cannot start a process: {}", std::strerror(error)));
      }
      running_.push_back(pid);
    }
    return true;
  }

  int wait() {
    const StopSignals signals;
    bool passed_on = false;
    while (left() > 0) {
      look();
      if (StopSignals::received() != 0 && !std::exchange(passed_on, true)) send(kStop);
      if (Clock::now() > grace_ends_) send(SIGKILL);
      std::this_thread::sleep_for(kPoll);
    }
    return passed_on && code_ == 128 + kStop ? 128 + StopSignals::received() : code_;
  }

 private:
  std::ptrdiff_t left() const {
    return std::count_if(running_.begin(), running_.end(), [](pid_t pid) { return pid > 0; });
  }

  bool has_failed() const { return grace_ends_ != Clock::time_point::max(); }

  void send(int signal) const {
    for (const pid_t pid : running_) {
      if (pid > 0) kill(pid, signal);
    }
  }

  void look() {
    for (std::size_t rank = 0; rank < running_.size(); ++rank) {
      int status = 0;
      if (running_[rank] <= 0 || waitpid(running_[rank], &status, WNOHANG) != running_[rank]) continue;
      running_[rank] = 0;
      if (WIFSIGNALED(status)) environment_.mark();
      if (WIFSIGNALED(status) && is_stop_signal(WTERMSIG(status))) {
        stopped(WTERMSIG(status));
      } else if (WIFSIGNALED(status)) {
        killed(rank, WTERMSIG(status));
      } else {
        code_ = std::max(code_, WEXITSTATUS(status));
      }
      if (code_ != 0 && !has_failed()) grace_ends_ = Clock::now() + kGrace;
    }
  }

  // Before it trained, when there is nothing to save yet. A scheduler may have told this rank alone.
  void stopped(int signal) {
    code_ = std::max(code_, 128 + signal);
    send(signal);
  }

  void killed(std::size_t rank, int signal) {
    if (!has_failed()) {
      std::fputs(fmt::format("lowtide: rank {} was killed by signal {} ({}); the others stop{}\n", rank,
                             signal, sigdescr_np(signal), environment_.what_is_left(", and "))
                     .c_str(),
                 stderr);
    }
    code_ = std::max(code_, 1);
  }

  const RankEnvironment& environment_;
  std::vector<pid_t> running_;
  int code_ = 0;
  Clock::time_point grace_ends_ = Clock::time_point::max();  // sooner, once one has failed
};

}  // namespace

std::optional<RankEnvironment> start_local_ranks(int count, int& code, bool saves) {
  const MeetingPlace place;
  RankEnvironment environment{.size = count, .folder = place.folder().string(), .saves = saves};
  LocalRanks ranks(environment);
  if (ranks.start(count, environment.rank)) {
    code = ranks.wait();
    return std::nullopt;
  }
  environment.local_rank = environment.rank;
  return environment;
}

}  // namespace lowtide
