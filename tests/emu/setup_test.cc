// listen, connect, accept: nothing blocks, and nothing is left behind when the other end never
// comes.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "plugin.h"
#include "support/proc.h"

namespace tcpx::test {
namespace {

struct Listening {
  explicit Listening(int device = 0) { rc = plugin().listen(device, handle, &comm); }
  ~Listening() { plugin().close_listen(comm); }
  alignas(8) char handle[nccl::kHandleBytes];
  void* comm = nullptr;
  int rc = 0;
};

int accept_until(void* listener, void** comm, Ms limit = kLong) {
  int rc = 0;
  bool ended = eventually(
      [&] {
        rc = plugin().accept(listener, comm, nullptr);
        return rc != 0 || *comm != nullptr;
      },
      limit, Ms{1});
  return ended ? rc : -1;
}

TEST(Setup, FirstPollsGiveNothing) {
  Environment env({{"NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS", "50000"}});
  Stopwatch watch;
  Pair pair;
  EXPECT_GE(watch.elapsed(), Ms{50});
}

TEST(Setup, EverySocketMayTakeItsTime) {
  Environment env({{"NCCL_NSOCKS_PERTHREAD", "4"}, {"TCPX_EMU_SOCKET_DELAY_US", "10000"}});
  Stopwatch watch;
  Pair pair;
  EXPECT_GE(watch.elapsed(), Ms{50});  // five sockets
}

TEST(Setup, TheListenerDecidesHowManySockets) {
  Environment env({{"NCCL_NSOCKS_PERTHREAD", "2"}, {"NCCL_SOCKET_NTHREADS", "3"}});
  size_t before = connected_sockets().size();
  Pair pair;
  EXPECT_EQ(connected_sockets().size() - before, 2u * 7);  // both ends, with control
}

TEST(Setup, ProductOfSocketsIsAtMostEight) {
  Environment env({{"NCCL_NSOCKS_PERTHREAD", "8"}, {"NCCL_SOCKET_NTHREADS", "4"}});
  size_t before = connected_sockets().size();
  Pair pair;
  EXPECT_EQ(connected_sockets().size() - before, 2u * 9);
}

TEST(Setup, NullDescriptionIsTolerated) {
  Environment env;
  Listening listening;
  void *send = nullptr, *receive = nullptr;
  EXPECT_TRUE(eventually([&] {
    int send_rc = send ? 0 : plugin().connect(0, listening.handle, &send, nullptr);
    int receive_rc = receive ? 0 : plugin().accept(listening.comm, &receive, nullptr);
    EXPECT_EQ(send_rc, 0);
    EXPECT_EQ(receive_rc, 0);
    return (send != nullptr && receive != nullptr) || send_rc != 0 || receive_rc != 0;
  }));
  Pages pages(4096);
  {
    Registered from(send, pages), to(receive, pages);
    void *data = pages.data(), *region = to.get(), *request = nullptr, *sent = nullptr;
    int size = 4096, tag = 0;
    ASSERT_EQ(plugin().irecv(receive, 1, &data, &size, &tag, &region, &request), 0);
    ASSERT_EQ(plugin().isend(send, data, 4096, 0, from.get(), &sent), 0);
    finish_both(sent, request);
    EXPECT_EQ(plugin().irecv_consumed(receive, 1, request), 0);
  }
  EXPECT_EQ(plugin().close_send(send), 0);
  EXPECT_EQ(plugin().close_recv(receive), 0);
}

TEST(Setup, AcceptGivesUpWhenNobodyComes) {
  Environment env({{"TCPX_EMU_SETUP_TIMEOUT_MS", "50"}});
  Holdings before;
  {
    Listening listening;
    void* comm = nullptr;
    EXPECT_EQ(accept_until(listening.comm, &comm), nccl::kInternalError);
    EXPECT_TRUE(PluginLog::has("nobody connected in time"));
  }
  EXPECT_TRUE(before.restored()) << before.now();
}

TEST(Setup, CloseListenWakesAnAccept) {
  Environment env;
  Holdings before;
  Stopwatch watch;
  {
    Listening listening;
    void* comm = nullptr;
    EXPECT_EQ(plugin().accept(listening.comm, &comm, nullptr), 0);
    EXPECT_EQ(comm, nullptr);
  }
  EXPECT_TRUE(before.restored()) << before.now();
  EXPECT_LT(watch.elapsed(), patience(5000));
}

TEST(Setup, ConnectGivesUpWhenNobodyAccepts) {
  Environment env({{"TCPX_EMU_SETUP_TIMEOUT_MS", "50"}});
  Listening listening;
  void* comm = nullptr;
  int rc = 0;
  EXPECT_TRUE(eventually(
      [&] { return (rc = plugin().connect(0, listening.handle, &comm, nullptr)) != 0; }));
  EXPECT_EQ(rc, nccl::kInternalError);
}

TEST(Setup, AbandonedConnectIsEnded) {
  Environment env({{"TCPX_EMU_SETUP_TIMEOUT_MS", "20"}});
  Holdings before;
  {
    Listening listening;
    void* comm = nullptr;
    EXPECT_EQ(plugin().connect(0, listening.handle, &comm, nullptr), 0);  // and never again
  }
  std::this_thread::sleep_for(patience(100));
  Pair another;
  another.close();
  EXPECT_TRUE(before.restored()) << before.now();
}

TEST(Setup, StrangersDoNotDisturb) {
  Environment env;
  Listening listening;
  // The handle begins with magic and nonce, then the data address, then the control address.
  sockaddr_in control;
  std::memcpy(&control, listening.handle + 16 + 28, sizeof control);
  int stranger = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(::connect(stranger, reinterpret_cast<sockaddr*>(&control), sizeof control), 0);
  ASSERT_EQ(::send(stranger, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, 0), 27);
  void *send = nullptr, *receive = nullptr;
  EXPECT_TRUE(eventually([&] {
    int send_rc = send ? 0 : plugin().connect(0, listening.handle, &send, nullptr);
    int receive_rc = receive ? 0 : plugin().accept(listening.comm, &receive, nullptr);
    EXPECT_EQ(send_rc, 0);
    EXPECT_EQ(receive_rc, 0);
    return (send != nullptr && receive != nullptr) || send_rc != 0 || receive_rc != 0;
  }));
  ::close(stranger);
  EXPECT_EQ(plugin().close_send(send), 0);
  EXPECT_EQ(plugin().close_recv(receive), 0);
}

TEST(Setup, ForeignHandleIsRefused) {
  Environment env;
  alignas(8) char handle[nccl::kHandleBytes] = "somebody else's";
  void* comm = nullptr;
  EXPECT_EQ(plugin().connect(0, handle, &comm, nullptr), nccl::kInternalError);
}

TEST(Setup, RecvSyncMustAgree) {
  Environment listener_side({{"NCCL_GPUDIRECTTCPX_RECV_SYNC", "1"}});
  Listening listening;
  Environment connector_side({{"NCCL_GPUDIRECTTCPX_RECV_SYNC", "0"}});
  void *send = nullptr, *receive = nullptr;
  int send_rc = 0, receive_rc = 0;
  EXPECT_TRUE(eventually([&] {
    if (send_rc == 0) send_rc = plugin().connect(0, listening.handle, &send, nullptr);
    if (receive_rc == 0) receive_rc = plugin().accept(listening.comm, &receive, nullptr);
    return send_rc != 0 && receive_rc != 0;
  }));
  EXPECT_EQ(send_rc, nccl::kInternalError);
  EXPECT_EQ(receive_rc, nccl::kInternalError);
  EXPECT_TRUE(PluginLog::has("RECV_SYNC is the same on both ends"));
}

}  // namespace
}  // namespace tcpx::test
