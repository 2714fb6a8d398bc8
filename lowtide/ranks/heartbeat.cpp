#include "lowtide/ranks/heartbeat.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/io/file.h"

namespace lowtide {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

enum class Kind : std::int32_t { kAlive, kLeaving, kLost };

struct Message {
  std::int64_t token = 0;
  std::int32_t rank = 0;
  Kind kind = Kind::kAlive;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// On any address of this machine, of either family; of one, where the kernel has no other.
FileDescriptor open_socket() {
  FileDescriptor both(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int off = 0;
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  if (both.number() >= 0 && setsockopt(both.number(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0 &&
      bind(both.number(), reinterpret_cast<sockaddr*>(&any), sizeof(any)) == 0)
    return both;
  FileDescriptor one(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  if (one.number() < 0 || bind(one.number(), reinterpret_cast<sockaddr*>(&any4), sizeof(any4)) != 0)
    throw UserError(
        "the system gives no socket for datagrams, by which ranks show each other that they live");
  return one;
}

int family_of(const FileDescriptor& socket) {
  Address own{.length = sizeof(sockaddr_storage)};
  getsockname(socket.number(), reinterpret_cast<sockaddr*>(&own.storage), &own.length);
  return own.storage.ss_family;
}

// As a socket of this family writes it: IPv4 within IPv6, where that has both. Length 0 where there is none.
Address find_address(const std::string& host, int port, int family) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = family == AF_INET6 ? AI_V4MAPPED | AI_ALL : 0;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  Address address{.length = found->ai_addrlen};
  std::copy_n(reinterpret_cast<const char*>(found->ai_addr), found->ai_addrlen,
              reinterpret_cast<char*>(&address.storage));
  freeaddrinfo(found);
  return address;
}

}  // namespace

class Heartbeat::Loop {
 public:
  explicit Loop(const HeartbeatOptions& options)
      : options_(options), socket_(open_socket()), stop_(eventfd(0, EFD_CLOEXEC)) {}
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() { end(Kind::kLeaving); }

  bool hears(int rank) const {
    constexpr int kMostSilent = 2;  // beats: one that lives is late by one at most
    const std::lock_guard lock(mutex_);
    const auto peer = peers_.find(rank);
    return peer != peers_.end() && peer->second.silent && *peer->second.silent <= kMostSilent;
  }

  void end(Kind last_message) {
    if (!thread_.joinable()) return;
    eventfd_write(stop_.number(), 1);
    thread_.join();
    send_to_all(last_message);
  }

  int port() const {
    Address own{.length = sizeof(sockaddr_storage)};
    getsockname(socket_.number(), reinterpret_cast<sockaddr*>(&own.storage), &own.length);
    // Of both families it is the same field.
    return ntohs(reinterpret_cast<const sockaddr_in*>(&own.storage)->sin_port);
  }

  void start(const HeartbeatPlace& place, std::function<void(const LostRanks&)> lost) {
    place_ = place;
    lost_ = std::move(lost);
    if (place.rank != 0) {
      peers_[0].address = find_address(place.address, place.port, family_of(socket_));
    } else {
      for (int rank = 1; rank < place.size; ++rank) peers_[rank] = {};
    }
    // Signals are for the threads that work.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

 private:
  struct Peer {
    Address address;            // of length 0: not known yet
    std::optional<int> silent;  // beats without a sign of life; nothing where it is not watched
  };

  void run() {
    while (true) {
      send_to_all(Kind::kAlive);
      if (!listen()) return;
      if (const LostRanks lost = find_lost(); !lost.ranks.empty()) {
        if (place_.rank == 0) dismiss_others();
        return lost_(lost);
      }
    }
  }

  // Before this one ends: or they would tell people that it is gone.
  void dismiss_others() const {
    send_to_all(Kind::kLost);
    std::this_thread::sleep_for(options_.beat / 4);
  }

  void send(const Address& to, Kind kind) const {
    const Message message{place_.token, place_.rank, kind};
    if (to.length == 0) return;
    sendto(socket_.number(), &message, sizeof(message), 0, reinterpret_cast<const sockaddr*>(&to.storage),
           to.length);
  }

  // A beat that does not arrive is followed by others; the rest is sent thrice.
  void send_to_all(Kind kind) const {
    for (int copy = 0; copy < (kind == Kind::kAlive ? 1 : 3); ++copy) {
      for (const auto& [rank, peer] : peers_) send(peer.address, kind);
    }
  }

  // For a beat. False where there is nothing more to listen for.
  bool listen() {
    const auto end = Clock::now() + options_.beat;
    while (true) {
      const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
      std::array<pollfd, 2> files{{{socket_.number(), POLLIN, 0}, {stop_.number(), POLLIN, 0}}};
      if (left <= milliseconds(0)) return true;
      poll(files.data(), files.size(), static_cast<int>(left.count()));
      if (files[1].revents != 0) return false;
      if (files[0].revents != 0 && !receive_all()) return false;
    }
  }

  bool receive_all() {
    while (true) {
      Message message;
      Address from{.length = sizeof(sockaddr_storage)};
      const ssize_t size = recvfrom(socket_.number(), &message, sizeof(message), 0,
                                    reinterpret_cast<sockaddr*>(&from.storage), &from.length);
      if (size < 0) return true;
      const auto peer = peers_.find(message.rank);
      if (size != sizeof(message) || message.token != place_.token || peer == peers_.end()) continue;
      if (message.kind == Kind::kLost) {
        if (place_.rank == 0) dismiss_others();  // the others hear of it by rank 0 alone
        return lost_({}), false;
      }
      const bool is_new = peer->second.address.length == 0;
      const std::lock_guard lock(mutex_);
      peer->second = {from, message.kind == Kind::kLeaving ? std::nullopt : std::optional(0)};
      if (is_new) send(from, Kind::kAlive);  // so that it is watched from now on, not from the next beat
    }
  }

  // With the first that is silent for too long, those that are for half as long: ranks of one machine go together.
  LostRanks find_lost() {
    const auto limit = static_cast<int>(options_.expiry / options_.beat);
    LostRanks lost{.tells = place_.rank == 0 || place_.rank == place_.deputy};
    bool too_long = false;
    const std::lock_guard lock(mutex_);
    for (auto& [rank, peer] : peers_) {
      if (!peer.silent) continue;
      too_long = ++*peer.silent > limit || too_long;
      if (2 * *peer.silent >= limit) lost.ranks.push_back(rank);
    }
    return too_long ? lost : LostRanks{};
  }

  HeartbeatOptions options_;
  FileDescriptor socket_, stop_;
  HeartbeatPlace place_;
  std::function<void(const LostRanks&)> lost_;
  std::map<int, Peer> peers_;  // by rank: those that this one watches; changed by the thread alone
  mutable std::mutex mutex_;   // of those changes
  std::thread thread_;
};

Heartbeat::Heartbeat(HeartbeatOptions options) : loop_(std::make_unique<Loop>(options)) {}
Heartbeat::~Heartbeat() = default;
int Heartbeat::port() const { return loop_->port(); }
void Heartbeat::start(const HeartbeatPlace& place, std::function<void(const LostRanks&)> lost) {
  loop_->start(place, std::move(lost));
}
bool Heartbeat::hears(int rank) const { return loop_->hears(rank); }
void Heartbeat::end() { loop_->end(Kind::kLeaving); }
void Heartbeat::end_all() { loop_->end(Kind::kLost); }

}  // namespace lowtide
