// Regions for named peers: the others are refused by the owner, whatever they know of the region.
#include <atomic>
#include <thread>

#include "fixture.h"

namespace tcpx::test {
namespace {

class GrantedRegion : public ::testing::Test {
 protected:
  static constexpr uint64_t kBytes = 100'000;

  struct Client {
    Engine engine;
    tcpx_peer owner = 0;     // as the client calls it
    tcpx_peer at_owner = 0;  // and the other way round
    Local local;
  };

  void SetUp() override {
    owner = make_engine(loopback_options());
    for (Client* client : {&one, &two}) {
      client->engine = make_engine(loopback_options());
      client->local = make_local(client->engine, kBytes, 0, 3);
      connect(*client);
    }
    memory = allocate("host", kBytes, 0);
    fill(*memory, 0, kBytes, Pattern(1), 0);
  }
  void connect(Client& client) {
    ASSERT_TRUE(succeeded(client.engine.connect(owner.connection_info(), &client.owner)));
    ASSERT_TRUE(succeeded(client.engine.peer_wait(client.owner, kLong)));
    ASSERT_TRUE(succeeded(owner.accept(&client.at_owner, kLong)));
  }
  void register_for(const std::vector<tcpx_peer>& peers) {
    ASSERT_TRUE(
        succeeded(owner.register_for(memory->address(), kBytes, kReadWrite, peers, &region)));
    remote = describe(owner, region);
  }
  Transfer prepare(Client& client, tcpx_op op) {
    Transfer transfer;
    EXPECT_TRUE(succeeded(client.engine.prepare(
        client.owner, op, {{client.local.region, 0, kBytes}}, {{&remote, 0, kBytes}}, &transfer)));
    return transfer;
  }
  tcpx_code move(Client& client, tcpx_op op) {
    Transfer transfer = prepare(client, op);
    EXPECT_TRUE(succeeded(transfer.post()));
    return transfer.wait(kLong).code();
  }
  void expect_may(Client& client) {
    EXPECT_EQ(move(client, TCPX_WRITE), TCPX_OK);
    EXPECT_EQ(move(client, TCPX_READ), TCPX_OK);
  }
  void expect_may_not(Client& client) {
    EXPECT_EQ(move(client, TCPX_WRITE), TCPX_ACCESS_DENIED);
    EXPECT_EQ(move(client, TCPX_READ), TCPX_ACCESS_DENIED);
  }

  std::unique_ptr<Memory> memory;  // outlives the engines
  Client one, two;
  Engine owner;
  tcpx_region region = 0;
  tcpx_remote_region remote{};
};

TEST_F(GrantedRegion, IsForThePeerItWasRegisteredFor) {
  register_for({one.at_owner});
  expect_may(one);
  fill(*memory, 0, kBytes, Pattern(7), 0);
  expect_may_not(two);
  EXPECT_EQ(mismatch(*memory, 0, kBytes, Pattern(7), 0), -1);
  EXPECT_GE(counter(owner, "rejected_access"), 2u);
  expect_may(one);
}

TEST_F(GrantedRegion, IsGivenLaterAndTakenBack) {
  register_for({});
  expect_may_not(one);
  expect_may_not(two);
  for (int times = 0; times < 2; ++times) {
    ASSERT_TRUE(succeeded(owner.grant(region, two.at_owner)));
    ASSERT_TRUE(succeeded(owner.grant(region, two.at_owner))) << "once more is fine";
    expect_may(two);
    expect_may_not(one);
    ASSERT_TRUE(succeeded(owner.revoke_grant(region, two.at_owner)));
    ASSERT_TRUE(succeeded(owner.revoke_grant(region, two.at_owner)));
    expect_may_not(two);
  }
}

TEST_F(GrantedRegion, KeepsItsPeersWhileItIsSuspended) {
  register_for({one.at_owner});
  ASSERT_TRUE(succeeded(owner.suspend(region)));
  EXPECT_EQ(move(one, TCPX_WRITE), TCPX_STALE_REGION);
  ASSERT_TRUE(succeeded(owner.grant(region, two.at_owner)));
  ASSERT_TRUE(succeeded(owner.revoke_grant(region, one.at_owner)));
  ASSERT_TRUE(succeeded(owner.resume(region)));
  expect_may(two);
  expect_may_not(one);
  ASSERT_TRUE(succeeded(owner.deregister(region)));
  EXPECT_EQ(move(two, TCPX_READ), TCPX_STALE_REGION);
}

TEST_F(GrantedRegion, APeerThatComesAgainIsAnother) {
  register_for({one.at_owner});
  expect_may(one);
  tcpx_peer before = one.at_owner;
  ASSERT_TRUE(succeeded(one.engine.disconnect(one.owner)));
  connect(one);
  EXPECT_NE(one.at_owner, before);
  expect_may_not(one);
  ASSERT_TRUE(succeeded(owner.revoke_grant(region, before))) << "also when it is gone";
  ASSERT_TRUE(succeeded(owner.grant(region, one.at_owner)));
  expect_may(one);
}

TEST_F(GrantedRegion, TakingItBackIsAFence) {
  register_for({one.at_owner, two.at_owner});
  std::atomic<bool> stop{false};
  std::atomic<int> refused{0}, served{0}, others{0}, wrong{0};
  auto traffic = [&](Client& client, std::atomic<int>* ok) {
    for (tcpx_op op = TCPX_WRITE; !stop; op = op == TCPX_WRITE ? TCPX_READ : TCPX_WRITE) {
      tcpx_code code = move(client, op);
      if (code == TCPX_OK)
        ++*ok;
      else if (code == TCPX_ACCESS_DENIED || code == TCPX_STALE_REGION)
        ++refused;
      else
        ++wrong;
    }
  };
  std::thread first(traffic, std::ref(one), &served);
  for (uint64_t round = 0; round < 20; ++round) {
    int before = served;
    EXPECT_TRUE(eventually([&] { return served > before; }));
    ASSERT_TRUE(succeeded(owner.revoke_grant(region, one.at_owner)));
    Pattern ours(90, round);
    fill(*memory, 0, kBytes, ours, 0);
    std::this_thread::sleep_for(Ms{2});
    EXPECT_EQ(mismatch(*memory, 0, kBytes, ours, 0), -1) << "a byte landed after the fence";
    ASSERT_TRUE(succeeded(owner.grant(region, one.at_owner)));
  }
  ASSERT_TRUE(succeeded(owner.revoke_grant(region, one.at_owner)));
  std::thread second(traffic, std::ref(two), &others);
  EXPECT_TRUE(eventually([&] { return others > 2; })) << "the other peer is not concerned";
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(GrantedRegion, MistakesAreNamed) {
  EXPECT_EQ(owner.register_for(memory->address(), kBytes, kReadWrite, {999}, &region).code(),
            TCPX_NOT_FOUND);
  EXPECT_EQ(
      tcpx_register_for(owner.raw(), memory->address(), kBytes, kReadWrite, nullptr, 1, &region),
      TCPX_INVALID_ARGUMENT);
  register_for({});
  EXPECT_EQ(owner.grant(region, 999).code(), TCPX_NOT_FOUND);
  EXPECT_EQ(owner.grant(region + 1, one.at_owner).code(), TCPX_NOT_FOUND);
  EXPECT_TRUE(succeeded(owner.revoke_grant(region, 999))) << "it has none";
  tcpx_region open = 0;
  ASSERT_TRUE(succeeded(owner.register_memory(memory->address(), kBytes, kReadWrite, &open)));
  Result granted = owner.grant(open, one.at_owner);
  EXPECT_EQ(granted.code(), TCPX_UNSUPPORTED);
  EXPECT_NE(granted.text().find("tcpx_register_for"), std::string::npos) << granted.text();
}

}  // namespace
}  // namespace tcpx::test
