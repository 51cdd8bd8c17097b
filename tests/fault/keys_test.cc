// Whom an engine with an operator's key talks to, and how a key is changed without a stop.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "../support/ports.h"
#include "fault_fixture.h"
#include "raw_client.h"

namespace tcpx::test {
namespace {

constexpr const char* kKey = "the operator's key, long enough: 0123456789";

// How connecting with `info` ends, at once or later.
Result connect_by_info(Engine& engine, const Bytes& info) {
  tcpx_peer peer = 0;
  Result result = engine.connect(info, &peer);
  return result ? engine.peer_wait(peer, kLong) : result;
}

// An info with a secret inside can be made by anybody: it must not stand in for the key.
TEST(OperatorKey, ARogueWithoutItIsNotConnectedToByItsOwnInfo) {
  Engine keyed = make_engine(fault_options({{"auth_key", kKey}}));
  Engine rogue = make_engine(fault_options());
  Result result = connect_by_info(keyed, rogue.connection_info());
  EXPECT_EQ(result.code(), TCPX_AUTH_FAILED) << result.text();
  EXPECT_NE(result.text().find("auth_key_file"), std::string::npos) << result.text();
  EXPECT_NE(result.text().find("without a key"), std::string::npos) << result.text();
  EXPECT_EQ(counter(rogue, "peers_connected"), 0u);
  EXPECT_EQ(counter(keyed, "peers_connected"), 0u);
}

// The whole table of who may connect to whom by connection info.
TEST(OperatorKey, TheModeIsThisEnginesChoiceNeverTheInfos) {
  const Options modes[] = {fault_options({{"auth", "off"}}), fault_options(),
                           fault_options({{"auth_key", kKey}})};
  for (size_t from = 0; from < std::size(modes); ++from) {
    for (size_t to = 0; to < std::size(modes); ++to) {
      SCOPED_TRACE(strf("mode {} connects to mode {}", from, to));
      Engine client = make_engine(modes[from]), server = make_engine(modes[to]);
      Result result = connect_by_info(client, server.connection_info());
      EXPECT_EQ(result.code(), from == to ? TCPX_OK : TCPX_AUTH_FAILED) << result.text();
    }
  }
}

TEST(OperatorKey, AnEngineWithoutOneRefusesAClientThatUsesOne) {
  Engine server = make_engine(fault_options());
  Engine keyed = make_engine(fault_options({{"auth_key", kKey}}));
  tcpx_peer peer = 0;
  std::string address = strf("127.0.0.1:{}", listening_port(server.connection_info()));
  ASSERT_TRUE(succeeded(keyed.connect_address(address, &peer)));
  EXPECT_EQ(keyed.peer_wait(peer, kLong).code(), TCPX_AUTH_FAILED);
}

// Of an engine that made itself a new secret since, or changed on its way.
TEST(ConnectionInfo, WithAWrongSecretIsRefusedWithTheReason) {
  Engine server = make_engine(fault_options()), client = make_engine(fault_options());
  wire::ConnectionInfo info;
  ASSERT_TRUE(wire::decode_connection_info(server.connection_info(), {}, &info).ok());
  info.secret[5] ^= 1;
  Result result = connect_by_info(client, wire::encode_connection_info(info, {}));
  EXPECT_EQ(result.code(), TCPX_AUTH_FAILED) << result.text();
  EXPECT_NE(result.text().find("connection info"), std::string::npos) << result.text();
  EXPECT_TRUE(eventually([&] { return counter(server, "auth_failures") >= 1; }));
}

class KeyFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "tcpx_keys_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
    for (const char* key : {"old", "new", "other"}) {
      std::ofstream(path(key)) << key << ": a key for this test alone 0123456789\n";
      ASSERT_EQ(chmod(path(key).c_str(), 0600), 0);
    }
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string path(const std::string& key) const { return dir_ + "/" + key; }
  // "old,new" -> the option's list of files.
  Engine engine(const std::string& keys) const {
    std::string files;
    for (size_t at = 0; at != std::string::npos;) {
      size_t comma = keys.find(',', at);
      files += (files.empty() ? "" : ",") + path(keys.substr(at, comma - at));
      at = comma == std::string::npos ? comma : comma + 1;
    }
    return make_engine(
        fault_options({{"auth_key_file", files}, {"port_range", OwnPorts().text()}}));
  }
  static std::string key_text(const std::string& first_key) {
    return first_key + ": a key for this test alone 0123456789";
  }

 private:
  std::string dir_;
};

// old -> old,new -> new,old -> new: engines of neighbouring steps reach each other both ways, by
// connection info and by address.
TEST_F(KeyFiles, AKeyIsChangedInThreeStepsWithoutAStop) {
  const std::string steps[] = {"old", "old,new", "new,old", "new"};
  for (size_t step = 0; step + 1 < std::size(steps); ++step) {
    for (auto [from, to] : {std::pair(step, step + 1), std::pair(step + 1, step)}) {
      SCOPED_TRACE(steps[from] + " connects to " + steps[to]);
      Engine client = engine(steps[from]), server = engine(steps[to]);
      EXPECT_TRUE(succeeded(connect_by_info(client, server.connection_info())));
      const std::string first = steps[to].substr(0, 3);
      tcpx_peer peer = 0;
      std::string address =
          strf("127.0.0.1:{}", listening_port(server.connection_info(), key_text(first)));
      ASSERT_TRUE(succeeded(client.connect_address(address, &peer)));
      EXPECT_TRUE(succeeded(client.peer_wait(peer, kLong)));
    }
  }
}

TEST_F(KeyFiles, OneInTheMiddleReachesBothEnds) {
  Engine older = engine("old"), both = engine("old,new"), newer = engine("new");
  EXPECT_TRUE(succeeded(connect_by_info(both, older.connection_info())));
  EXPECT_TRUE(succeeded(connect_by_info(both, newer.connection_info())));
  EXPECT_TRUE(succeeded(connect_by_info(older, both.connection_info())));
  for (auto [client, server, key] : {std::tuple(&both, &newer, "new"), {&newer, &both, "old"}}) {
    tcpx_peer peer = 0;
    std::string address =
        strf("127.0.0.1:{}", listening_port(server->connection_info(), key_text(key)));
    ASSERT_TRUE(succeeded(client->connect_address(address, &peer)));
    EXPECT_TRUE(succeeded(client->peer_wait(peer, kLong))) << "the second key is tried too";
  }
  // The ends have nothing in common.
  Result result = connect_by_info(older, newer.connection_info());
  EXPECT_TRUE(result.code() == TCPX_TAMPERED || result.code() == TCPX_AUTH_FAILED) << result.text();
  tcpx_peer peer = 0;
  std::string address =
      strf("127.0.0.1:{}", listening_port(newer.connection_info(), key_text("new")));
  ASSERT_TRUE(succeeded(older.connect_address(address, &peer)));
  result = older.peer_wait(peer, kLong);
  EXPECT_EQ(result.code(), TCPX_AUTH_FAILED) << result.text();
  EXPECT_NE(result.text().find("auth_key_file"), std::string::npos) << result.text();
}

TEST_F(KeyFiles, AnEngineWithTwoKeysTakesNoThird) {
  Engine both = engine("old,new"), other = engine("other");
  EXPECT_FALSE(connect_by_info(both, other.connection_info()).ok());
  EXPECT_FALSE(connect_by_info(other, both.connection_info()).ok());
  tcpx_peer peer = 0;
  std::string address =
      strf("127.0.0.1:{}", listening_port(both.connection_info(), key_text("old")));
  ASSERT_TRUE(succeeded(other.connect_address(address, &peer)));
  EXPECT_EQ(other.peer_wait(peer, kLong).code(), TCPX_AUTH_FAILED);
}

// Whoever sees a hello can try keys against its knock at leisure.
TEST_F(KeyFiles, AKeyThatCanBeGuessedIsRefusedWithTheReason) {
  for (const std::string& weak :
       {std::string(32, 'k'), std::string("abababababababababababab"), std::string(64, '\0'),
        std::string("1234567123456712345671234567")}) {
    std::ofstream(path("weak"), std::ios::trunc) << weak;
    for (Options options :
         {Options{{"auth_key_file", path("weak")}}, Options{{"auth_key", weak}}}) {
      if (weak[0] == '\0' && options[0].first == "auth_key") continue;  // C strings end there
      Engine none;
      Result result = Engine::create(fault_options(options), &none);
      EXPECT_EQ(result.code(), TCPX_BAD_CONFIG) << options[0].first << " " << weak.substr(0, 8);
      EXPECT_NE(result.text().find("different bytes"), std::string::npos) << result.text();
      EXPECT_NE(result.text().find("urandom"), std::string::npos) << result.text();
    }
  }
}

}  // namespace
}  // namespace tcpx::test
