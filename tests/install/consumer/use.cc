// A C++ program that knows nothing but the installed header.
#include <cstdio>
#include <tcpx/tcpx.hpp>

int main() {
  static char memory[4096];
  tcpx::Engine engine;
  tcpx_region region = 0;
  tcpx::Result result = tcpx::Engine::create({{"interfaces", "lo"}}, &engine);
  if (result) result = engine.register_memory(memory, sizeof memory, TCPX_REMOTE_WRITE, &region);
  if (!result) return std::fprintf(stderr, "%s\n", result.text().c_str()), 1;
  std::printf("tcpx %s from C++\n", tcpx_version());
}
