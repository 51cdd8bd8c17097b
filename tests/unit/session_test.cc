// Where a session stands, lanes that are lost, notifications that wait: the ledgers, without
// sockets.
#include "engine/session.h"

#include <gtest/gtest.h>

#include "engine/lane_ledger.h"
#include "engine/notice_ledger.h"
#include "engine/notices_seen.h"

namespace tcpx {
namespace {

using State = Session::State;

LaneRefusal refusal(uint32_t lane, bool in_doubt, Nanos since = 0) {
  Status status = peer_error(TCPX_PATH_UNAVAILABLE, "lane " + std::to_string(lane));
  return {lane, {status, in_doubt}, since};
}

TEST(Session, IsUpWhenItsLanesAreMadeAndSettled) {
  Session session;
  EXPECT_FALSE(session.come_up(true)) << "more lanes may come";
  session.lanes_are_made();
  EXPECT_FALSE(session.come_up(false));
  EXPECT_TRUE(session.come_up(true));
  EXPECT_TRUE(session.up());
  EXPECT_FALSE(session.come_up(true)) << "once";
}

TEST(Session, ARefusalInDoubtIsWithdrawnWhenItsLaneIsLost) {
  Session session;
  session.lanes_are_made();
  session.refuse(refusal(1, true));
  EXPECT_EQ(session.state(), State::kRefused);
  EXPECT_FALSE(session.come_up(true));
  session.lane_lost(0);
  EXPECT_EQ(session.state(), State::kRefused) << "that was another lane";
  session.lane_lost(1);
  EXPECT_EQ(session.state(), State::kConnecting);
  EXPECT_TRUE(session.come_up(true));
  session.refuse(refusal(2, true));
  session.lane_lost(2);
  EXPECT_TRUE(session.up()) << "as it was before";
}

TEST(Session, ARefusalThatIsCertainStays) {
  Session session;
  session.refuse(refusal(1, true));
  session.refuse(refusal(2, false));
  session.lane_lost(1);
  session.lane_lost(2);
  EXPECT_EQ(session.state(), State::kRefused);
  ASSERT_NE(session.refusal_due(kSecond), nullptr);
  EXPECT_EQ(session.refusal_due(kSecond)->why.status.text(), "lane 2");
}

TEST(Session, ARefusalInDoubtStandsWhenTheStreamWouldHaveEnded) {
  Session session;
  session.refuse(refusal(0, true, 0));
  EXPECT_EQ(session.refusal_due(49 * kMilli), nullptr);
  EXPECT_EQ(session.refusal_stands(49 * kMilli), nullptr);
  EXPECT_NE(session.refusal_due(50 * kMilli), nullptr);
  EXPECT_NE(session.refusal_stands(50 * kMilli), nullptr);
}

// The other side must not take our close for a death.
TEST(Session, WhoKnowsForCertainWaitsLonger) {
  Session session;
  session.refuse(refusal(0, false, 0));
  EXPECT_NE(session.refusal_stands(0), nullptr);
  EXPECT_EQ(session.refusal_due(99 * kMilli), nullptr);
  EXPECT_NE(session.refusal_due(100 * kMilli), nullptr);
}

TEST(Session, HasLeftWhenEveryOpenLaneHasSaidGoodbye) {
  Session session;
  LaneBits open;
  open.add(0);
  open.add(3);
  EXPECT_FALSE(session.said_every_bye(open));
  session.peer_said_bye(0);
  EXPECT_TRUE(session.leaving());
  EXPECT_FALSE(session.said_every_bye(open));
  EXPECT_TRUE(session.said_every_bye(LaneBits::only(0))) << "the other one has closed";
  session.peer_said_bye(3);
  EXPECT_TRUE(session.said_every_bye(open));
}

TEST(Session, EndsOnce) {
  Session session;
  EXPECT_TRUE(session.begin_end(peer_error(TCPX_PEER_TIMEOUT, "first")));
  EXPECT_FALSE(session.begin_end(peer_error(TCPX_PEER_CLOSED, "second")));
  EXPECT_EQ(session.end_status().code(), TCPX_PEER_TIMEOUT);
  session.leave();
  session.refuse(refusal(0, false));
  session.peer_said_bye(0);
  EXPECT_EQ(session.state(), State::kEnding) << "nothing brings it back";
  session.end();
  EXPECT_THROW(session.end(), std::logic_error);
}

// ---- lost lanes ----------------------------------------------------------------------------

using News = LaneLedger::News;

TEST(LaneLedger, AsksAboutWhatIsLostUntilItIsConfirmed) {
  LaneLedger ledger;
  News news{};
  EXPECT_FALSE(ledger.may_have_news());
  UnconfirmedWrites writes;
  writes.notices_before = 7;
  ledger.lost(2, std::move(writes));
  EXPECT_TRUE(ledger.may_have_news());
  ASSERT_TRUE(ledger.next(&news));
  EXPECT_EQ(news.kind, News::Kind::kQuestion);
  EXPECT_EQ(news.lane, 2u);
  EXPECT_FALSE(ledger.next(&news));
  EXPECT_FALSE(ledger.may_have_news());
  ledger.lost(0, {});  // the question may have been on this one: it is asked again
  std::vector<uint32_t> asked;
  while (ledger.next(&news)) asked.push_back(news.lane);
  EXPECT_EQ(asked, (std::vector<uint32_t>{0, 2}));
  UnconfirmedWrites out;
  EXPECT_TRUE(ledger.confirmed(2, &out));
  EXPECT_EQ(out.notices_before, 7u);
  EXPECT_FALSE(ledger.confirmed(2, &out)) << "once";
  EXPECT_FALSE(ledger.confirmed(5, &out)) << "nobody asked";
}

TEST(LaneLedger, WhatThePeerGaveUpIsClosedOnceAndToldAsOftenAsItAsks) {
  LaneLedger ledger;
  News news{};
  EXPECT_TRUE(ledger.given_up_by_peer(3));
  EXPECT_FALSE(ledger.given_up_by_peer(3));
  EXPECT_TRUE(ledger.is_given_up(3));
  EXPECT_EQ(ledger.take_to_close(), LaneBits::only(3));
  EXPECT_TRUE(ledger.take_to_close().empty());
  EXPECT_FALSE(ledger.next(&news)) << "it is not closed yet";
  ledger.closed(3);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(ledger.next(&news));
    EXPECT_EQ(news.kind, News::Kind::kAnswer);
    EXPECT_EQ(news.lane, 3u);
    EXPECT_FALSE(ledger.given_up_by_peer(3));
  }
}

TEST(LaneLedger, TalkAboutLostLanesHasAnEnd) {
  LaneLedger ledger;
  int heard = 0;
  while (!ledger.heard_too_much() && heard < 1'000'000) ++heard;
  EXPECT_EQ(heard, 2 * 64 * 64);
}

// ---- notifications ---------------------------------------------------------------------------

using wire::NoticeVerdict;

std::shared_ptr<Notice> notice_of(size_t bytes) {
  auto notice = std::make_shared<Notice>();
  notice->bytes.resize(bytes);
  return notice;
}

TEST(NoticeLedger, GoOutInOrderAndEndOnce) {
  NoticeLedger ledger;
  auto first = notice_of(1), second = notice_of(1);
  ledger.queue(first);
  ledger.queue(second);
  EXPECT_EQ(ledger.next(0), first);
  EXPECT_EQ(ledger.next(1), second);
  EXPECT_EQ(ledger.next(0), nullptr);
  EXPECT_EQ(ledger.answered(second->id, NoticeVerdict::kDelivered, 0).ended, second);
  EXPECT_EQ(ledger.answered(second->id, NoticeVerdict::kDelivered, 0).ended, nullptr);
  EXPECT_EQ(ledger.answered(999, NoticeVerdict::kDelivered, 0).ended, nullptr);
  EXPECT_FALSE(ledger.empty());
  EXPECT_EQ(ledger.answered(first->id, NoticeVerdict::kNever, 0).ended, first);
  EXPECT_TRUE(ledger.empty());
}

TEST(NoticeLedger, AnAnswerToOneThatIsNotOutMeansNothing) {
  NoticeLedger ledger;
  auto notice = notice_of(1);
  ledger.queue(notice);
  EXPECT_EQ(ledger.answered(notice->id, NoticeVerdict::kDelivered, 0).ended, nullptr);
  EXPECT_EQ(ledger.next(0), notice);
}

TEST(NoticeLedger, WhatWasOnALostLaneGoesAgain) {
  NoticeLedger ledger;
  auto first = notice_of(1), second = notice_of(1);
  ledger.queue(first);
  ledger.queue(second);
  (void)ledger.next(0);
  (void)ledger.next(1);
  ledger.lane_lost(0);
  EXPECT_TRUE(ledger.may_have_work());
  EXPECT_EQ(ledger.next(1), first);
  EXPECT_EQ(ledger.next(1), nullptr);
}

TEST(NoticeLedger, APeerWithoutRoomIsLeftAloneForAWhileAndThenAskedWithOne) {
  NoticeLedger ledger;
  auto first = notice_of(1), second = notice_of(1);
  ledger.queue(first);
  ledger.queue(second);
  (void)ledger.next(0);
  auto answered = ledger.answered(first->id, NoticeVerdict::kNotNow, 0);
  EXPECT_TRUE(answered.held_back);
  EXPECT_EQ(answered.ended, nullptr);
  EXPECT_EQ(ledger.next(0), nullptr);
  EXPECT_FALSE(ledger.end_pause(19 * kMilli));
  EXPECT_TRUE(ledger.end_pause(20 * kMilli));
  EXPECT_EQ(ledger.next(0), first);
  EXPECT_EQ(ledger.next(0), nullptr) << "one at a time, until there is room";
  (void)ledger.answered(first->id, NoticeVerdict::kDelivered, 0);
  EXPECT_EQ(ledger.next(0), second);
}

TEST(NoticeLedger, NoMoreAreOutThanThePeerMayHaveToAnswer) {
  NoticeLedger ledger;
  for (size_t i = 0; i < 2 * NoticeLedger::kMostOut; ++i) ledger.queue(notice_of(0));
  size_t out = 0;
  while (ledger.next(0) != nullptr) ++out;
  EXPECT_EQ(out, NoticeLedger::kMostOut);
  (void)ledger.answered(5, NoticeVerdict::kDelivered, 0);
  EXPECT_NE(ledger.next(0), nullptr);
}

TEST(NoticeLedger, LongOnesGoOneByOne) {
  NoticeLedger ledger;
  for (int i = 0; i < 3; ++i) ledger.queue(notice_of(10 << 20));
  auto first = ledger.next(0);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(ledger.next(0), nullptr) << "16 MiB at a time";
  (void)ledger.answered(first->id, NoticeVerdict::kDelivered, 0);
  EXPECT_NE(ledger.next(0), nullptr);
}

// A receiver knows a span of ids: an old one that is still out must stay within it.
TEST(NoticeLedger, NoneGoesOutASpanAheadOfTheOldest) {
  NoticeLedger ledger;
  auto oldest = notice_of(0);
  ledger.queue(oldest);
  (void)ledger.next(0);
  for (uint64_t i = 0; i < NoticesSeen::kSpan + 10; ++i) ledger.queue(notice_of(0));
  uint64_t newest = 0;
  while (auto next = ledger.next(0)) {
    newest = next->id;
    (void)ledger.answered(newest, NoticeVerdict::kDelivered, 0);
  }
  EXPECT_EQ(newest, oldest->id + NoticesSeen::kSpan - 1);
}

TEST(NoticeLedger, WithdrawnIsNotSentButWhatIsOutIs) {
  NoticeLedger ledger;
  auto queued = notice_of(1), out = notice_of(1);
  ledger.queue(out);
  (void)ledger.next(0);
  ledger.queue(queued);
  ledger.withdraw(out);
  ledger.withdraw(queued);
  EXPECT_EQ(ledger.next(0), nullptr);
  EXPECT_FALSE(ledger.empty());
  EXPECT_EQ(ledger.answered(out->id, NoticeVerdict::kDelivered, 0).ended, out);
  EXPECT_TRUE(ledger.empty());
}

TEST(NoticeLedger, TheOutboxTakesASingleOneOfAnySize) {
  NoticeLedger ledger;
  auto big = notice_of(100);
  big->outbox_bytes = 100;
  EXPECT_TRUE(ledger.outbox_takes(100, 10));
  ledger.queue(big);
  ledger.take_outbox(*big);
  EXPECT_FALSE(ledger.outbox_takes(1, 10));
  (void)ledger.next(0);
  (void)ledger.answered(big->id, NoticeVerdict::kDelivered, 0);
  EXPECT_TRUE(ledger.outbox_takes(1, 10));
}

TEST(NoticeLedger, TheEndOfTheSessionEndsAll) {
  NoticeLedger ledger;
  auto queued = notice_of(1), out = notice_of(1);
  ledger.queue(out);
  (void)ledger.next(0);
  ledger.queue(queued);
  out->left_alone = true;
  EXPECT_EQ(ledger.count_lone(), 1u);
  ledger.end_all(peer_error(TCPX_PEER_CLOSED, "gone"));
  EXPECT_TRUE(ledger.empty());
  for (auto& notice : {queued, out}) {
    EXPECT_EQ(notice->state, Notice::State::kEnded);
    EXPECT_EQ(notice->status.code(), TCPX_PEER_CLOSED);
  }
}

}  // namespace
}  // namespace tcpx
