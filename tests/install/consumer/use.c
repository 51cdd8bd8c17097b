/* A C program that knows nothing but the installed header. */
#include <stdio.h>
#include <tcpx/tcpx.h>

int main(void) {
  static char memory[4096];
  const tcpx_option options[] = {{"interfaces", "lo"}};
  tcpx_engine* engine = NULL;
  tcpx_region region = 0;
  if (tcpx_engine_create(options, 1, NULL, NULL, &engine) != TCPX_OK ||
      tcpx_register(engine, memory, sizeof memory, TCPX_REMOTE_READ, &region) != TCPX_OK) {
    fprintf(stderr, "%s\n", tcpx_last_error());
    return 1;
  }
  printf("tcpx %s from C\n", tcpx_version());
  tcpx_engine_destroy(engine);
  return region == 0;
}
