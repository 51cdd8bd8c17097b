#include "gpu_neighbours/servers.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "gpu_neighbours/failure.h"

namespace tcpx::bench {

namespace {

void put(int fd, const void* data, size_t size) {
  if (send(fd, data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size))
    fail("the other process is gone");
}
void get(int fd, void* data, size_t size) {
  if (recv(fd, data, size, MSG_WAITALL) != static_cast<ssize_t>(size))
    fail("the other process is gone, or silent");
}
void put_bytes(int fd, const Bytes& bytes) {
  const uint64_t size = bytes.size();
  put(fd, &size, sizeof size);
  put(fd, bytes.data(), size);
}
Bytes get_bytes(int fd) {
  uint64_t size = 0;
  get(fd, &size, sizeof size);
  Bytes bytes(size);
  get(fd, bytes.data(), size);
  return bytes;
}

void tell_region(int fd, Engine& engine, const Buffers& buffers, bool cuda) {
  const tcpx_region region =
      buffers.register_kind(engine, cuda, TCPX_REMOTE_READ | TCPX_REMOTE_WRITE);
  Bytes description;
  check(engine.export_region(region, &description), "export");
  put_bytes(fd, description);
}

// All that the process does.
void serve(int fd, const Settings& settings, bool cuda) {
  Buffers buffers(settings);
  if (cuda) buffers.load_cuda();
  Engine engine = make_engine(settings);
  put_bytes(fd, engine.connection_info());
  tell_region(fd, engine, buffers, false);
  if (cuda) tell_region(fd, engine, buffers, true);
  while (true) {
    Task task;
    get(fd, &task, sizeof task);
    if (task.what == Do::kEnd) return;
    if (task.what == Do::kLoadCuda) {
      buffers.load_cuda();
      tell_region(fd, engine, buffers, true);
      continue;
    }
    const int64_t wrong = buffers.obey(task, false);
    put(fd, &wrong, sizeof wrong);
  }
}

}  // namespace

Engine make_engine(const Settings& settings) {
  const Options options{{"interfaces", "127.0.0.1"}, {"lanes", settings.lanes}};
  Engine engine;
  check(Engine::create(options, &engine,
                       [](tcpx_log_level level, const char* line) {
                         if (level <= TCPX_LOG_WARN) std::fprintf(stderr, "%s\n", line);
                       }),
        "engine");
  return engine;
}

Bytes Server::connection_info() const {
  return get_bytes(fd);
}

void Server::learn_region(bool cuda) {
  check(Engine::import_region(get_bytes(fd), &region[cuda]), "import");
}

void Server::load_cuda() {
  const Task task{.what = Do::kLoadCuda};
  put(fd, &task, sizeof task);
  learn_region(true);
}

int64_t Server::obey(const Task& task) const {
  put(fd, &task, sizeof task);
  int64_t wrong = 0;
  get(fd, &wrong, sizeof wrong);
  return wrong;
}

Server start_server(const Settings& settings, bool cuda) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) fail("socketpair");
  Server server;
  server.pid = fork();
  if (server.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(pair[0]);
    try {
      serve(pair[1], settings, cuda);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "tcpx_gpu_neighbours: server: %s\n", error.what());
      _exit(1);
    }
    _exit(0);
  }
  close(pair[1]);
  server.fd = pair[0];
  const timeval limit{60, 0};
  setsockopt(server.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return server;
}

}  // namespace tcpx::bench
