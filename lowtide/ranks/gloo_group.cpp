#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO  // as libtorch was built: its headers show nothing of Gloo without
#endif
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "lowtide/ranks/c10d.h"

namespace lowtide {
namespace {

using c10d::ProcessGroupGloo;

// This machine's address as rank 0's sees it: that of the interface on the way there. A machine may have several, and its
// name may stand for one that nobody else can reach. No packet is sent.
std::string own_address(const std::string& other) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(other.c_str(), "9", &hints, &found) != 0) return "";
  std::string address;
  const int connection = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage mine{};
  socklen_t length = sizeof(mine);
  std::array<char, NI_MAXHOST> text{};
  if (connection >= 0 && connect(connection, found->ai_addr, found->ai_addrlen) == 0 &&
      getsockname(connection, reinterpret_cast<sockaddr*>(&mine), &length) == 0 &&
      getnameinfo(reinterpret_cast<sockaddr*>(&mine), length, text.data(), text.size(), nullptr, 0,
                  NI_NUMERICHOST) == 0) {
    address = text.data();
  }
  if (connection >= 0) close(connection);
  freeaddrinfo(found);
  return address;
}

std::shared_ptr<::gloo::transport::Device> device_for(const RankEnvironment& environment) {
  // PyTorch's own variable.
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"))
    return ProcessGroupGloo::createDeviceForInterface(interface);
  const std::string address = environment.is_local() ? "127.0.0.1" : own_address(environment.address);
  return address.empty() ? ProcessGroupGloo::createDefaultDevice()
                         : ProcessGroupGloo::createDeviceForHostname(address);
}

}  // namespace

c10::intrusive_ptr<C10dGroup> make_gloo_group(const C10dStore& store, const RankEnvironment& environment) {
  const auto options = ProcessGroupGloo::Options::create();
  options->devices.push_back(device_for(environment));
  return c10::make_intrusive<ProcessGroupGloo>(store, environment.rank, environment.size, options);
}

}  // namespace lowtide
