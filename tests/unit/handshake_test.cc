// The client's side of a handshake against a server that does only what the test tells it.
#include "session/handshake.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "session/sockets.h"

namespace tcpx {
namespace {

// A crowded engine resets whoever it has no place for, maybe before the client has looked at its
// connection: to come again is right then, and not where nobody listens.
TEST(Handshake, AConnectionThatWasTakenBackIsToBeTriedAgain) {
  wire::Address address{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}, 0, 0}, bound;
  Fd listener, client;
  ASSERT_TRUE(open_listener(address, {}, &listener, &bound).ok());
  ASSERT_TRUE(start_connect(bound, nullptr, &client).ok());
  pollfd waiter{listener.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&waiter, 1, 10'000), 1);
  {
    Fd server(::accept(listener.get(), nullptr, nullptr));
    linger resets{1, 0};
    ::setsockopt(server.get(), SOL_SOCKET, SO_LINGER, &resets, sizeof resets);
  }
  waiter = {client.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&waiter, 1, 10'000), 1) << "the reset is here";
  Handshake reset(std::move(client), "there", wire::Hello(), auth::Key(), kNever);
  EXPECT_EQ(reset.step(), Handshake::Progress::kFailed);
  EXPECT_TRUE(reset.turned_away()) << reset.status().text();
  EXPECT_EQ(reset.status().code(), TCPX_CONNECT_FAILED);

  listener.reset();
  ASSERT_TRUE(start_connect(bound, nullptr, &client).ok());
  waiter = {client.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&waiter, 1, 10'000), 1);
  Handshake refused(std::move(client), "there", wire::Hello(), auth::Key(), kNever);
  EXPECT_EQ(refused.step(), Handshake::Progress::kFailed);
  EXPECT_FALSE(refused.turned_away());
}

}  // namespace
}  // namespace tcpx
