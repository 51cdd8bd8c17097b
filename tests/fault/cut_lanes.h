// Lanes that break, as by a firewall or a reset.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <map>
#include <vector>

#include "../support/proc.h"
#include "raw_socket.h"

namespace tcpx::test {

// Breaks `count` lanes of an engine of this process. Lanes go to one port of their peer; a net
// plugin's sockets, which go elsewhere, are left alone.
inline void cut_lanes(size_t count) {
  std::map<uint16_t, std::vector<int>> by_port;
  for (int fd : connected_sockets()) {
    sockaddr_storage remote{};
    socklen_t length = sizeof remote;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&remote), &length) == 0)
      by_port[port_of(remote)].push_back(fd);
  }
  std::vector<int> lanes;
  for (auto& [port, sockets] : by_port)
    if (sockets.size() > lanes.size()) lanes = sockets;
  ASSERT_GE(lanes.size(), count);
  for (size_t i = 0; i < count; ++i) ::shutdown(lanes[i], SHUT_RDWR);
}

}  // namespace tcpx::test
