#include "counters.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tcpx_emu {

namespace {

tcpx_emu_counters_file g_memory;
std::atomic<tcpx_emu_counters_file*> g_counters{&g_memory};

std::string with_pid(std::string path) {
  if (size_t at = path.find("%p"); at != std::string::npos)
    path.replace(at, 2, std::to_string(::getpid()));
  return path;
}

}  // namespace

tcpx_emu_counters& counters(int device) {
  return g_counters.load()->counters[device];
}

std::string map_counters(const std::string& path, int devices) {
  static std::string mapped;  // init() is called under a lock
  std::string name = with_pid(path);
  if (name == mapped) return {};
  int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return name + ": " + std::strerror(errno);
  void* memory = MAP_FAILED;
  if (::ftruncate(fd, sizeof(tcpx_emu_counters_file)) == 0)
    memory =
        ::mmap(nullptr, sizeof(tcpx_emu_counters_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  int error = errno;
  ::close(fd);
  if (memory == MAP_FAILED) return name + ": " + std::strerror(error);
  auto* file = static_cast<tcpx_emu_counters_file*>(memory);
  std::memcpy(file, g_counters.load(), sizeof *file);
  file->devices = static_cast<uint32_t>(devices);
  file->counters_bytes = sizeof(tcpx_emu_counters);
  file->pid = static_cast<uint64_t>(::getpid());
  std::memcpy(file->magic, "TCPXEMU1", sizeof file->magic);  // last: the rest is there
  g_counters = file;  // what was mapped before stays mapped: somebody may be counting
  mapped = name;
  return {};
}

}  // namespace tcpx_emu
