#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lowtide {

// A client that sends whatever it likes.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  ~RawClient() { ::close(socket_); }

  // False where the server has closed the connection.
  bool send(std::string_view text) const {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }

  // All that comes until the server closes, or for some seconds, far more than it should take.
  std::string receive(bool* closed = nullptr) const {
    std::string all;
    std::array<char, 65536> buffer{};
    pollfd waiting{socket_, POLLIN, 0};
    while (::poll(&waiting, 1, 20'000) > 0) {
      const ssize_t count = ::recv(socket_, buffer.data(), buffer.size(), 0);
      if (closed != nullptr) *closed = count <= 0;
      if (count <= 0) break;
      all.append(buffer.data(), static_cast<std::size_t>(count));
    }
    return all;
  }

  bool is_closed_by_server() const {
    bool closed = false;
    receive(&closed);
    return closed;
  }

 private:
  int socket_;
};

}  // namespace lowtide
