#include "session/auth.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "wire_test_util.h"

namespace tcpx::auth {
namespace {

using test::counting_from;
using test::fails_with;
using test::unhex;

const std::string kSharedText = "correct horse battery staple";

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The hello and challenge of tests/unit/wire_handshake_test.cc.
struct Exchange {
  std::array<uint8_t, wire::kHelloBytes> hello;
  std::array<uint8_t, wire::kChallengeBytes> challenge;

  Exchange() {
    wire::Hello h;
    h.kind = wire::HelloKind::kJoinLane;
    h.lane = 5;
    h.session = 0x1817161514131211;
    h.uid = counting_from<16>(0x20);
    h.target_uid = counting_from<16>(0x30);
    h.nonce = counting_from<32>(0x40);
    h.lanes = 8;
    h.chunk_bytes = 512 << 10;
    h.window = 16;
    h.epoch = 0xb7b6b5b4b3b2b1b0;
    h.key_id = 0xc7c6c5c4c3c2c1c0;
    h.paths = wire::kTcpPath | wire::kNetPath;
    h.name = "client:1";
    h.knock = counting_from<8>(0xd8);
    encode(h, hello);
    wire::Challenge c;
    c.uid = counting_from<16>(0x70);
    c.nonce = counting_from<32>(0x80);
    encode(c, challenge);
  }
  ChallengeBytes signed_part() const {
    return std::span(challenge).first<wire::kChallengeSignedBytes>();
  }
};

Key engine_key(const std::string& secret = kSharedText) {
  Key key;
  EXPECT_TRUE(derive_engine_key(bytes_of(secret), &key).ok());
  return key;
}

wire::ProofBytes proof_of(const Key& key, Role role, const Exchange& x) {
  wire::ProofBytes proof{};
  EXPECT_TRUE(make_proof(key, role, x.hello, x.signed_part(), &proof).ok());
  return proof;
}

Status check(const Key& key, Role role, const Exchange& x, const wire::ProofBytes& proof) {
  return check_proof(key, role, x.hello, x.signed_part(), proof);
}

// ---- derivation: golden values from an independent implementation (Python's hmac) ---------------

TEST(AuthGolden, KeysAndProofs) {
  const Exchange x;
  const Key key = engine_key();
  EXPECT_EQ(to_hex(key.bytes()),
            "29061ff4ccdb62d7068ed9d88bff2be499c5c011592b11bc40a21baaecd100ce");
  Key session;
  ASSERT_TRUE(derive_session_key(key, x.hello, x.signed_part(), &session).ok());
  EXPECT_EQ(to_hex(session.bytes()),
            "433bbe8016879925526ca1f79ff53b0a15a85c3db174dd79bcf4f9f6c4f6f546");
  EXPECT_EQ(to_hex(proof_of(key, Role::kClient, x)),
            "1868003fc4dfb86b75f42313272ea223f860b56328ac6c47a5d1e724df239ab2");
  EXPECT_EQ(to_hex(proof_of(key, Role::kServer, x)),
            "d882778e7694cef2a5ee5c61d07b29da0f8227eb367c7ce1b60e28dea6a14d0b");
}

TEST(AuthGolden, KeyId) {
  uint64_t id = 0;
  ASSERT_TRUE(make_key_id(engine_key(), &id).ok());
  EXPECT_EQ(id, 0x4cd576129fb2d8d6u);  // the first 8 bytes, little-endian
}

TEST(AuthGolden, Knock) {
  const Exchange x;
  wire::Knock knock{};
  ASSERT_TRUE(
      make_knock(engine_key(), std::span(x.hello).first<wire::kKnockedBytes>(), &knock).ok());
  EXPECT_EQ(to_hex(knock), "aea93de90a8320ac");
}

TEST(AuthGolden, WelcomeMac) {
  const Exchange x;
  Key session;
  ASSERT_TRUE(derive_session_key(engine_key(), x.hello, x.signed_part(), &session).ok());
  const auto welcome = counting_from<wire::kWelcomeSignedBytes>(0);
  wire::ProofBytes mac{};
  ASSERT_TRUE(make_welcome_mac(session, x.hello, x.signed_part(), welcome, &mac).ok());
  EXPECT_EQ(to_hex(mac), "e424e47df1a8bed921d866968d08388f5200784042214a7c03f80b29b7ad098c");
}

TEST(AuthKeys, SecretsHaveALength) {
  Key key;
  const std::string longest(kMaxSecretBytes, 'k');
  EXPECT_TRUE(derive_engine_key(bytes_of("0123456789abcdef"), &key).ok());
  EXPECT_TRUE(derive_engine_key(bytes_of(longest), &key).ok());
  EXPECT_TRUE(fails_with(derive_engine_key({}, &key), TCPX_BAD_CONFIG, "0 bytes"));
  EXPECT_TRUE(fails_with(derive_engine_key(bytes_of("0123456789abcde"), &key), TCPX_BAD_CONFIG,
                         "15 bytes"));
  EXPECT_TRUE(
      fails_with(derive_engine_key(bytes_of(longest + "k"), &key), TCPX_BAD_CONFIG, "4097 bytes"));
}

TEST(AuthKeys, DifferentSecretsGiveDifferentKeys) {
  const std::string padded = kSharedText + std::string(1, '\0');  // equal as a plain HMAC key
  EXPECT_NE(to_hex(engine_key().bytes()), to_hex(engine_key(padded).bytes()));
}

TEST(AuthKeys, NewSecretsAreRandom) {
  std::array<uint8_t, wire::kSecretBytes> a{}, b{};
  ASSERT_TRUE(new_secret(a).ok());
  ASSERT_TRUE(new_secret(b).ok());
  EXPECT_NE(a, b);
}

TEST(AuthKeys, DestructionWipesTheBytes) {
  alignas(Key) std::array<uint8_t, sizeof(Key)> storage{};
  Key* key = new (storage.data()) Key(engine_key());
  const std::array<uint8_t, sizeof(Key)> live = storage;
  key->~Key();
  const std::array<uint8_t, sizeof(Key)> zero{};
  EXPECT_NE(live, zero);
  // Reading through volatile: the storage is ours, only the object is gone.
  for (size_t i = 0; i < storage.size(); ++i) {
    EXPECT_EQ(static_cast<volatile uint8_t*>(storage.data())[i], 0) << i;
  }
}

// ---- proofs -------------------------------------------------------------------------------------

TEST(AuthProof, HoldersOfTheKeyProveIt) {
  const Exchange x;
  for (Role role : {Role::kClient, Role::kServer}) {
    EXPECT_TRUE(check(engine_key(), role, x, proof_of(engine_key(), role, x)).ok());
  }
}

TEST(AuthProof, EveryBitOfTheProofCounts) {
  const Exchange x;
  const Key key = engine_key();
  const wire::ProofBytes good = proof_of(key, Role::kClient, x);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    wire::ProofBytes proof = good;
    proof[bit / 8] = static_cast<uint8_t>(proof[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_TRUE(fails_with(check(key, Role::kClient, x, proof), TCPX_AUTH_FAILED, "secret")) << bit;
  }
}

// ---- knocks -------------------------------------------------------------------------------------

// The exchange's hello, knocked with `key`.
Exchange knocked(const Key& key) {
  Exchange x;
  wire::Knock knock{};
  EXPECT_TRUE(make_knock(key, std::span(x.hello).first<wire::kKnockedBytes>(), &knock).ok());
  std::copy(knock.begin(), knock.end(), x.hello.begin() + wire::kKnockedBytes);
  return x;
}

TEST(AuthKnock, IsRightWithItsKeyAlone) {
  const Exchange x = knocked(engine_key());
  EXPECT_TRUE(check_knock(engine_key(), x.hello).ok());
  const Status status = check_knock(engine_key("another secret, long enough"), x.hello);
  EXPECT_TRUE(fails_with(status, TCPX_AUTH_FAILED, "does not hold the secret"));
  EXPECT_TRUE(fails_with(check_knock(engine_key(), Exchange().hello), TCPX_AUTH_FAILED, "secret"));
}

TEST(AuthKnock, EveryBitOfTheHelloIsCovered) {
  const Exchange good = knocked(engine_key());
  for (size_t bit = 0; bit < good.hello.size() * 8; ++bit) {
    Exchange x = good;
    x.hello[bit / 8] = static_cast<uint8_t>(x.hello[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(check_knock(engine_key(), x.hello).ok()) << "bit " << bit;
  }
}

TEST(AuthProof, EveryBitOfHelloAndChallengeIsCovered) {
  const Exchange good;
  const Key key = engine_key();
  const wire::ProofBytes proof = proof_of(key, Role::kServer, good);
  for (size_t bit = 0; bit < good.hello.size() * 8; ++bit) {
    Exchange x = good;
    x.hello[bit / 8] = static_cast<uint8_t>(x.hello[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_EQ(check(key, Role::kServer, x, proof).code(), TCPX_AUTH_FAILED) << bit;
  }
  for (size_t bit = 0; bit < wire::kChallengeSignedBytes * 8; ++bit) {
    Exchange x = good;
    x.challenge[bit / 8] = static_cast<uint8_t>(x.challenge[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_EQ(check(key, Role::kServer, x, proof).code(), TCPX_AUTH_FAILED) << bit;
  }
}

TEST(AuthProof, OneSidesProofIsNoAnswerOfTheOther) {
  const Exchange x;
  const Key key = engine_key();
  EXPECT_FALSE(check(key, Role::kServer, x, proof_of(key, Role::kClient, x)).ok());
  EXPECT_FALSE(check(key, Role::kClient, x, proof_of(key, Role::kServer, x)).ok());
}

TEST(AuthProof, AnotherKeyOrNoneFails) {
  const Exchange x;
  const Status status = check(engine_key(), Role::kServer, x,
                              proof_of(engine_key(kSharedText + "!"), Role::kServer, x));
  EXPECT_TRUE(fails_with(status, TCPX_AUTH_FAILED, "earlier run"));
  EXPECT_EQ(status.blast(), TCPX_BLAST_PEER);
  EXPECT_FALSE(check(engine_key(), Role::kServer, x, wire::ProofBytes{}).ok());
  EXPECT_FALSE(check(engine_key(), Role::kServer, x, proof_of(Key(), Role::kServer, x)).ok());
}

TEST(AuthProof, ALaneIsBoundToItsSession) {
  const Exchange first;
  Exchange second = first;
  second.challenge[40] ^= 1;  // another server nonce: another session of the same two engines
  Key key_a, key_b;
  ASSERT_TRUE(derive_session_key(engine_key(), first.hello, first.signed_part(), &key_a).ok());
  ASSERT_TRUE(derive_session_key(engine_key(), second.hello, second.signed_part(), &key_b).ok());
  const Exchange lane;
  EXPECT_TRUE(check(key_a, Role::kClient, lane, proof_of(key_a, Role::kClient, lane)).ok());
  EXPECT_FALSE(check(key_a, Role::kClient, lane, proof_of(key_b, Role::kClient, lane)).ok());
  EXPECT_FALSE(check(key_a, Role::kClient, lane, proof_of(engine_key(), Role::kClient, lane)).ok());
  // A proof of the first socket, seen on the wire, is not the session's key.
  EXPECT_NE(to_hex(key_a.bytes()), to_hex(proof_of(engine_key(), Role::kServer, first)));
}

TEST(AuthProof, EveryBitOfTheWelcomeIsCovered) {
  Exchange x;
  const Key key = engine_key();
  auto welcome = counting_from<wire::kWelcomeSignedBytes>(0);
  wire::ProofBytes mac{};
  ASSERT_TRUE(make_welcome_mac(key, x.hello, x.signed_part(), welcome, &mac).ok());
  auto check = [&](const Key& with) {
    return check_welcome_mac(with, x.hello, x.signed_part(), welcome, mac);
  };
  ASSERT_TRUE(check(key).ok());
  auto refused_with_a_bit_changed = [&](std::span<uint8_t> bytes) {
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      const auto mask = static_cast<uint8_t>(1 << (bit % 8));
      bytes[bit / 8] ^= mask;
      ASSERT_TRUE(fails_with(check(key), TCPX_AUTH_FAILED, "welcome")) << bit;
      bytes[bit / 8] ^= mask;
    }
  };
  refused_with_a_bit_changed(welcome);
  refused_with_a_bit_changed(mac);
  refused_with_a_bit_changed(x.hello);
  refused_with_a_bit_changed(std::span(x.challenge).first(wire::kChallengeSignedBytes));
  EXPECT_FALSE(check(engine_key(kSharedText + "!")).ok());
}

// ---- modes --------------------------------------------------------------------------------------

TEST(AuthMode, BothSidesAuthenticateOrNeither) {
  EXPECT_TRUE(check_mode(true, true).ok());
  EXPECT_TRUE(check_mode(false, false).ok());
  EXPECT_TRUE(fails_with(check_mode(true, false), TCPX_AUTH_FAILED,
                         "this engine requires authentication; the peer runs with auth=off"));
  EXPECT_TRUE(fails_with(check_mode(false, true), TCPX_AUTH_FAILED,
                         "this engine runs with auth=off; the peer requires authentication"));
}

TEST(AuthMode, ConnectionInfoDoesNotTalkAnEngineIntoAnotherMode) {
  using wire::AuthMode;
  for (AuthMode own : {AuthMode::kOpen, AuthMode::kSecretInside, AuthMode::kSharedKey})
    for (AuthMode info : {AuthMode::kOpen, AuthMode::kSecretInside, AuthMode::kSharedKey})
      EXPECT_EQ(check_info_mode(own, info).code(), own == info ? TCPX_OK : TCPX_AUTH_FAILED);
  EXPECT_TRUE(fails_with(check_info_mode(AuthMode::kSecretInside, AuthMode::kOpen),
                         TCPX_AUTH_FAILED, "auth=off"));
  EXPECT_TRUE(fails_with(check_info_mode(AuthMode::kSharedKey, AuthMode::kOpen), TCPX_AUTH_FAILED,
                         "auth=off"));
  EXPECT_TRUE(fails_with(check_info_mode(AuthMode::kSharedKey, AuthMode::kSecretInside),
                         TCPX_AUTH_FAILED, "auth_key_file"));
  EXPECT_TRUE(fails_with(check_info_mode(AuthMode::kSecretInside, AuthMode::kSharedKey),
                         TCPX_AUTH_FAILED, "auth_key_file"));
}

// ---- key file -----------------------------------------------------------------------------------

class AuthKeyFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "tcpx_auth_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string write(const std::string& content, mode_t mode = 0600) {
    const std::string path = dir_ + "/key";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  static Status load(const std::string& path, std::string* content) {
    KeyFile file;
    Status status = load_key_file(path, &file);
    content->assign(file.secret.bytes().begin(), file.secret.bytes().end());
    return status;
  }

  std::string dir_;
};

TEST_F(AuthKeyFile, OneTrailingNewlineIsNotPartOfTheKey) {
  std::string content;
  ASSERT_TRUE(load(write(kSharedText + "\n"), &content).ok());
  EXPECT_EQ(content, kSharedText);
  ASSERT_TRUE(load(write(kSharedText), &content).ok());
  EXPECT_EQ(content, kSharedText);
  ASSERT_TRUE(load(write(kSharedText + "\n\n"), &content).ok());
  EXPECT_EQ(content, kSharedText + "\n");
  const std::string binary("\0\1\2\n\xff\4\5\6\0\0\0\0\0\0\0\0", 16);
  ASSERT_TRUE(load(write(binary), &content).ok());
  EXPECT_EQ(content, binary);
}

TEST_F(AuthKeyFile, LengthIsBoundedAndTheTextNamesPathAndFix) {
  std::string content;
  ASSERT_TRUE(load(write("0123456789abcdef\n"), &content).ok());
  ASSERT_TRUE(load(write("0123456789abcdef" + std::string(4080, 'k') + "\n"), &content).ok());
  EXPECT_EQ(content.size(), 4096u);
  for (size_t size : {0, 15, 4097, 4098, 100000}) {
    const std::string path = write(std::string(size, 'k'));
    const Status status = load(path, &content);
    EXPECT_TRUE(fails_with(status, TCPX_BAD_CONFIG, path)) << size;
    EXPECT_TRUE(fails_with(status, TCPX_BAD_CONFIG, "/dev/urandom")) << size;
    EXPECT_TRUE(content.empty());
  }
  EXPECT_TRUE(fails_with(load(write(std::string(4097, 'k') + "\n"), &content), TCPX_BAD_CONFIG,
                         "too many"));
  EXPECT_TRUE(fails_with(load(write(std::string(15, 'k') + "\n"), &content), TCPX_BAD_CONFIG,
                         "has 15 bytes"));
}

// The server proves itself first, so keys can be tried offline.
TEST_F(AuthKeyFile, AKeyOfFewDifferentBytesIsRefusedWithTheReason) {
  std::string content;
  for (const std::string& weak :
       {std::string(64, 'k'), std::string("12345671234567123456"), std::string(16, '\0')}) {
    const Status status = load(write(weak), &content);
    EXPECT_TRUE(fails_with(status, TCPX_BAD_CONFIG, "different bytes"));
    EXPECT_TRUE(fails_with(status, TCPX_BAD_CONFIG, "offline"));
    EXPECT_TRUE(fails_with(status, TCPX_BAD_CONFIG, "/dev/urandom"));
  }
  EXPECT_TRUE(load(write("1234567812345678"), &content).ok());
}

TEST_F(AuthKeyFile, MissingFilesDirectoriesAndPipes) {
  std::string content;
  EXPECT_TRUE(fails_with(load(dir_ + "/none", &content), TCPX_BAD_CONFIG, "No such file"));
  EXPECT_TRUE(fails_with(load(dir_ + "/none", &content), TCPX_BAD_CONFIG, dir_ + "/none"));
  EXPECT_TRUE(fails_with(load(dir_, &content), TCPX_BAD_CONFIG, "not a regular file"));
  EXPECT_TRUE(fails_with(load("", &content), TCPX_BAD_CONFIG, "No such file"));
  const std::string pipe = dir_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(fails_with(load(pipe, &content), TCPX_BAD_CONFIG, "not a regular file"));
  EXPECT_TRUE(fails_with(load("/dev/zero", &content), TCPX_BAD_CONFIG, "not a regular file"));
}

TEST_F(AuthKeyFile, TellsWhenOthersCanReadIt) {
  const std::pair<mode_t, bool> cases[] = {{0600, false}, {0400, false}, {0640, true},
                                           {0604, true},  {0644, true},  {0700, false}};
  for (const auto& [mode, others] : cases) {
    KeyFile file;
    ASSERT_TRUE(load_key_file(write(kSharedText, mode), &file).ok());
    EXPECT_EQ(file.readable_by_others, others) << std::oct << mode;
    chmod((dir_ + "/key").c_str(), 0600);
  }
}

}  // namespace
}  // namespace tcpx::auth
