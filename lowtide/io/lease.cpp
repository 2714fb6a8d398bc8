#include "lowtide/io/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <mutex>
#include <sstream>
#include <thread>

#include "lowtide/base/json.h"
#include "lowtide/base/whole_number.h"
#include "lowtide/io/file.h"
#include "lowtide/io/json_check.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr std::size_t kMaxLeaseBytes = 4096;

// What a taker leaves for another that judged the same holder dead, to see whose rename came last: between a look and the
// rename that follows it lie microseconds on one machine, where flock() keeps them apart too if there is one. On several it is a
// part of a beat, for two answers of a file server.
constexpr milliseconds kSettleHere{50};
constexpr int kSettleElsewhere = 5;  // beat / 5: two seconds

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

struct ProcessState {
  char state = 0;  // R, S, D, T, Z …
  std::int64_t started = 0;
};

// The 3rd and the 22nd field of /proc/PID/stat; zeros where it does not tell. The 2nd, the program's name, may hold spaces
// and brackets.
ProcessState process_state(std::int64_t pid) {
  const std::string text = first_line(fmt::format("/proc/{}/stat", pid));
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  ProcessState process;
  fields >> process.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> process.started;
  return process;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string job_of_environment() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  const std::string array = variable("SLURM_ARRAY_JOB_ID");
  return array.empty() ? variable("SLURM_JOB_ID") : array + "_" + variable("SLURM_ARRAY_TASK_ID");
}

LeaseHolder this_process() {
  static std::atomic<std::int64_t> serial{0};
  std::error_code none;
  return {.boot = first_line("/proc/sys/kernel/random/boot_id"),
          .pid_namespace = fs::read_symlink("/proc/self/ns/pid", none).string(),
          .pid = getpid(),
          .started = process_state(getpid()).started,
          .serial = ++serial,
          .host = host_name(),
          .job = job_of_environment()};
}

// Whether this machine's kernel can tell of the holder.
bool is_in_sight(const LeaseHolder& holder) {
  static const LeaseHolder own = this_process();
  return !own.boot.empty() && !own.pid_namespace.empty() && own.started > 0 && holder.boot == own.boot &&
         holder.pid_namespace == own.pid_namespace;
}

// A sign of life changes the one, a take-over the other.
struct Look {
  std::string text;
  std::int64_t modified = 0;  // nanoseconds
  bool operator==(const Look&) const = default;
};

// Opened anew each time: that makes the client of a network file system ask the server. Nothing where there is no file.
std::optional<Look> look_at(const fs::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) {
    // ESTALE: it was removed on another machine while it was being opened here.
    if (errno == ENOENT || errno == ESTALE) return std::nullopt;
    throw cannot_read(path, errno);
  }
  std::array<char, kMaxLeaseBytes> buffer{};
  const ssize_t size = ::read(file.number(), buffer.data(), buffer.size());
  if (size < 0 && errno == ESTALE) return std::nullopt;
  if (size < 0) throw cannot_read(path, errno);
  return Look{{buffer.data(), static_cast<std::size_t>(size)},
              std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

LeaseState::Holder judge(const std::optional<LeaseHolder>& holder) {
  using Holder = LeaseState::Holder;
  if (!holder || !is_in_sight(*holder) || holder->pid > std::numeric_limits<pid_t>::max())
    return Holder::kUnseen;
  if (holder->pid == 0 || (kill(static_cast<pid_t>(holder->pid), 0) != 0 && errno == ESRCH))
    return Holder::kDead;
  const ProcessState process = process_state(holder->pid);
  if (process.started == 0) return Holder::kUnseen;  // of another user, whose processes /proc may hide
  // A dead one that nobody has asked about is a zombie.
  return process.started == holder->started && process.state != 'Z' ? Holder::kAlive : Holder::kDead;
}

std::string described(const std::string& text) {
  const auto holder = parse_lease_holder(text);
  return holder ? describe(*holder) : "a process that it does not name";
}

// The lease's text in a file of its own, to be linked or renamed into place whole; removed in the end.
class Candidate {
 public:
  Candidate(const fs::path& lease, const std::string& text)
      : lease_(lease),
        // Named after its text, which no other process has.
        path_(lease.parent_path() /
              fmt::format(".{}.{:016x}.tmp", lease.filename().string(), std::hash<std::string>{}(text))) {
    const FileDescriptor file = open_for_writing(path_, O_TRUNC);
    write_all(file, bytes_of(text), path_);
    sync_file(file, path_);
  }
  Candidate(const Candidate&) = delete;
  Candidate& operator=(const Candidate&) = delete;
  ~Candidate() { ::unlink(path_.c_str()); }

  // False where there is a lease. A file system without links has O_EXCL.
  bool link_into_place(const std::string& text) const {
    if (::link(path_.c_str(), lease_.c_str()) == 0) return true;
    if (errno == EEXIST) return false;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) throw cannot_write(lease_, errno);
    const FileDescriptor file(::open(lease_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.number() < 0 && errno == EEXIST) return false;
    if (file.number() < 0) throw cannot_write(lease_, errno);
    write_all(file, bytes_of(text), lease_);
    return true;
  }

  void rename_into_place() const {
    if (::rename(path_.c_str(), lease_.c_str()) != 0) throw cannot_write(lease_, errno);
  }

 private:
  const fs::path& lease_;
  fs::path path_;
};

}  // namespace

std::string to_text(const LeaseHolder& holder) {
  return Json{{"boot", holder.boot},     {"pid_namespace", holder.pid_namespace},
              {"pid", holder.pid},       {"started", holder.started},
              {"serial", holder.serial}, {"host", holder.host},
              {"job", holder.job}}
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

std::optional<LeaseHolder> parse_lease_holder(std::string_view text) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (text.size() > kMaxLeaseBytes) return std::nullopt;
  try {
    const Json json = parse_json(text, "lease", "not a lease");
    const auto number = [&](const char* key) { return whole_number(json, key, 0, kMost, "lease"); };
    return LeaseHolder{.boot = json.at("boot"),
                       .pid_namespace = json.at("pid_namespace"),
                       .pid = number("pid"),
                       .started = number("started"),
                       .serial = number("serial"),
                       .host = json.at("host"),
                       .job = json.at("job")};
  } catch (const UserError&) {
  } catch (const Json::exception&) {
  }
  return std::nullopt;
}

std::string describe(const LeaseHolder& holder) {
  return fmt::format("process {} on {}{}", holder.pid, holder.host,
                     holder.job.empty() ? "" : ", job " + holder.job);
}

// The lease while it is held, with the thread that shows it.
class Lease::Held {
 public:
  Held(const fs::path& path, LeaseOptions options) : path_(path), options_(std::move(options)) {
    take();
    // Signals are for the threads that work.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    thread_ = std::jthread([this](const std::stop_token& stop) { show_life(stop); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    thread_.request_stop();
    thread_.join();
    try {
      const auto look = look_at(path_);
      if (look && look->text == text_) ::unlink(path_.c_str());
    } catch (const UserError&) {  // it stays, and is taken for a dead one's
    }
  }

  void expect_held() const {
    const auto look = look_at(path_);
    if (!look)
      throw UserError(fmt::format("{} was removed while this process held it; it ends", path_.string()));
    if (look->text != text_) {
      throw LeaseTaken(
          fmt::format("{} was taken over by {}, since this process showed no life for too long; it ends",
                      path_.string(), described(look->text)));
    }
  }

 private:
  LeaseTaken refused(const std::string& holder) const {
    return LeaseTaken(fmt::format("{}: {}, {}", path_.parent_path().string(), options_.taken, holder));
  }

  void take() {
    const Candidate candidate(path_, text_);
    while (true) {
      const bool linked = candidate.link_into_place(text_);
      const auto look = look_at(path_);
      if (!look) {  // released a moment ago, or by a user
        expect_no_link();
        continue;
      }
      if (look->text == text_) return;  // also where the answer to link() got lost
      if (linked) throw refused(described(look->text));
      const LeaseState::Holder holder = judge(parse_lease_holder(look->text));
      if (holder == LeaseState::Holder::kAlive) throw refused(described(look->text));
      if (holder == LeaseState::Holder::kUnseen && !stays_silent(*look)) continue;
      const FileDescriptor left = locked();  // until the rename, after which it is another file
      if (const auto now = look_at(path_); !now || now->text != look->text) continue;
      candidate.rename_into_place();
      std::this_thread::sleep_for(holder == LeaseState::Holder::kDead ? kSettleHere
                                                                      : options_.beat / kSettleElsewhere);
      const auto after = look_at(path_);
      if (after && after->text == text_) return;
      throw refused(after ? described(after->text) : "which took it over at the same moment");
    }
  }

  // What a dead holder left, for one taker of this machine; of others, or without flock(), the time to settle tells.
  FileDescriptor locked() const {
    FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (::flock(file.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw refused("which takes it over at this moment");
    return file;
  }

  // One that leads to no file is there for link(), and is not to open().
  void expect_no_link() const {
    std::error_code none;
    if (fs::is_symlink(fs::symlink_status(path_, none)))
      throw UserError(fmt::format("{} is a symbolic link that leads to no file; remove it", path_.string()));
  }

  // Whether the file stays as it was first seen for the time of expiry. False where it is gone; refused where it shows life.
  bool stays_silent(const Look& first) const {
    options_.say(fmt::format("{} is held by {}; waiting up to {} s for a sign of life", path_.string(),
                             described(first.text), options_.expiry.count() / 1000));
    const milliseconds interval = std::min(options_.beat / 4, milliseconds(1000));
    for (milliseconds silent{0}; silent < options_.expiry; silent += interval) {
      std::this_thread::sleep_for(interval);
      const auto now = look_at(path_);
      if (!now) return false;
      if (*now != first) throw refused(described(now->text));
    }
    return true;
  }

  void show_life(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    while (!stopped.wait_for(lock, stop, options_.beat, [&] { return stop.stop_requested(); })) {
      try {
        expect_held();
        utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);  // now, by the clock of the file system
      } catch (const UserError&) {                       // whoever writes next asks, and is told
      }
    }
  }

  const fs::path path_;
  const LeaseOptions options_;
  const std::string text_ = to_text(this_process());
  std::jthread thread_;
};

Lease::Lease(const fs::path& path, LeaseOptions options)
    : held_(std::make_unique<Held>(path, std::move(options))) {}
Lease::~Lease() = default;
Lease::Lease(Lease&&) noexcept = default;
Lease& Lease::operator=(Lease&&) noexcept = default;

void Lease::expect_held() const { held_->expect_held(); }

bool LeaseState::is_alive(milliseconds expiry) const {
  if (holder != Holder::kUnseen) return holder == Holder::kAlive;
  return silent_seconds < std::chrono::duration<double>(expiry).count();
}

std::optional<LeaseState> lease_state(const fs::path& path) {
  const auto look = look_at(path);
  if (!look) return std::nullopt;
  const auto holder = parse_lease_holder(look->text);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return LeaseState{
      .holder = judge(holder),
      .who = holder,
      .silent_seconds =
          std::chrono::duration<double>(now - std::chrono::nanoseconds(look->modified)).count()};
}

}  // namespace lowtide
