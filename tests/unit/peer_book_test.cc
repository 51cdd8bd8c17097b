// Who is a peer, who may join one, who has come: without a socket.
#include "engine/peer_book.h"

#include <gtest/gtest.h>

#include <thread>

#include "engine/notice_queue.h"
#include "memory/host_mover.h"

namespace tcpx {
namespace {

struct PeerBookTest : ::testing::Test {
  EngineShared shared;
  PeerBook book{shared};
  wire::Uid client{1, 2, 3}, stranger{9};

  PeerBookTest() { shared.options.max_peers = 4; }
  ~PeerBookTest() override {
    book.each_at_the_end([](const std::shared_ptr<Peer>& peer) { end(peer); });
  }

  static void end(const std::shared_ptr<Peer>& peer) {
    peer->ending().for_good(peer_error(TCPX_PEER_CLOSED, "ended by the test"));
  }
  uint64_t open_session() {
    uint64_t session = 0;
    Status status = book.open_session(client, auth::Key(), &session);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return session;
  }
  // A client that has shaken hands.
  std::shared_ptr<Peer> arrive() {
    const uint64_t session = open_session();
    std::shared_ptr<Peer> peer = book.add(true);
    peer->established({client, session, 1, 1, {}}, "client");
    book.set_peer(session, peer);
    return peer;
  }
  static wire::Hello join(const wire::Uid& uid, uint64_t session) {
    wire::Hello hello;
    hello.kind = wire::HelloKind::kJoinLane;
    hello.uid = uid;
    hello.session = session;
    return hello;
  }
  bool may_join(const wire::Uid& uid, uint64_t session) {
    auth::Key key;
    return book.key_of_joined(join(uid, session), &key).ok();
  }
};

TEST_F(PeerBookTest, PeersAreFoundByNumberUntilTheyAreForgotten) {
  std::shared_ptr<Peer> one = book.add(false), two = book.add(true), found;
  ASSERT_TRUE(book.find(two->id(), &found).ok());
  EXPECT_EQ(found, two);
  EXPECT_EQ(book.all().size(), 2u);
  end(one);
  ASSERT_TRUE(book.find(one->id(), &found).ok()) << "for its status";
  book.forget(one);
  EXPECT_EQ(book.find(one->id(), &found).code(), TCPX_NOT_FOUND);
  EXPECT_NE(book.add(false)->id(), one->id()) << "a number is given once";
}

TEST_F(PeerBookTest, LanesJoinASessionOfTheirOwnClientOnly) {
  std::shared_ptr<Peer> peer = arrive();
  EXPECT_EQ(book.find_joined(join(client, peer->generation())), peer);
  EXPECT_EQ(book.find_joined(join(stranger, peer->generation())), nullptr);
  EXPECT_TRUE(may_join(client, peer->generation()));
  EXPECT_FALSE(may_join(stranger, peer->generation()));
  end(peer);
  EXPECT_EQ(book.find_joined(join(client, peer->generation())), nullptr);
  book.forget(peer);
  EXPECT_FALSE(may_join(client, peer->generation()));
}

TEST_F(PeerBookTest, LanesMayComeBeforeThereIsAPeer) {
  const uint64_t session = open_session();
  EXPECT_TRUE(may_join(client, session));
  EXPECT_EQ(book.find_joined(join(client, session)), nullptr);
  book.welcome_over(session);
  EXPECT_FALSE(may_join(client, session)) << "nothing came of it";
  std::shared_ptr<Peer> peer = arrive();
  book.welcome_over(peer->generation());
  EXPECT_TRUE(may_join(client, peer->generation())) << "it has a peer";
}

TEST_F(PeerBookTest, NoMoreThanMaxPeersThatLive) {
  std::vector<std::shared_ptr<Peer>> peers;
  for (uint32_t i = 0; i < shared.options.max_peers; ++i) peers.push_back(arrive());
  uint64_t session = 0;
  EXPECT_EQ(book.open_session(client, auth::Key(), &session).code(), TCPX_LIMIT);
  EXPECT_EQ(session, 0u);
  end(peers[0]);
  EXPECT_TRUE(book.open_session(client, auth::Key(), &session).ok());
}

TEST_F(PeerBookTest, ArrivalsAreAcceptedInOrder) {
  std::shared_ptr<Peer> one = arrive(), two = arrive(), three = arrive();
  for (auto& peer : {one, two, three}) book.arrived(*peer);
  end(two);
  book.forget(two);
  uint64_t id = 0;
  ASSERT_TRUE(book.accept(0, &id).ok());
  EXPECT_EQ(id, one->id());
  ASSERT_TRUE(book.accept(0, &id).ok());
  EXPECT_EQ(id, three->id()) << "the second one was forgotten";
  EXPECT_EQ(book.accept(0, &id).code(), TCPX_IN_PROGRESS);
}

TEST_F(PeerBookTest, AfterItIsShutNobodyComesAndNobodyWaits) {
  Status accepted;
  std::thread waits([&] {
    uint64_t id;
    accepted = book.accept(kNever, &id);
  });
  book.shut();
  waits.join();
  EXPECT_EQ(accepted.code(), TCPX_SHUTDOWN);
  uint64_t session = 0;
  EXPECT_EQ(book.open_session(client, auth::Key(), &session).code(), TCPX_SHUTDOWN);
}

// Those that went are kept for their status, but not without end; whom we went to is kept until it
// is disconnected.
TEST_F(PeerBookTest, OldClientsThatHaveEndedAreForgotten) {
  std::shared_ptr<Peer> ours = book.add(false), lives = arrive();
  end(ours);
  std::shared_ptr<Peer> first = arrive(), found;
  end(first);
  for (int i = 0; i < 300; ++i) end(arrive());
  EXPECT_LT(book.all().size(), 300u);
  EXPECT_EQ(book.find(first->id(), &found).code(), TCPX_NOT_FOUND);
  EXPECT_FALSE(may_join(client, first->generation()));
  EXPECT_TRUE(book.find(ours->id(), &found).ok());
  EXPECT_TRUE(book.find(lives->id(), &found).ok());
}

}  // namespace
}  // namespace tcpx
