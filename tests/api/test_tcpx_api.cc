// test_tcpx_api: two processes meet through connection info, register memory, and one WRITEs to and
// READs from the other by region id and offset; content is checked on both sides.
//
//   test_tcpx_api [NAME=VALUE...]      options of both engines, e.g. require_path=net
//   net_plugin=FILE
//
// Exit 0 and "PASSED", or 1 and what went wrong.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <tcpx/tcpx.hpp>

namespace {

using namespace std::chrono_literals;

constexpr uint64_t kBytes = (8u << 20) + 12345;
constexpr uint64_t kOffset = 4097;  // neither side starts at a page
constexpr uint64_t kLength = 5'000'001;

void must(const tcpx::Result& result, const char* what) {
  if (!result) throw std::runtime_error(std::string(what) + ": " + result.text());
}
void must(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(what);
}

uint8_t pattern(uint64_t position, uint64_t who) {
  uint64_t x = (position + 1) * 0x9e3779b97f4a7c15ull ^ who * 0xbf58476d1ce4e5b9ull;
  return static_cast<uint8_t>(x >> 37);
}

void put(int fd, const tcpx::Bytes& bytes) {
  uint64_t size = bytes.size();
  must(write(fd, &size, sizeof size) == sizeof size, "out-of-band write");
  must(write(fd, bytes.data(), size) == static_cast<ssize_t>(size), "out-of-band write");
}
tcpx::Bytes get(int fd) {
  uint64_t size = 0;
  must(read(fd, &size, sizeof size) == sizeof size && size < 65536, "out-of-band read");
  tcpx::Bytes bytes(size);
  must(read(fd, bytes.data(), size) == static_cast<ssize_t>(size), "out-of-band read");
  return bytes;
}

struct Side {
  std::vector<uint8_t> memory = std::vector<uint8_t>(kBytes);
  tcpx::Engine engine;
  tcpx_region region = 0;

  Side(const tcpx::Options& options, uint64_t who, uint32_t access) {
    for (uint64_t i = 0; i < kBytes; ++i) memory[i] = pattern(i, who);
    must(tcpx::Engine::create(options, &engine), "create");
    must(engine.register_memory(memory.data(), kBytes, access, &region), "register");
  }
};

// Waits for the initiator's two notifications; after the first one its bytes must be here.
void target(int fd, const tcpx::Options& options) {
  Side side(options, 2, TCPX_REMOTE_READ | TCPX_REMOTE_WRITE);
  tcpx::Bytes description;
  must(side.engine.export_region(side.region, &description), "export");
  put(fd, side.engine.connection_info());
  put(fd, description);
  must(get(fd).size() == 1, "word of the initiator");  // "written"
  for (uint64_t i = 0; i < kBytes; ++i) {
    bool inside = i >= kOffset && i < kOffset + kLength;
    uint8_t want = inside ? pattern(i - kOffset, 1) : pattern(i, 2);
    if (side.memory[i] != want)
      throw std::runtime_error("target: byte " + std::to_string(i) + " is wrong after the WRITE");
  }
  put(fd, {1});
  get(fd);  // "read"
}

void initiator(int fd, const tcpx::Options& options) {
  Side side(options, 1, 0);
  tcpx::Bytes info = get(fd), description = get(fd);
  tcpx_peer peer = 0;
  must(side.engine.connect(info, &peer), "connect");
  must(side.engine.peer_wait(peer, 20s), "handshake");
  tcpx_remote_region remote{};
  must(tcpx::Engine::import_region(description, &remote), "import");

  tcpx::Transfer write;
  must(side.engine.prepare(peer, TCPX_WRITE, {{side.region, 0, kLength}},
                           {{&remote, kOffset, kLength}}, &write),
       "prepare WRITE");
  must(write.post(), "post WRITE");
  must(write.wait(30s), "WRITE");
  put(fd, {1});
  must(get(fd).size() == 1, "word of the target");

  std::fill(side.memory.begin(), side.memory.end(), uint8_t{0xEE});
  tcpx::Transfer read;
  must(side.engine.prepare(peer, TCPX_READ, {{side.region, 7, kBytes - 7}},
                           {{&remote, 7, kBytes - 7}}, &read),
       "prepare READ");
  must(read.post(), "post READ");
  must(read.wait(30s), "READ");
  for (uint64_t i = 0; i < kBytes; ++i) {
    bool written = i >= kOffset && i < kOffset + kLength;
    uint8_t want = i < 7 ? 0xEE : written ? pattern(i - kOffset, 1) : pattern(i, 2);
    if (side.memory[i] != want)
      throw std::runtime_error("initiator: byte " + std::to_string(i) + " is wrong after the READ");
  }
  std::printf("path %s, %llu bytes written, %llu read\n", read.receipt().path,
              static_cast<unsigned long long>(kLength),
              static_cast<unsigned long long>(kBytes - 7));
  put(fd, {1});
}

}  // namespace

int main(int argc, char** argv) {
  tcpx::Options options = {{"interfaces", "127.0.0.1"}};
  for (int i = 1; i < argc; ++i) {
    const char* equals = std::strchr(argv[i], '=');
    if (equals == nullptr) {
      std::fprintf(stderr, "\"%s\" is not NAME=VALUE\n", argv[i]);
      return 2;
    }
    options.emplace_back(std::string(argv[i], static_cast<size_t>(equals - argv[i])), equals + 1);
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
  pid_t child = fork();
  close(ends[child == 0 ? 0 : 1]);
  try {
    if (child == 0) {
      target(ends[1], options);
      _exit(0);
    }
    initiator(ends[0], options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "FAILED: %s\n", error.what());
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  bool passed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  std::puts(passed ? "PASSED" : "FAILED: the target ended with an error");
  return passed ? 0 : 1;
}
