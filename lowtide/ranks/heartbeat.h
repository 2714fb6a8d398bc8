#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lowtide {

// One rank among several, as heartbeats know it.
struct HeartbeatPlace {
  int rank = 0, size = 1;
  std::string address{};   // of rank 0
  int port = 0;            // of rank 0's socket
  std::int64_t token = 0;  // of this group of ranks: another's messages are passed over
  int deputy = 1;          // tells of rank 0, where that is lost
};

struct HeartbeatOptions {
  std::chrono::milliseconds beat{1'000};     // between two signs of life
  std::chrono::milliseconds expiry{10'000};  // without one, a rank is taken for lost
};

// Who is not heard of any more, empty where another rank has told of it; and whether this rank is the one to tell people.
struct LostRanks {
  std::vector<int> ranks{};
  bool tells = false;
};

// Signs of life between ranks, on a thread of their own, however long a step takes: by these alone one learns of a rank that
// is stopped, or whose machine went away without closing its connections.
//
// Every rank sends a datagram to rank 0 each `beat`, and rank 0 one to each. Rank 0 watches the others and tells them what it
// found; they watch rank 0. Silence is counted in beats of the watcher's own: one that was asleep itself (a machine's, a
// scheduler's or a terminal's stop) has not waited meanwhile. A rank is watched from its first sign of life on: where no
// datagram passes, nobody is taken for lost.
class Heartbeat {
 public:
  explicit Heartbeat(HeartbeatOptions options = {});  // begins with nothing but a socket
  ~Heartbeat();                                       // tells the others that it leaves
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  int port() const;

  // `lost` is called once at most, on the thread that listens.
  void start(const HeartbeatPlace& place, std::function<void(const LostRanks&)> lost);

  // Whether a rank that this one watches has shown life within the last beats.
  bool hears(int rank) const;

  // Leaves before this is destroyed: from then on nobody tells this rank to end.
  void end();

  // For a rank that ends by an error and tells people itself: to all others no rank is lost, but they are to end.
  void end_all();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lowtide
