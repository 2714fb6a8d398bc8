#include "lowtide/report/bounded_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

namespace lowtide {
namespace {

using Clock = std::chrono::steady_clock;

// Whether the socket can be read from or written to before the deadline; what has ended can.
bool wait_until(socket_t socket, short event, Clock::time_point deadline) {
  pollfd waiting{socket, event, 0};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    const int ready = ::poll(&waiting, 1, static_cast<int>(left));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

}  // namespace

// What the library reads a request from and writes the answer to. Past a limit it is as if the client had gone.
class BoundedServer::Connection : public httplib::Stream {
 public:
  Connection(socket_t socket, const ConnectionLimits& limits)
      : socket_(socket),
        request_deadline_(Clock::now() + limits.request_time),
        deadline_(Clock::now() + limits.whole_time),
        allowance_(limits.request_bytes) {}

  bool is_readable() const override {
    return begin_ < end_ || wait_until(socket_, POLLIN, request_deadline_);
  }
#ifdef CPPHTTPLIB_VERSION_NUM  // not in 0.11 and 0.18, but in 0.41
  bool wait_readable() const override { return is_readable(); }
  bool wait_writable() const override { return can_write(); }
  time_t duration() const override { return 0; }
#else
  bool is_writable() const override { return can_write(); }
#endif

  // The library asks for single bytes.
  ssize_t read(char* out, std::size_t size) override {
    if (begin_ == end_ && !fill()) return -1;
    const std::size_t count = std::min(size, end_ - begin_);
    std::copy_n(buffer_.data() + begin_, count, out);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* bytes, std::size_t size) override {
    for (std::size_t sent = 0; sent < size;) {
      if (!can_write()) return -1;
      const ssize_t count = ::send(socket_, bytes + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno != EINTR && errno != EAGAIN) return -1;
      sent += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    }
    return static_cast<ssize_t>(size);
  }

  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  socket_t socket() const override { return socket_; }

  // A socket that is closed before all was read resets the connection, and the answer may be lost with it: what the
  // client still sends is taken for a moment.
  void finish() {
    constexpr std::chrono::milliseconds kMoment{500};
    ::shutdown(socket_, SHUT_WR);
    request_deadline_ = std::min(deadline_, Clock::now() + kMoment);
    while (fill()) begin_ = end_;
  }

 private:
  bool can_write() const { return wait_until(socket_, POLLOUT, deadline_); }

  bool fill() {
    if (!wait_until(socket_, POLLIN, request_deadline_)) return false;
    const ssize_t count = ::recv(socket_, buffer_.data(), std::min(buffer_.size(), allowance_), 0);
    if (count <= 0) return false;
    begin_ = 0;
    end_ = static_cast<std::size_t>(count);
    allowance_ -= end_;
    return true;
  }

  socket_t socket_;
  Clock::time_point request_deadline_, deadline_;
  std::size_t allowance_;
  std::array<char, 4096> buffer_{};
  std::size_t begin_ = 0, end_ = 0;  // of what was received and not yet read
};

// A thread a connection.
class BoundedServer::Pool : public httplib::TaskQueue {
  // Nothing in old versions of the library; later whether there was room.
  using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));

 public:
  explicit Pool(BoundedServer& server) : threads_(server.limits_.connections), server_(server) {}

  Enqueued enqueue(std::function<void()> connection) override {
    {
      const std::lock_guard lock(server_.mutex_);
      ++server_.accepted_;
      server_.make_room();
    }
    return threads_.enqueue(std::move(connection));
  }

  void shutdown() override {
    {
      const std::lock_guard lock(server_.mutex_);
      server_.allowed_ = 0;
      server_.make_room();
    }
    threads_.shutdown();
  }

 private:
  httplib::ThreadPool threads_;
  BoundedServer& server_;
};

BoundedServer::BoundedServer(const ConnectionLimits& limits) : limits_(limits), allowed_(limits.connections) {
  new_task_queue = [this] { return new Pool(*this); };  // the library deletes it
  set_payload_max_length(limits.request_bytes);
}

// The oldest are given up: their threads find that nothing can be read or written any more, and close them. Those that
// wait for a thread are younger than all that have one.
void BoundedServer::make_room() {
  while (accepted_ - given_up_ > allowed_ && !open_.empty()) {
    ::shutdown(open_.begin()->second, SHUT_RDWR);
    open_.erase(open_.begin());
    ++given_up_;
  }
}

std::size_t BoundedServer::enter(socket_t socket) {
  const std::lock_guard lock(mutex_);
  const std::size_t number = next_number_++;
  open_.emplace(number, socket);
  make_room();
  return number;
}

// Closed while nobody else can take the socket for an open one.
void BoundedServer::leave(std::size_t number, socket_t socket) {
  const std::lock_guard lock(mutex_);
  if (open_.erase(number) == 0) --given_up_;
  --accepted_;
  ::close(socket);
}

bool BoundedServer::process_and_close_socket(socket_t socket) {
  const std::size_t number = enter(socket);
  Connection connection(socket, limits_);
  bool closed = false;
  // Newer versions of the library ask for the addresses of both sides too, which nobody here reads.
  const auto answer = [&](auto& server) {
    if constexpr (requires { server.process_request(connection, true, closed, nullptr); }) {
      server.process_request(connection, /*close_connection=*/true, closed, nullptr);
    } else {
      server.process_request(connection, "", 0, "", 0, /*close_connection=*/true, closed, nullptr);
    }
  };
  answer(*this);
  connection.finish();
  leave(number, socket);
  return true;
}

}  // namespace lowtide
