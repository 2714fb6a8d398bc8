#pragma once

#include <httplib.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>

namespace lowtide {

struct ConnectionLimits {
  std::size_t connections = 32;
  std::size_t request_bytes = std::size_t{1} << 16;  // read from one connection, a body included
  std::chrono::milliseconds request_time{5'000};     // until the request is whole
  std::chrono::milliseconds whole_time{60'000};      // until the answer is taken
};

// An HTTP server that no client can hold up. The library waits for every byte anew and keeps all that is sent: a few
// clients that drip bytes take all of its threads, one that sends without end all of its memory. Here a connection is
// good for one request, of so many bytes and so much time; and where all are taken, the oldest gives way to the newest.
class BoundedServer : public httplib::Server {
 public:
  explicit BoundedServer(const ConnectionLimits& limits = {});

 private:
  class Pool;
  class Connection;

  bool process_and_close_socket(socket_t socket) override;
  std::size_t enter(socket_t socket);
  void leave(std::size_t number, socket_t socket);
  void make_room();  // with the mutex held

  const ConnectionLimits limits_;
  std::mutex mutex_;
  std::size_t allowed_;       // connections: none when it stops
  std::size_t accepted_ = 0;  // and not closed: open, given up or waiting for a thread
  std::size_t given_up_ = 0;  // and not closed
  std::size_t next_number_ = 0;
  std::map<std::size_t, socket_t> open_;  // by number, and so by age
};

}  // namespace lowtide
