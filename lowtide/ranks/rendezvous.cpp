#include "lowtide/ranks/rendezvous.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "lowtide/base/error.h"
#include "lowtide/io/file.h"

namespace lowtide {
namespace {

constexpr std::chrono::milliseconds kPoll{100};

void expect_address(const RankEnvironment& environment) {
  addrinfo* found = nullptr;
  const int error = getaddrinfo(environment.address.c_str(), nullptr, nullptr, &found);
  if (error == 0) return freeaddrinfo(found);
  throw UserError(
      fmt::format("rank {} knows no address of '{}', where rank 0 is said to be: {}; set MASTER_ADDR to a "
                  "name or address of "
                  "rank 0's machine",
                  environment.rank, environment.address, gai_strerror(error)));
}

void expect_free(int port) {
  const FileDescriptor server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<std::uint16_t>(port));
  setsockopt(server.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(server.number(), reinterpret_cast<sockaddr*>(&any), sizeof(any)) != 0 && errno == EADDRINUSE)
    throw UserError(fmt::format(
        "rank 0 cannot wait for the others at port {}, which another process has; set MASTER_PORT, on "
        "all ranks, to one that is free",
        port));
}

bool somebody_listens(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return false;
  bool listens = false;
  for (const addrinfo* address = found; address != nullptr && !listens; address = address->ai_next) {
    const FileDescriptor client(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    listens = connect(client.number(), address->ai_addr, address->ai_addrlen) == 0;
  }
  freeaddrinfo(found);
  return listens;
}

void wait_for_first(const RankEnvironment& environment) {
  const auto end = std::chrono::steady_clock::now() + environment.patience;
  while (!somebody_listens(environment.address, environment.port)) {
    if (std::chrono::steady_clock::now() >= end)
      throw UserError(fmt::format(
          "rank {} finds no rank 0 at {}:{} for {} s; is it started, and are these MASTER_ADDR and "
          "MASTER_PORT its own?",
          environment.rank, environment.address, environment.port, environment.patience.count()));
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace

std::string numeric_address(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return host;
  std::array<char, NI_MAXHOST> text{};
  const int error =
      getnameinfo(found->ai_addr, found->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  freeaddrinfo(found);
  return error == 0 ? text.data() : host;
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

void check_rendezvous(const RankEnvironment& environment) {
  if (environment.is_local()) return;
  expect_address(environment);
  if (environment.rank == 0 && environment.meeting.empty()) {
    expect_free(environment.port);
  } else {
    wait_for_first(environment);
  }
}

}  // namespace lowtide
