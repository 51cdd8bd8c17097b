// Handles of plugins that trust them: what an honest listen() makes passes, anything a plugin would
// follow, or overrun its arrays with, does not.
#include "path/net/handle_check.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>

namespace tcpx::net {
namespace {

struct Layout {
  const char* plugin;
  std::vector<size_t> addresses;
  size_t sockets, threads;  // 0: none
  int32_t most_sockets;
  size_t pointers, pointers_end;
};
const Layout kLayouts[] = {
    {"GPUDirectTCPX_v7", {0, 48}, 36, 40, 8, 80, 88},
    {"Socket", {0}, 40, 44, 64, 48, 72},
    {"TCPX_EMU", {16, 44}, 72, 0, 8, 80, 96},
};

void put(wire::NetHandle* handle, size_t offset, int32_t value) {
  memcpy(handle->data() + offset, &value, sizeof value);
}
wire::NetHandle honest(const Layout& layout) {
  wire::NetHandle handle{};
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_port = 4711;
  for (size_t at : layout.addresses) memcpy(handle.data() + at, &here, sizeof here);
  put(&handle, layout.sockets, 4);
  if (layout.threads != 0) put(&handle, layout.threads, 1);
  return handle;
}

TEST(HandleCheck, HonestHandlesPass) {
  for (const Layout& layout : kLayouts) {
    EXPECT_TRUE(knows_handles_of(layout.plugin));
    EXPECT_TRUE(check_handle(layout.plugin, honest(layout)).ok())
        << check_handle(layout.plugin, honest(layout)).text();
  }
}

TEST(HandleCheck, EveryByteOfAPointerIsZero) {
  for (const Layout& layout : kLayouts)
    for (size_t at = layout.pointers; at < layout.pointers_end; ++at) {
      wire::NetHandle handle = honest(layout);
      handle[at] = 1;
      Status status = check_handle(layout.plugin, handle);
      EXPECT_EQ(status.code(), TCPX_PROTOCOL_ERROR) << layout.plugin << " byte " << at;
      EXPECT_NE(status.text().find("pointer"), std::string::npos) << status.text();
    }
}

TEST(HandleCheck, CountsAreBounded) {
  for (const Layout& layout : kLayouts) {
    for (int32_t bad : {layout.most_sockets + 1, -1, INT32_MAX, INT32_MIN}) {
      wire::NetHandle handle = honest(layout);
      put(&handle, layout.sockets, bad);
      EXPECT_FALSE(check_handle(layout.plugin, handle).ok()) << layout.plugin << " " << bad;
      if (layout.threads == 0) continue;
      handle = honest(layout);
      put(&handle, layout.threads, bad == layout.most_sockets + 1 ? 17 : bad);
      EXPECT_FALSE(check_handle(layout.plugin, handle).ok()) << layout.plugin << " " << bad;
    }
    wire::NetHandle handle = honest(layout);
    put(&handle, layout.sockets, layout.most_sockets);
    EXPECT_TRUE(check_handle(layout.plugin, handle).ok());
  }
}

TEST(HandleCheck, AddressesAreOfTheInternet) {
  for (const Layout& layout : kLayouts)
    for (size_t at : layout.addresses) {
      wire::NetHandle handle = honest(layout);
      handle[at] = AF_UNIX;
      EXPECT_FALSE(check_handle(layout.plugin, handle).ok()) << layout.plugin;
      handle[at] = AF_INET6;
      EXPECT_TRUE(check_handle(layout.plugin, handle).ok()) << layout.plugin;
    }
}

TEST(HandleCheck, HandlesOfOthersArePassedOn) {
  wire::NetHandle handle;
  handle.fill(0xff);
  EXPECT_FALSE(knows_handles_of("AWS Libfabric"));
  EXPECT_TRUE(check_handle("AWS Libfabric", handle).ok());
}

}  // namespace
}  // namespace tcpx::net
