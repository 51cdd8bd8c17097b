// Writes the seed corpora of the fuzz targets with the real encoders. Run it again after a change
// of the wire format:
//   g++ -std=c++20 -Iinclude -Isrc -DFMT_HEADER_ONLY tests/fuzz/make_corpus.cc src/wire/*.cc
//       src/base/status.cc src/base/text.cc -lcrypto -o /tmp/make_corpus && /tmp/make_corpus
//       tests/fuzz/corpus
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/blobs.h"
#include "wire/frame.h"
#include "wire/handshake.h"

namespace {

using namespace tcpx;
using namespace tcpx::wire;
using Bytes = std::vector<uint8_t>;

std::filesystem::path root;

void save(const std::string& target, const std::string& name, std::span<const uint8_t> bytes) {
  std::filesystem::create_directories(root / target);
  std::ofstream file(root / target / ("seed_" + name), std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) {
    std::cerr << "cannot write " << (root / target / name) << '\n';
    std::exit(1);
  }
}

void append(Bytes* out, std::span<const uint8_t> bytes) {
  out->insert(out->end(), bytes.begin(), bytes.end());
}

// ---- frames -------------------------------------------------------------------------------------

// As in fuzz_frame.cc: limits first (512 KiB chunks, 4 KiB notifications), payload shortened.
Bytes stream() {
  return {0x00, 0x02, 0x00, 0x10};
}

void add_frame(Bytes* out, const Header& header, std::span<const Piece> pieces = {}) {
  std::array<uint8_t, kHeaderBytes> head;
  encode_header(header, head);
  append(out, head);
  if (header.piece_count > 1) {
    Bytes table(pieces.size() * kPieceBytes);
    encode_pieces(pieces, table.data());
    append(out, table);
  }
  if (!header.has_payload()) return;
  out->insert(out->end(), std::min<uint64_t>(header.payload_bytes, 8), 'p');
  std::array<uint8_t, kTrailerBytes> trailer;
  encode_trailer({TCPX_OK, header.sequence}, trailer);
  append(out, trailer);
}

Header header_of(FrameType type) {
  Header header;
  header.type = type;
  return header;
}

Header one_piece(FrameType type, uint64_t bytes) {
  Header header = header_of(type);
  header.transfer = 11;
  header.chunk = 2;
  header.payload_bytes = bytes;
  header.piece_count = 1;
  header.aux = 5;
  header.piece = {uint64_t{4} << 32 | 3, 4096, bytes};
  return header;
}

void save_frame(const std::string& name, const Header& header, std::span<const Piece> pieces = {}) {
  Bytes bytes = stream();
  add_frame(&bytes, header, pieces);
  save("fuzz_frame", name, bytes);
}

void frames() {
  const std::array<Piece, 3> pieces = {Piece{0x100000001, 0, 100}, Piece{0x100000001, 200, 0},
                                       Piece{0x500000009, UINT64_MAX, 156}};
  save_frame("write", one_piece(FrameType::kWrite, 512 << 10));
  save_frame("write_nothing", one_piece(FrameType::kWrite, 0));
  save_frame("read", one_piece(FrameType::kRead, 4096));
  for (FrameType type : {FrameType::kWrite, FrameType::kRead}) {
    Header table = one_piece(type, 256);
    table.piece_count = pieces.size();
    save_frame(type == FrameType::kWrite ? "write_table" : "read_table", table, pieces);
  }
  Header answer = header_of(FrameType::kAck);
  answer.transfer = 11;
  answer.chunk = 2;
  save_frame("ack", answer);
  answer.status = TCPX_ACCESS_DENIED;
  save_frame("ack_denied", answer);
  answer.type = FrameType::kReadFailed;
  save_frame("read_failed", answer);
  Header data = header_of(FrameType::kData);
  data.payload_bytes = 4096;
  save_frame("data", data);
  Header notify = header_of(FrameType::kNotify);
  notify.payload_bytes = 5;
  notify.transfer = 1;
  save_frame("notify", notify);
  Header behind = header_of(FrameType::kNotifyBehind);
  behind.payload_bytes = 5;
  behind.transfer = 11;
  behind.chunk = 2;
  save_frame("notify_behind", behind);
  Header down = header_of(FrameType::kLaneDown);
  down.chunk = 3;
  save_frame("lane_down", down);

  Bytes session = stream();  // every type once, as one stream
  for (uint8_t type = 1; type <= static_cast<uint8_t>(FrameType::kNotifyBehindAck); ++type) {
    Header header = header_of(static_cast<FrameType>(type));
    if (type <= 2) header = one_piece(header.type, 5);
    if (header.type == FrameType::kReadFailed) header.status = TCPX_STALE_REGION;
    header.sequence = type;
    add_frame(&session, header);
  }
  save("fuzz_frame", "session", session);
}

// ---- handshake ----------------------------------------------------------------------------------

template <size_t Size, class Message>
void save_message(const std::string& name, uint8_t selector, const Message& message) {
  std::array<uint8_t, Size> encoded;
  encode(message, encoded);
  Bytes bytes = {selector};
  append(&bytes, encoded);
  save("fuzz_handshake", name, bytes);
}

std::vector<Address> addresses() {
  return {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7}, 20000, 120},
          {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}, 65535, 64}};
}

void handshakes() {
  Hello hello;
  hello.uid.fill(1);
  hello.target_uid.fill(2);
  hello.nonce.fill(3);
  hello.lanes = 4;
  hello.chunk_bytes = 512 << 10;
  hello.window = 16;
  hello.epoch = 5;
  hello.key_id = 6;
  hello.name = "client";
  hello.knock.fill(9);
  save_message<kHelloBytes>("hello", 0, hello);
  hello.paths = kTcpPath | kNetPath | 0x8000;
  save_message<kHelloBytes>("hello_paths", 0, hello);
  hello.authenticated = false;
  save_message<kHelloBytes>("hello_open", 0, hello);
  hello.kind = HelloKind::kJoinLane;
  hello.session = 77;
  hello.lane = 3;
  save_message<kHelloBytes>("hello_join", 0, hello);
  hello.versions.newest = kWireVersion + 1;
  save_message<kHelloBytes>("hello_newer_too", 0, hello);
  hello.versions.oldest = kWireVersion + 1;
  save_message<kHelloBytes>("hello_newer", 0, hello);

  Challenge challenge;
  challenge.uid.fill(2);
  challenge.nonce.fill(4);
  challenge.proof.fill(5);
  save_message<kChallengeBytes>("challenge", 1, challenge);
  challenge.status = TCPX_AUTH_FAILED;
  save_message<kChallengeBytes>("challenge_refused", 1, challenge);
  save_message<kProofMessageBytes>("proof", 2, Proof{challenge.proof});

  Welcome welcome;
  welcome.status = TCPX_LIMIT;
  save_message<kWelcomeBytes>("welcome_refused", 3, welcome);
  welcome.status = TCPX_OK;
  welcome.session = 77;
  welcome.lanes = 4;
  welcome.chunk_bytes = 512 << 10;
  welcome.window = 16;
  welcome.epoch = 7;
  welcome.mac.fill(8);
  welcome.name = "server";
  save_message<kWelcomeBytes>("welcome", 3, welcome);
  welcome.paths = kTcpPath | kNetPath;
  welcome.addresses = addresses();
  save_message<kWelcomeBytes>("welcome_addresses", 3, welcome);
  welcome.addresses.assign(kMaxAddresses, addresses()[0]);
  save_message<kWelcomeBytes>("welcome_full", 3, welcome);
}

// ---- blobs --------------------------------------------------------------------------------------

void save_blob(const std::string& name, uint8_t mode, std::span<const uint8_t> blob) {
  Bytes bytes = {mode};
  append(&bytes, blob);
  save("fuzz_connection_info", name, bytes);
}

void blobs() {
  constexpr std::string_view kKey =
      "fuzzing key, 16 bytes or more";  // as in fuzz_connection_info.cc
  const std::span<const uint8_t> key(reinterpret_cast<const uint8_t*>(kKey.data()), kKey.size());
  ConnectionInfo info;
  info.uid.fill(1);
  info.secret.fill(2);
  info.name = "node:1";
  info.addresses = addresses();
  save_blob("secret", 0, encode_connection_info(info, {}));
  save_blob("secret_repaired", 4, encode_connection_info(info, {}));
  info.auth = AuthMode::kOpen;
  info.secret = {};
  save_blob("open", 0, encode_connection_info(info, {}));
  save_blob("open_repaired", 4, encode_connection_info(info, {}));
  info.auth = AuthMode::kSharedKey;
  save_blob("shared", 2, encode_connection_info(info, key));
  save_blob("shared_repaired", 6, encode_connection_info(info, key));
  save_blob("shared_no_key", 0, encode_connection_info(info, key));
  info.name.assign(kNameBytes - 1, 'n');
  info.addresses.assign(kMaxAddresses, addresses()[1]);
  save_blob("largest_repaired", 6, encode_connection_info(info, key));

  RegionDescription region;
  region.uid.fill(1);
  region.id = uint64_t{3} << 32 | 7;
  region.length = uint64_t{1} << 40;
  region.access = TCPX_REMOTE_READ | TCPX_REMOTE_WRITE;
  save_blob("region", 1, encode_region(region));
  save_blob("region_repaired", 5, encode_region(region));
}

// ---- configuration ------------------------------------------------------------------------------

void configs() {
  const std::pair<const char*, std::string_view> seeds[] = {
      {"empty", ""},
      {"usual", "TCPX_LANES=4\nTCPX_CHUNK_BYTES=512K\nTCPX_DEADLINE=30s\nPATH=/bin\n"},
      {"api", "@lanes=8\n@window=32\n@striping=round_robin\n@auth=off\nTCPX_LANES=2"},
      {"times", "TCPX_SPIN=50us\nTCPX_KEEPALIVE=250ms\nTCPX_PEER_TIMEOUT=2m\n@lane_timeout=1h"},
      {"key", "TCPX_AUTH_KEY=0123456789abcdef0123\n@log_level=debug"},
      {"network", "TCPX_INTERFACES=eth0,10.0.0.0/8\nTCPX_PORT_RANGE=20000-20099\n@listen=[::1]"},
      {"aliases",
       "UCCL_TCPX_NUM_CHANNELS=2\nUCCL_TCPX_CHUNK_BYTES=1048576\nNCCL_P2P_NET_CHUNKSIZE=1"},
      {"unknown", "TCPX_LANSE=4"},
      {"bad", "TCPX_LANES=-1\n@chunk_bytes=99999999999999999999G"},
      {"others", "TCPX_EMU_FAULT=x\nTCPX_TEST_SEED=1\nTCPX_\n=\nNOEQUALS"},
  };
  for (const auto& [name, text] : seeds) {
    save("fuzz_config", name, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_corpus CORPUS_FOLDER\n";
    return 2;
  }
  root = argv[1];
  frames();
  handshakes();
  blobs();
  configs();
  return 0;
}
