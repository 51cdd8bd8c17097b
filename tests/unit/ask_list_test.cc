#include "path/ask_list.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

std::vector<uint32_t> round(AskList& list) {
  std::vector<uint32_t> asked;
  for (const AskList::Entry& entry : list.begin_round()) asked.push_back(entry.source);
  list.end_round();
  return asked;
}

TEST(AskList, EachIsAskedOnceHoweverManyReasonsThereAre) {
  AskList list;
  list.ask_now(3);
  list.ask_waiting(3);
  list.ask_until(3, kSecond);
  list.ask_now(1);
  EXPECT_TRUE(list.any_now());
  EXPECT_TRUE(list.any_waits());
  EXPECT_EQ(round(list), (std::vector<uint32_t>{3, 1}));
  EXPECT_TRUE(list.empty()) << "who is to be asked again says so";
}

TEST(AskList, OnlyTheLatestAreAskedBecauseTheyWereHeard) {
  AskList list;
  list.ask_waiting(100);
  list.ask_now(101);
  for (uint32_t source = 0; source < 20; ++source) list.ask_until(source, kSecond);
  std::vector<uint32_t> expected{100, 101};
  for (size_t i = 0; i < tuning::kMostAsked; ++i)
    expected.push_back(static_cast<uint32_t>(20 - tuning::kMostAsked + i));
  EXPECT_EQ(round(list), expected);
}

TEST(AskList, WhoIsPutOffComesFirstNextTimeWithAllItsReasons) {
  AskList list;
  list.ask_now(1);
  list.ask_now(2);
  list.ask_now(3);
  for (const AskList::Entry& entry : list.begin_round()) {
    if (entry.source != 1) list.put_off(entry);
    list.ask_now(1);
    list.ask_waiting(3);
  }
  list.end_round();
  EXPECT_TRUE(list.any_waits());
  EXPECT_EQ(round(list), (std::vector<uint32_t>{2, 3, 1}));
}

TEST(AskList, WhoIsGoneIsNotAskedEvenInThisRound) {
  AskList list;
  list.ask_now(1);
  list.ask_now(2);
  int asked = 0;
  for (const AskList::Entry& entry : list.begin_round()) {
    list.forget(2);
    asked += entry.now;
  }
  list.end_round();
  EXPECT_EQ(asked, 1);
  list.ask_until(5, kSecond);
  list.forget(5);
  EXPECT_TRUE(list.empty());
}

}  // namespace
}  // namespace tcpx
