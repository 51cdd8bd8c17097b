/* What libnccl-net-tcpx-emu.so has beyond the NCCL net plugin ABI: counters, and whether "CUDA"
 * memory is host memory. Tests and tools find it with dlsym(lib, "tcpxEmu_v1"). */
#ifndef TCPX_EMU_H
#define TCPX_EMU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TCPX_EMU_MAX_DEVICES 16

/* Of one NIC in one process, since the library was loaded; `now` and pool figures are states. Each
 * has cache lines of its own: several NICs count at the same time. */
struct __attribute__((aligned(128))) tcpx_emu_counters {
  uint64_t rx_devmem_pkts; /* fragments put into the bounce pool */
  uint64_t rx_devmem_bytes;
  uint64_t rx_host_bytes; /* bytes put straight into posted buffers */
  uint64_t tx_bytes;      /* payload bytes handed to the kernel */
  uint64_t sends;         /* isend that gave a request */
  uint64_t receives;      /* irecv that gave a request */
  uint64_t consumed;      /* irecvConsumed that succeeded */
  uint64_t comms_open;    /* now */
  uint64_t requests_live; /* now: posted and not freed, all comms */
  uint64_t requests_live_max;
  uint64_t misuses;    /* strict rules broken */
  uint64_t refusals;   /* requests refused because a comm had 16 already */
  uint64_t pool_pages; /* of the bounce pool this NIC delivers to; shared with other NICs */
  uint64_t pool_pages_free;
  uint64_t pool_pages_min_free;
  uint64_t faults_fired;
  uint64_t max_test_gap_ns; /* longest a comm with unfinished requests was out of test() */
  uint64_t late_tests;      /* how often that was more than 100 us */
  uint64_t late_tests_own;  /* of which the thread had the core for so long (TCPX_EMU_TEST_CPU) */
};

/* TCPX_EMU_COUNTERS=FILE keeps this in FILE for other processes to map and read. Every counter is
 * written with one aligned 8-byte store. */
struct tcpx_emu_counters_file {
  char magic[8];           /* "TCPXEMU1" */
  uint32_t devices;        /* of counters[] in use */
  uint32_t counters_bytes; /* sizeof(struct tcpx_emu_counters) */
  uint64_t pid;
  uint64_t reserved[13];
  struct tcpx_emu_counters counters[TCPX_EMU_MAX_DEVICES];
};

struct tcpx_emu_v1 {
  uint32_t version; /* 1 */
  uint32_t bytes;   /* sizeof(struct tcpx_emu_v1) */
  /* 1: memory of type CUDA is host memory, as there is no GPU or TCPX_EMU_DEVICE=host. */
  int (*device_is_host)(void);
  /* 0, or 4 (invalid argument) when there is no such NIC. */
  int (*counters)(int device, struct tcpx_emu_counters* out);
  /* The last rule broken in strict mode, "" if none. Valid in this thread until its next call. */
  const char* (*last_misuse)(void);
  /* requests_live_max, max_test_gap_ns and late_tests[_own] of that NIC begin anew. */
  void (*reset_maxima)(int device);
};

/* NOLINTNEXTLINE(readability-identifier-naming): a symbol that is looked up by name */
extern const struct tcpx_emu_v1 tcpxEmu_v1 __attribute__((visibility("default")));

#ifdef __cplusplus
}
#endif
#endif
