// States with names: every step that is not in the tables is caught, and docs/states.md has the
// tables as they are.
#include "base/steps.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "engine/chunk_window.h"
#include "engine/notice_ledger.h"
#include "engine/session.h"
#include "engine/transfer.h"
#include "path/lane.h"

namespace tcpx {
namespace {

TEST(Steps, WhatIsNotInTheTableIsThrown) {
  Stepped<TransferRules> stage;
  EXPECT_THROW(stage.step(TransferRules::State::kEnded), std::logic_error);
  EXPECT_EQ(stage.now(), TransferRules::State::kIdle) << "an illegal step must not be taken";
  stage.step(TransferRules::State::kMoving);
  EXPECT_THROW(stage.step(TransferRules::State::kIdle), std::logic_error);
  try {
    stage.step(TransferRules::State::kMoving);
    FAIL();
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "a transfer went from moving to moving");
  }
}

TEST(Steps, AChunkOnItsWayInGoesBackWhenNothingTouchesItsMemory) {
  using State = RxChunk::State;
  RxChunk chunk;
  EXPECT_THROW(chunk.drop(TCPX_CANCELLED), std::logic_error) << "there is none";
  chunk.reset();  // as often as one likes
  for (State step : {State::kHead, State::kLanding, State::kPlacing}) chunk.state.step(step);
  EXPECT_THROW(chunk.drop(TCPX_CANCELLED), std::logic_error) << "a move cannot be called back";
  EXPECT_EQ(chunk.refusal, TCPX_OK);
  EXPECT_THROW(chunk.reset(), std::logic_error) << "a move still writes where it belongs";
  chunk.state.step(State::kArrived);
  EXPECT_THROW(chunk.drop(TCPX_CANCELLED), std::logic_error) << "it is there";
  chunk.reset();
  for (State step : {State::kHead, State::kLanding}) chunk.state.step(step);
  chunk.drop(TCPX_STALE_REGION);
  EXPECT_TRUE(chunk.dropped());
  EXPECT_EQ(chunk.refusal, TCPX_STALE_REGION);
  EXPECT_THROW(chunk.state.step(State::kPlacing), std::logic_error) << "nobody wants it";
}

// Lines "| state | may become |" of one machine.
template <class Rules>
std::string table_of() {
  using State = typename Rules::State;
  std::string out;
  for (const auto& from : Rules::kStates) {
    std::string next;
    for (const auto& to : Rules::kStates)
      if (Stepped<Rules>::may(from.state, to.state))
        next += (next.empty() ? "" : ", ") + std::string(to.name);
    out += "| " + std::string(from.name) + " | " + (next.empty() ? "-" : next) + " |";
    out += '\n';
  }
  static_assert(sizeof(State) == 1);
  return out;
}

// The table under the heading in docs/states.md, without the column that explains.
std::string documented(const std::string& heading) {
  std::ifstream file(std::string(TCPX_TEST_SOURCE_DIR) + "/../../docs/states.md");
  std::string line, out;
  bool here = false;
  while (std::getline(file, line)) {
    if (line.starts_with("## ")) here = line == "## " + heading;
    if (!here || !line.starts_with("| ") || line.starts_with("| state ")) continue;
    out += line.substr(0, line.find(" |", line.find(" | ") + 3)) + " |\n";
  }
  return out;
}

TEST(Steps, TheDocumentHasTheTablesAsTheyAre) {
  EXPECT_EQ(documented("Transfer"), table_of<TransferRules>());
  EXPECT_EQ(documented("Chunk on its way out"), table_of<ChunkOutRules>());
  EXPECT_EQ(documented("Chunk on its way in"), table_of<ChunkInRules>());
  EXPECT_EQ(documented("Session"), table_of<SessionRules>());
  EXPECT_EQ(documented("Notification"), table_of<NoticeRules>());
}

}  // namespace
}  // namespace tcpx
