// Bad input gets a clear error and nothing is lost; every state of a transfer is told as it is.
#include "fixture.h"

namespace tcpx::test {
namespace {

class Misuse : public Conformance {
 protected:
  static constexpr uint64_t kLarge = smaller_if_sanitized<uint64_t>(32 << 20, 8 << 20);
  uint64_t transfers_done() {
    return counters(engine).at("engine").at("transfers_done").get<uint64_t>();
  }
};

TEST_P(Misuse, PrepareWithBadArgumentsNamesTheMistakeAndHarmsNothing) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(4096, 1);
  PeerRegion& remote = peer.memory(4096, 2);
  tcpx_local_piece mine{local.id, 0, 10};
  tcpx_remote_piece theirs{&remote.remote, 0, 10};
  tcpx_transfer* out = nullptr;
  auto* raw = engine.raw();
  auto expect = [&](tcpx_code code, tcpx_code wanted, const char* what) {
    EXPECT_EQ(code, wanted) << what;
    EXPECT_STRNE(tcpx_last_error(), "") << what;
    EXPECT_EQ(tcpx_last_blast(), TCPX_BLAST_NOTHING) << what;
    EXPECT_EQ(out, nullptr) << what;
  };
  expect(tcpx_prepare(raw, peer.id, TCPX_WRITE, nullptr, &theirs, 1, &out), TCPX_INVALID_ARGUMENT,
         "no local list");
  expect(tcpx_prepare(raw, peer.id, TCPX_WRITE, &mine, nullptr, 1, &out), TCPX_INVALID_ARGUMENT,
         "no remote list");
  expect(tcpx_prepare(raw, peer.id, TCPX_WRITE, &mine, &theirs, 1, nullptr), TCPX_INVALID_ARGUMENT,
         "nowhere to put it");
  expect(tcpx_prepare(raw, peer.id, static_cast<tcpx_op>(7), &mine, &theirs, 1, &out),
         TCPX_INVALID_ARGUMENT, "unknown operation");
  expect(tcpx_prepare(raw, 0, TCPX_WRITE, &mine, &theirs, 1, &out), TCPX_NOT_FOUND, "no peer");
  expect(tcpx_prepare(raw, peer.id + 12345, TCPX_WRITE, &mine, &theirs, 1, &out), TCPX_NOT_FOUND,
         "unknown peer");
  tcpx_local_piece unknown{local.id ^ 0x1234500000000, 0, 10};
  expect(tcpx_prepare(raw, peer.id, TCPX_WRITE, &unknown, &theirs, 1, &out), TCPX_NOT_FOUND,
         "unknown local region");
  tcpx_local_piece other_length{local.id, 0, 11};
  expect(tcpx_prepare(raw, peer.id, TCPX_WRITE, &other_length, &theirs, 1, &out),
         TCPX_INVALID_ARGUMENT, "lengths differ");
  tcpx_remote_piece no_region{nullptr, 0, 10};
  expect(tcpx_prepare(raw, peer.id, TCPX_WRITE, &mine, &no_region, 1, &out), TCPX_INVALID_ARGUMENT,
         "no remote region");
  Transfer transfer;
  EXPECT_EQ(engine.prepare(peer.id, TCPX_WRITE, {mine}, {}, &transfer).code(),
            TCPX_INVALID_ARGUMENT)
      << "lists of different length";
  move(peer, TCPX_WRITE, local, remote, {{0, 0, 4096}});
  peer.expect_intact(remote);
}

TEST_P(Misuse, PollAndWaitBeforePostSaySo) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(4096, 3);
  PeerRegion& remote = peer.memory(4096, 4);
  Transfer transfer = prepare(peer, TCPX_WRITE, local, remote, {{0, 0, 4096}});
  EXPECT_EQ(transfer.poll().code(), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(transfer.wait(Ms{10}).code(), TCPX_INVALID_ARGUMENT);
  EXPECT_TRUE(succeeded(transfer.cancel(Ms{1000}))) << "nothing of it can move: fenced";
  ASSERT_TRUE(succeeded(transfer.post()));
  EXPECT_TRUE(succeeded(transfer.wait(kLong)));
}

TEST_P(Misuse, PostInProgressIsBusyAndAWaitThatRunsOutIsInProgress) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(kLarge, 5);
  PeerRegion& remote = peer.memory(kLarge, 6);
  for (tcpx_op op : kBothOps) {
    SCOPED_TRACE(op_name(op));
    Transfer transfer = prepare(peer, op, local, remote, {{0, 0, kLarge}});
    // The transfer may end before any of these calls; a post is then a new one.
    bool refused = false;
    for (int attempt = 0; attempt < 50 && !refused; ++attempt) {
      uint64_t done = transfers_done();
      ASSERT_TRUE(succeeded(transfer.post()));
      Result again = transfer.post();
      if (again) {
        EXPECT_GT(transfers_done(), done) << "posted again while in progress";
      }
      Result waited = transfer.wait(Ms{0});
      Result notified = transfer.post_notify("no");
      EXPECT_TRUE(again || again.code() == TCPX_BUSY) << again.text();
      EXPECT_TRUE(waited || waited.in_progress()) << waited.text();
      EXPECT_TRUE(notified || notified.code() == TCPX_BUSY) << notified.text();
      refused = !again && !waited && !notified;
      ASSERT_TRUE(succeeded(transfer.wait(kLong)));
      if (notified) {
        EXPECT_TRUE(peer.program.call("next 2000").ok()) << "a new post, so it was notified";
      }
    }
    EXPECT_TRUE(refused) << "the test needs a longer transfer";
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(succeeded(transfer.poll())) << "idempotent";
    EXPECT_TRUE(succeeded(transfer.wait(Ms{0})));
    EXPECT_TRUE(succeeded(transfer.cancel(Ms{0}))) << "of a transfer that has ended";
    EXPECT_TRUE(succeeded(transfer.poll())) << "done stays done";
    apply(op, local, remote, {{0, 0, kLarge}});
    EXPECT_EQ(transfer.error(), "");
  }
  EXPECT_EQ(peer.program.call("next 20").code, TCPX_IN_PROGRESS) << "the refused post sent nothing";
  expect_intact(local);
  peer.expect_intact(remote);
}

TEST_P(Misuse, CancelEndsTheTransferOnceAndItMayBePostedAgain) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(kLarge, 7);
  PeerRegion& remote = peer.memory(kLarge, 8);
  for (tcpx_op op : kBothOps) {
    SCOPED_TRACE(op_name(op));
    Transfer transfer = prepare(peer, op, local, remote, {{0, 0, kLarge}});
    // The transfer may win the race against its cancel; "done" then has to be true.
    for (int attempt = 0; attempt < 50; ++attempt) {
      ASSERT_TRUE(succeeded(transfer.post_notify("cancelled")));
      ASSERT_TRUE(succeeded(transfer.cancel(kLong)));
      if (transfer.poll().code() != TCPX_OK) break;
      EXPECT_EQ(transfer.receipt().result, TCPX_OK);
      EXPECT_TRUE(peer.program.call("next 2000").ok()) << "done, so it was notified";
      apply(op, local, remote, {{0, 0, kLarge}});
    }
    EXPECT_EQ(transfer.poll().code(), TCPX_CANCELLED);
    EXPECT_EQ(transfer.wait(Ms{0}).code(), TCPX_CANCELLED);
    EXPECT_EQ(transfer.receipt().result, TCPX_CANCELLED);
    // A cancel may come when all data is there and only the confirmation is on its way. Then, and
    // only then, the notification was sent.
    if (peer.program.call("next 20").ok()) {
      apply(op, local, remote, {{0, 0, kLarge}});
      expect_intact(local);
      peer.expect_intact(remote);
    }
    ASSERT_TRUE(succeeded(transfer.post()));
    ASSERT_TRUE(succeeded(transfer.wait(kLong)));
    apply(op, local, remote, {{0, 0, kLarge}});
  }
  expect_intact(local);
  peer.expect_intact(remote);
}

TEST_P(Misuse, AMovedHandleMayBeReleasedAgain) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(4096, 9);
  PeerRegion& remote = peer.memory(4096, 10);
  Transfer first = prepare(peer, TCPX_WRITE, local, remote, {{0, 0, 4096}});
  Transfer second = std::move(first);
  EXPECT_FALSE(first);
  first.release();
  first.release();
  EXPECT_EQ(first.post().code(), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(first.poll().code(), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(first.wait(Ms{0}).code(), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(first.cancel(Ms{0}).code(), TCPX_INVALID_ARGUMENT);
  ASSERT_TRUE(succeeded(second.post()));
  EXPECT_TRUE(succeeded(second.wait(kLong)));
  second.release();
  second.release();
}

// In C a handle is a number: released twice, or used afterwards, it harms nobody.
TEST_P(Misuse, AReleasedHandleIsKnownAsOne) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(4096, 1);
  PeerRegion& remote = peer.memory(4096, 2);
  tcpx_local_piece mine{local.id, 0, 4096};
  tcpx_remote_piece theirs{&remote.remote, 0, 4096};
  auto prepare = [&] {
    tcpx_transfer* out = nullptr;
    EXPECT_EQ(tcpx_prepare(engine.raw(), peer.id, TCPX_WRITE, &mine, &theirs, 1, &out), TCPX_OK);
    return out;
  };
  tcpx_transfer* first = prepare();
  EXPECT_EQ(tcpx_post(first, nullptr), TCPX_OK);
  EXPECT_EQ(tcpx_wait(first, -1), TCPX_OK);
  tcpx_release(first);
  tcpx_transfer* second = prepare();  // where the first one was
  EXPECT_NE(first, second);
  tcpx_release(first);
  tcpx_receipt receipt{};
  size_t length = 0;
  for (tcpx_code code :
       {tcpx_post(first, nullptr), tcpx_poll(first), tcpx_wait(first, 0), tcpx_cancel(first, 0),
        tcpx_receipt_get(first, &receipt), tcpx_receipt_json(first, nullptr, &length)})
    EXPECT_EQ(code, TCPX_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tcpx_last_error()).find("released"), std::string::npos);
  EXPECT_STREQ(tcpx_transfer_error(first), "");
  EXPECT_EQ(tcpx_post(second, nullptr), TCPX_OK);
  EXPECT_EQ(tcpx_wait(second, -1), TCPX_OK);
  tcpx_release(second);
}

TEST_P(Misuse, ReleaseInProgressLeavesTheConnectionWorking) {
  Remote& peer = connected_peer();
  const uint64_t each = kLarge / 4;
  LocalRegion& local = local_memory(kLarge, 11);
  PeerRegion& remote = peer.memory(kLarge, 12);
  for (uint64_t i = 0; i < 4; ++i) {
    Transfer transfer = prepare(peer, kBothOps[i % 2], local, remote, {{i * each, i * each, each}});
    ASSERT_TRUE(succeeded(transfer.post()));
  }
  LocalRegion& fresh = local_memory(1 << 20, 13);
  PeerRegion& place = peer.memory(1 << 20, 14);
  EXPECT_EQ(move(peer, TCPX_WRITE, fresh, place, {{0, 0, 1 << 19}}).lanes_lost, 0u);
  move(peer, TCPX_READ, fresh, place, {{1 << 19, 1 << 19, 1 << 19}});
  expect_intact(fresh);
  peer.expect_intact(place);
  EXPECT_EQ(local.memory->damage(), "");
}

// Another thread may have asked before.
TEST_P(Misuse, ATextThatWasGivenStaysWhenAnotherIs) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(kLarge, 15);
  PeerRegion& remote = peer.memory(kLarge, 16);
  std::vector<Transfer> transfers;
  for (int i = 0; i < 16; ++i) {
    transfers.push_back(prepare(peer, TCPX_WRITE, local, remote, {{0, 0, kLarge}}));
    ASSERT_TRUE(succeeded(transfers.back().post()));
  }
  const char* before = tcpx_transfer_error(transfers.back().raw());
  EXPECT_STREQ(before, "");
  ASSERT_TRUE(succeeded(transfers.back().cancel(kLong)));
  const char* after = tcpx_transfer_error(transfers.back().raw());
  EXPECT_STRNE(after, "");
  EXPECT_STREQ(before, "") << "the next text was written over it";
  EXPECT_EQ(tcpx_transfer_error(transfers.back().raw()), after) << "the same text, the same bytes";
  for (Transfer& transfer : transfers) (void)transfer.cancel(kLong);
}

TEST_P(Misuse, DisconnectEndsTransfersAndForgetsThePeer) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(kLarge, 13);
  PeerRegion& remote = peer.memory(kLarge, 14);
  tcpx_peer_info first{}, second{};
  ASSERT_TRUE(succeeded(engine.peer_info(peer.id, &first)));
  std::string at_peer = peer.program("accept 5000");
  // More than can be done before the disconnect, however long this thread has to wait for a core.
  std::vector<Transfer> transfers;
  for (int i = 0; i < 16; ++i) {
    transfers.push_back(prepare(peer, TCPX_WRITE, local, remote, {{0, 0, kLarge}}));
    ASSERT_TRUE(succeeded(transfers.back().post()));
  }
  ASSERT_TRUE(succeeded(engine.disconnect(peer.id)));
  int cancelled = 0;
  for (Transfer& transfer : transfers) {
    tcpx_code code = transfer.poll().code();
    EXPECT_TRUE(code == TCPX_CANCELLED || code == TCPX_OK) << tcpx_code_name(code);
    cancelled += code == TCPX_CANCELLED;
    EXPECT_FALSE(transfer.post().ok()) << "its peer is gone";
  }
  EXPECT_GT(cancelled, 0);
  EXPECT_EQ(engine.disconnect(peer.id).code(), TCPX_NOT_FOUND);
  EXPECT_EQ(engine.peer_wait(peer.id, Ms{0}).code(), TCPX_NOT_FOUND);
  EXPECT_EQ(engine.notify(peer.id, "x", Ms{100}).code(), TCPX_NOT_FOUND);
  EXPECT_TRUE(eventually([&] {
    Reply reply = peer.program.call("peer_info {}", at_peer);
    return !reply.ok() || std::stoi(reply.text) == TCPX_PEER_CLOSED;
  })) << "the other side is told that we left: "
      << peer.program.call("peer_info {}", at_peer).text;

  ASSERT_TRUE(succeeded(engine.connect(peer.program.info(), &peer.id)));
  ASSERT_TRUE(succeeded(engine.peer_wait(peer.id, kLong)));
  ASSERT_TRUE(succeeded(engine.peer_info(peer.id, &second)));
  EXPECT_NE(first.generation, second.generation) << "a new session is a new generation";
  EXPECT_STREQ(first.engine_id, second.engine_id);
  // That a session has ended is told at once; what has arrived may still be on its way into memory,
  // until who owns that has disconnected, too.
  (void)peer.program.call("disconnect {}", at_peer);
  peer.program("fill {} 0 {} 14 0 0", remote.name, kLarge);
  move(peer, TCPX_WRITE, local, remote, {{0, 0, 10'000}});
  peer.expect_intact(remote);
}

TCPX_INSTANTIATE_CONFORMANCE(Misuse);

TEST(CApi, NullArgumentsAreErrorsNeverCrashes) {
  size_t length = 0;
  uint64_t id = 0;
  tcpx_remote_region region{};
  tcpx_peer_info info{};
  tcpx_receipt receipt{};
  EXPECT_EQ(tcpx_engine_create(nullptr, 0, nullptr, nullptr, nullptr), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_connection_info(nullptr, nullptr, &length), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_config_text(nullptr, nullptr, &length), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_counters_json(nullptr, nullptr, &length), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_connect(nullptr, "x", 1, &id), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_connect_address(nullptr, "x", &id), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_peer_wait(nullptr, 1, 0), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_accept(nullptr, 0, &id), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_disconnect(nullptr, 1), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_peer_get(nullptr, 1, &info), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_register(nullptr, &length, 8, 0, &id), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_deregister(nullptr, 1), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_region_export(nullptr, 1, nullptr, &length), TCPX_INVALID_ARGUMENT);
  EXPECT_NE(tcpx_region_import(nullptr, 80, &region), TCPX_OK);
  EXPECT_EQ(tcpx_region_import("x", 1, nullptr), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_prepare(nullptr, 1, TCPX_READ, nullptr, nullptr, 0, nullptr),
            TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_post(nullptr, nullptr), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_poll(nullptr), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_wait(nullptr, 0), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_cancel(nullptr, 0), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_receipt_get(nullptr, &receipt), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_receipt_json(nullptr, nullptr, &length), TCPX_INVALID_ARGUMENT);
  EXPECT_NE(tcpx_transfer_error(nullptr), nullptr);
  EXPECT_EQ(tcpx_notify(nullptr, 1, "x", 1, 0), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(tcpx_next_notification(nullptr, 0, nullptr, nullptr, &length), TCPX_INVALID_ARGUMENT);
  tcpx_release(nullptr);
  tcpx_engine_destroy(nullptr);
}

TEST(CApi, MemoryIsRegisteredAsWhatTheEngineCanMove) {
  Engine engine = make_engine(loopback_options());
  uint8_t byte = 0;
  tcpx_region region = 0;
  auto register_as = [&](uint32_t memory, uint32_t device) {
    tcpx_register_args args{};
    args.memory = memory;
    args.device = device;
    return engine.register_as(&byte, 1, args, &region);
  };
  EXPECT_TRUE(succeeded(register_as(TCPX_MEMORY_HOST, 0)));
  EXPECT_EQ(register_as(TCPX_MEMORY_HOST, 1).code(), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(register_as(7, 0).code(), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(register_as(TCPX_MEMORY_CUDA, 70'000).code(), TCPX_INVALID_ARGUMENT);
  Result result = register_as(TCPX_MEMORY_CUDA, 2);
  EXPECT_EQ(result.code(), TCPX_UNSUPPORTED);
  EXPECT_NE(result.text().find("cuda:2"), std::string::npos) << result.text();
}

TEST(CApi, SizesAreAskedForWithATooSmallBuffer) {
  Engine engine = make_engine(loopback_options());
  auto check = [&](auto call, const char* what) {
    size_t needed = 0;
    EXPECT_EQ(call(nullptr, &needed), TCPX_BUFFER_TOO_SMALL) << what;
    ASSERT_GT(needed, 0u) << what;
    size_t claimed = needed + 1;
    EXPECT_EQ(call(nullptr, &claimed), TCPX_BUFFER_TOO_SMALL)
        << what << ": no buffer, but a length";
    EXPECT_GE(claimed, needed - 64) << what;
    std::vector<char> small(needed, 'q');
    size_t length = needed - 1;
    EXPECT_EQ(call(small.data(), &length), TCPX_BUFFER_TOO_SMALL) << what;
    EXPECT_EQ(small.back(), 'q') << what << ": wrote behind the buffer";
  };
  check([&](char* p, size_t* n) { return tcpx_connection_info(engine.raw(), p, n); }, "info");
  check([&](char* p, size_t* n) { return tcpx_config_text(engine.raw(), p, n); }, "config");
  check([&](char* p, size_t* n) { return tcpx_counters_json(engine.raw(), p, n); }, "counters");
}

TEST(CApi, CodesHaveNamesAndErrorsBelongToTheThread) {
  for (int code = TCPX_OK; code <= TCPX_COPY_FAILED; ++code)
    EXPECT_STRNE(tcpx_code_name(static_cast<tcpx_code>(code)), "unknown code") << code;
  EXPECT_NE(tcpx_code_name(static_cast<tcpx_code>(9999)), nullptr);
  ASSERT_NE(tcpx_poll(nullptr), TCPX_OK);
  std::string mine = tcpx_last_error();
  EXPECT_NE(mine, "");
  std::thread([] { EXPECT_STREQ(tcpx_last_error(), ""); }).join();
  EXPECT_EQ(mine, tcpx_last_error());
}

// A struct that is all zero asks for the defaults; a deadline that has passed is none of them.
TEST(ZeroedArguments, ArePostedWithTheDefaultDeadline) {
  Pair pair(loopback_options({{"lanes", "1"}}));
  pair.allocate(1 << 20);
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
    Transfer transfer = pair.prepare(op, 1 << 20);
    for (int round = 0; round < 20; ++round) {
      tcpx_post_args args{};
      ASSERT_EQ(tcpx_post(transfer.raw(), &args), TCPX_OK);
      ASSERT_EQ(tcpx_wait(transfer.raw(), kLong.count()), TCPX_OK)
          << "round " << round << ": " << transfer.error();
    }
  }
}

}  // namespace
}  // namespace tcpx::test
