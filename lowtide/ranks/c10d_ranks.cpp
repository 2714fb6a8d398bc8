#include "lowtide/ranks/c10d_ranks.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "lowtide/base/gpu.h"
#include "lowtide/ranks/c10d.h"
#include "lowtide/ranks/heartbeat.h"
#include "lowtide/ranks/rendezvous.h"

namespace lowtide {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Longer than a live rank takes to see that a connection broke, and than the three beats after which one that died is not heard
// any more; short for who waits.
constexpr milliseconds kRollCall{5000};
constexpr const char *kFailures = "failures", *kPresent = "present", *kLooked = "looked",
                     *kProblem = "problem", *kVerdict = "verdict", *kAddress = "address",
                     *kHeartbeat = "heartbeat";

std::string name_of(const char* what, int rank) { return fmt::format("{}/{}", what, rank); }

void set_text(const C10dStore& store, const std::string& name, const std::string& text) {
  store->set(name, std::vector<std::uint8_t>(text.begin(), text.end()));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Asks until it is so, for the time of a roll call at most. Whether it is.
template <typename Condition>
bool wait_until(const Condition& condition, Clock::time_point end = Clock::now() + kRollCall) {
  while (!condition()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

std::string get_text(const C10dStore& store, const std::string& name) {
  const std::vector<std::uint8_t> bytes = store->get(name);
  return {bytes.begin(), bytes.end()};
}

std::string meeting_place(const RankEnvironment& environment) {
  return environment.is_local() ? environment.folder
                                : fmt::format("{}:{}", environment.address, environment.port);
}

C10dStore make_store(const RankEnvironment& environment) {
  if (environment.is_local())
    return c10::make_intrusive<c10d::FileStore>(environment.folder + "/store", environment.size);
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(environment.port);
  options.isServer = environment.rank == 0 && environment.meeting.empty();
  options.numWorkers = static_cast<std::size_t>(environment.size);
  options.waitWorkers = false;  // expect_no_problem waits, and knows for whom
  try {
    C10dStore store = c10::make_intrusive<c10d::TCPStore>(environment.address, options);
    if (environment.meeting.empty()) return store;
    return c10::make_intrusive<c10d::PrefixStore>(environment.meeting, std::move(store));
  } catch (const std::exception& error) {
    throw UserError(fmt::format("rank {} cannot meet the others at {}: {}", environment.rank,
                                meeting_place(environment), first_line(error.what())));
  }
}

// What keeps ranks from going on together, and which of them tells people.
struct Verdict {
  int teller = 0;
  std::string what{};  // empty: nothing
};

// Rank 0's, when it has heard all of them or waited for long enough.
Verdict hear_problems(const C10dStore& store, const RankEnvironment& environment) {
  const auto end = Clock::now() + environment.patience;
  for (int rank = 0; rank < environment.size; ++rank) {
    if (!wait_until([&] { return store->check({name_of(kProblem, rank)}); }, end))
      return {0, fmt::format("rank 0 waits for rank {} at {}, which has not come in {} s; is it started, and "
                             "has it this MASTER_ADDR and MASTER_PORT?",
                             rank, meeting_place(environment), environment.patience.count())};
    const std::string problem = get_text(store, name_of(kProblem, rank)).substr(1);
    if (!problem.empty()) return {rank, fmt::format("rank {}: {}", rank, problem)};
  }
  return {};
}

// Says whether this rank can take part, and learns it of the others. An empty value is not one to every store.
void expect_no_problem(const C10dStore& store, const RankEnvironment& environment,
                       const std::string& problem) {
  set_text(store, name_of(kProblem, environment.rank), "." + problem);
  Verdict verdict;
  if (environment.rank == 0) {
    verdict = hear_problems(store, environment);
    set_text(store, kVerdict, fmt::format("{} {}", verdict.teller, verdict.what));
  } else {
    store->wait({kVerdict}, environment.patience + kRollCall);  // rank 0's patience began a little later
    const std::string text = get_text(store, kVerdict);
    const std::size_t space = text.find(' ');
    verdict = {std::stoi(text.substr(0, space)), text.substr(space + 1)};
  }
  if (verdict.what.empty()) return;
  // Who has the store leaves last.
  store->add(kLooked, 1);
  if (environment.rank == 0) wait_until([&] { return store->add(kLooked, 0) >= environment.size; });
  if (verdict.teller == environment.rank) throw UserError(verdict.what);
  throw RankFailure(verdict.what, false);
}

// Rank 0's address, as another rank knows it where this one's is of use on its machine alone: Debian has a machine's own name stand
// for 127.0.1.1, and others would be told to find the ranks of rank 0's machine there.
std::string address_of_first(const C10dStore& store, const RankEnvironment& environment) {
  const std::string mine = numeric_address(environment.address);
  set_text(store, name_of(kAddress, environment.rank), mine);
  if (!is_loopback(mine)) return mine;
  for (int rank = 0; rank < environment.size; ++rank) {
    if (const std::string its = get_text(store, name_of(kAddress, rank)); !is_loopback(its)) return its;
  }
  return mine;
}

c10::intrusive_ptr<C10dGroup> make_group(const C10dStore& store, const RankEnvironment& environment,
                                         bool on_cuda) {
  try {
    return on_cuda ? make_nccl_group(store, environment) : make_gloo_group(store, environment);
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    throw UserError(fmt::format("rank {} cannot connect to the others: {}{}", environment.rank,
                                first_line(error.what()),
                                on_cuda ? "" : "; GLOO_SOCKET_IFNAME names the network interface to use"));
  }
}

// Who did not answer: `absent` in all, of whom some are heard, and are in a long step.
struct RollCall {
  int absent = 0;
  std::vector<int> gone{};
};

class Group final : public C10dRanks {
 public:
  Group(const RankEnvironment& environment, C10dStore store, bool on_cuda)
      : environment_(environment), device_(on_cuda ? torch::kCUDA : torch::kCPU), store_(std::move(store)) {
    start_heartbeat();
    try {
      group_ = make_group(store_, environment, on_cuda);
    } catch (const UserError&) {
      heartbeat_.end_all();  // or they would wait for this rank to connect
      throw;
    }
  }

  int rank() const override { return environment_.rank; }
  int size() const override { return environment_.size; }

  void broadcast(const std::vector<torch::Tensor>& tensors) override {
    for (const torch::Tensor& tensor : tensors) {
      std::vector<torch::Tensor> sent{tensor.to(device_).contiguous()};
      guarded([&] { group_->broadcast(sent)->wait(); });
      tensor.copy_(sent[0]);
    }
  }

  bool is_first_to_fail() override;

 private:
  torch::Tensor all_gather(const torch::Tensor& row) override {
    torch::Tensor all = torch::empty({size(), row.numel()}, row.options());
    std::vector<torch::Tensor> in{row.contiguous().view({-1})};
    std::vector<std::vector<torch::Tensor>> out{all.unbind(0)};
    guarded([&] { group_->allgather(out, in)->wait(); });
    std::vector<std::int64_t> sizes = row.sizes().vec();
    sizes.insert(sizes.begin(), size());
    return all.view(sizes);
  }

  torch::Tensor all_to_all(const torch::Tensor& rows) override {
    torch::Tensor in = rows.contiguous(), out = torch::empty_like(in);
    std::vector<std::int64_t> equal;  // parts
    guarded([&] { group_->alltoall_base(out, in, equal, equal)->wait(); });
    return out;
  }

  torch::Device device() const override { return device_; }

  template <typename Call>
  void guarded(const Call& call) {
    try {
      call();
    } catch (const std::exception& error) {
      const std::string cause = first_line(error.what());
      group_.reset();  // closes its connections, which wakes those who wait for this one
      throw failure_of_others(cause);
    }
  }

  void start_heartbeat();
  RankFailure failure_of_others(const std::string& cause);
  std::string explanation(const std::vector<int>& gone, const std::string& cause);
  RollCall call_roll();
  bool is_told();
  void leave(int absent, bool tells);

  RankEnvironment environment_;
  torch::Device device_;
  C10dStore store_;
  c10::intrusive_ptr<C10dGroup> group_;
  Heartbeat heartbeat_;
  int deputy_ = 1;  // tells of rank 0
};

// Nothing wakes a thread that waits for a rank which is stopped or cut off: its connections are open. So the process ends here.
[[noreturn]] void end_without(const LostRanks& lost, const RankEnvironment& environment) {
  if (lost.tells) {
    std::fputs(fmt::format("lowtide: rank {} has shown no life for {} s: it is stopped, or its machine is "
                           "down or cut off{}\n",
                           fmt::join(lost.ranks, ", "), HeartbeatOptions().expiry.count() / 1000,
                           environment.what_is_left("; "))
                   .c_str(),
               stderr);
  }
  std::_Exit(1);
}

// Where one rank hears signs of life, and which of its machine's it is. Rank 0's clock tells groups apart that have had one port, one
// after the other.
struct HeartbeatSocket {
  int port = 0, local_rank = 0;
  std::int64_t clock = 0;
};

std::vector<HeartbeatSocket> gather_sockets(const C10dStore& store, const RankEnvironment& environment,
                                            int port) {
  set_text(store, name_of(kHeartbeat, environment.rank),
           fmt::format("{} {} {}", port, environment.local_rank, Clock::now().time_since_epoch().count()));
  std::vector<HeartbeatSocket> sockets;
  for (int rank = 0; rank < environment.size; ++rank) {
    std::istringstream text(get_text(store, name_of(kHeartbeat, rank)));
    HeartbeatSocket& of = sockets.emplace_back();
    text >> of.port >> of.local_rank >> of.clock;
  }
  return sockets;
}

// Before the ranks connect, which one of them may fail in or vanish: so what is needed goes by the store.
void Group::start_heartbeat() {
  const std::vector<HeartbeatSocket> all = gather_sockets(store_, environment_, heartbeat_.port());
  HeartbeatPlace place{.rank = rank(),
                       .size = size(),
                       .address = environment_.is_local() ? "127.0.0.1" : environment_.address,
                       .port = all[0].port,
                       .token = all[0].clock};
  // On another machine than rank 0, if there is one: it may be the machine that is lost.
  const auto other = std::find_if(all.begin() + 1, all.end(),
                                  [](const HeartbeatSocket& of_rank) { return of_rank.local_rank == 0; });
  if (other != all.end()) place.deputy = static_cast<int>(other - all.begin());
  deputy_ = place.deputy;
  heartbeat_.start(place, [this](const LostRanks& lost) { end_without(lost, environment_); });
}

// Of one that failed by itself, or of a local one that was killed: its parent tells.
bool Group::is_told() { return environment_.is_marked() || store_->check({kFailures}); }

// Ranks answer when their connections break. It ends where a failure is told meanwhile.
RollCall Group::call_roll() {
  set_text(store_, name_of(kPresent, rank()), "yes");
  std::vector<int> absent;
  wait_until([&] {
    absent.clear();
    for (int other = 0; other < size(); ++other) {
      if (!store_->check({name_of(kPresent, other)})) absent.push_back(other);
    }
    return absent.empty() || is_told();
  });
  if (is_told()) return {};
  RollCall call{.absent = static_cast<int>(absent.size())};
  std::copy_if(absent.begin(), absent.end(), std::back_inserter(call.gone),
               [&](int other) { return !heartbeat_.hears(other); });
  return call;
}

// Rank 0 hears of all, the others of rank 0 alone. A local rank that was killed would be told of by its parent.
std::string Group::explanation(const std::vector<int>& gone, const std::string& cause) {
  const std::string left = environment_.what_is_left("; ");
  if (!gone.empty() && !environment_.is_local()) {
    if (rank() == 0 || gone[0] == 0)
      return fmt::format("rank {} is gone: it was killed, or its machine is down{}",
                         rank() == 0 ? fmt::to_string(fmt::join(gone, ", ")) : "0", left);
    wait_until([&] { return is_told(); });  // by rank 0
  }
  return fmt::format("the connection between the ranks broke: {}{}", cause, left);
}

// Who has the store waits until the others have looked; one that is in a long step is dismissed. Where GPUs wait for this rank,
// a connection that breaks does not wake the others: the one that tells people ends them.
void Group::leave(int absent, bool tells) {
  if (rank() != 0 && tells && device_.is_cuda()) {
    heartbeat_.end_all();
  } else if (rank() != 0) {
    heartbeat_.end();
    store_->add(kLooked, 1);
  } else if (!environment_.is_local()) {
    wait_until([&] { return store_->add(kLooked, 0) >= size() - 1 - absent; });
    heartbeat_.end_all();
  }
}

RankFailure Group::failure_of_others(const std::string& cause) {
  try {
    const RollCall call = call_roll();
    const std::string what = is_told() ? "another rank failed" : explanation(call.gone, cause);
    const bool tells = store_->add(kFailures, 1) == 1 && !environment_.is_marked();
    leave(call.absent, tells);
    return {what, tells};
  } catch (const std::exception&) {  // rank 0 is gone, which has the store
    return {explanation({0}, cause), rank() == deputy_};
  }
}

bool Group::is_first_to_fail() {
  try {
    const bool first = store_->add(kFailures, 1) == 1;
    group_.reset();
    leave(0, first);
    return first;
  } catch (const std::exception&) {
    return true;  // rank 0 is gone with the store, perhaps for the same reason: better twice than not at all
  }
}

// Takes a GPU of its own for this rank, or tells what keeps it from one.
std::string gpu_problem(const RankEnvironment& environment) {
  try {
    expect_gpu();
    const c10::impl::VirtualGuardImpl gpus(c10::DeviceType::CUDA);
    const int count = gpus.deviceCount();
    const std::optional<int> mine = gpu_of(environment, count);
    if (!mine)
      return fmt::format(
          "it is number {} on its machine, counted from 0, and finds {} GPUs; start a rank for each GPU, no "
          "more",
          environment.local_rank, count);
    gpus.setDevice(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(*mine)));
    return "";
  } catch (const std::exception& error) {  // expect_gpu's, or the driver's
    return first_line(error.what());
  }
}

}  // namespace

std::shared_ptr<C10dRanks> C10dRanks::join(RankEnvironment environment, const std::string& device,
                                           const std::string& problem) {
  const bool on_cuda = device == "cuda";
  check_rendezvous(environment);
  C10dStore store = make_store(environment);
  try {
    expect_no_problem(store, environment, problem.empty() && on_cuda ? gpu_problem(environment) : problem);
    if (!environment.is_local()) environment.address = address_of_first(store, environment);
    return std::make_shared<Group>(environment, std::move(store), on_cuda);
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {  // the store's
    throw UserError(
        fmt::format("rank {} heard no more of the others, with whom it met at {}: {}; look whether each was "
                    "started and why it ended, and "
                    "start all of them again",
                    environment.rank, meeting_place(environment), first_line(error.what())));
  }
}

}  // namespace lowtide
