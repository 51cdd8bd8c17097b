/* tcpx.h - the C interface of tcpx-p2p: authenticated one-sided transfers between processes.
 *
 * An engine owns threads, listening sockets and registered memory. A peer is an authenticated
 * remote engine. A region is registered memory; peers name it by id and offset, never by address.
 * A transfer reads from or writes to a peer's regions; it ends exactly once.
 *
 * Rules that hold for every function:
 *  - returns TCPX_OK (0) or one of the codes below; tcpx_last_error() has the text for this thread;
 *  - output arguments are written only on success;
 *  - every function may be called from any thread, except where it says otherwise;
 *  - timeouts are milliseconds; a negative one means the engine's `deadline` option. 0 as an
 * argument means not to wait; a zero field of a struct means its default;
 *  - nothing here ever calls exit() or abort(), installs a signal handler, prints or throws;
 *  - in a child of fork() the parent's handles give TCPX_UNSUPPORTED, and releasing or destroying
 *    them does nothing; the child may create engines of its own.
 */
#ifndef TCPX_TCPX_H
#define TCPX_TCPX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#error "tcpx-p2p runs on Linux"
#endif
#define TCPX_API __attribute__((visibility("default")))

#define TCPX_VERSION_MAJOR 0
#define TCPX_VERSION_MINOR 1
#define TCPX_VERSION_PATCH 0

/* Stable codes: a number never changes its meaning and is never used again. */
typedef enum tcpx_code {
  TCPX_OK = 0,
  TCPX_IN_PROGRESS = 1,        /* not an error: the transfer or the connection is still under way */
  TCPX_INVALID_ARGUMENT = 2,   /* the call is wrong; nothing happened */
  TCPX_NOT_FOUND = 3,          /* no such peer, region or transfer */
  TCPX_OUT_OF_RANGE = 4,       /* offset + length does not lie inside the region */
  TCPX_ACCESS_DENIED = 5,      /* the region's access bits do not allow this */
  TCPX_STALE_REGION = 6,       /* the region was deregistered; its id names nothing any more */
  TCPX_AUTH_FAILED = 7,        /* the other side does not hold the secret */
  TCPX_PROTOCOL_ERROR = 8,     /* the peer sent what no correct peer sends */
  TCPX_VERSION_MISMATCH = 9,   /* the peer speaks another wire version */
  TCPX_CONNECT_FAILED = 10,    /* no connection could be made */
  TCPX_PEER_DISCONNECTED = 11, /* the peer died or its connections broke */
  TCPX_PEER_CLOSED = 12,       /* the peer said goodbye */
  TCPX_PEER_TIMEOUT = 13,      /* the peer stopped answering */
  TCPX_DEADLINE = 14,          /* the deadline of this transfer or call passed */
  TCPX_CANCELLED = 15,         /* ended by tcpx_cancel, tcpx_release or tcpx_disconnect */
  TCPX_REGION_REVOKED = 16,    /* a region was deregistered while the transfer used it */
  TCPX_BAD_CONFIG = 17,        /* unknown option or bad value; the text names the nearest one */
  TCPX_PATH_UNAVAILABLE = 18,  /* require_path/allow_path cannot be satisfied */
  TCPX_BUSY = 19,              /* the object is in use (posting a transfer that is in progress) */
  TCPX_LIMIT = 20,             /* a configured limit was reached */
  TCPX_NO_MEMORY = 21,
  TCPX_SYSTEM = 22,           /* a system call failed; the text has errno */
  TCPX_BUFFER_TOO_SMALL = 23, /* *length says how many bytes are needed */
  TCPX_UNSUPPORTED = 24,
  TCPX_SHUTDOWN = 25, /* the engine is being destroyed */
  TCPX_INTERNAL = 26,
  TCPX_TAMPERED = 27,    /* connection info or region description fails its check */
  TCPX_MEMORY_GONE = 28, /* memory was unmapped while it was registered; the session goes on */
  TCPX_COPY_FAILED = 29  /* bytes could not be copied into or out of registered memory (a GPU's) */
} tcpx_code;

/* What the error destroyed: what the caller has to rebuild. */
typedef enum tcpx_blast {
  TCPX_BLAST_NOTHING = 0,
  TCPX_BLAST_TRANSFER = 1,
  TCPX_BLAST_LANE = 2,
  TCPX_BLAST_PEER = 3,
  TCPX_BLAST_ENGINE = 4
} tcpx_blast;

typedef enum tcpx_log_level {
  TCPX_LOG_ERROR = 0, /* a transfer or peer was lost */
  TCPX_LOG_WARN = 1,  /* worked, but not as asked */
  TCPX_LOG_INFO = 2,  /* a few lines per process life */
  TCPX_LOG_DEBUG = 3, /* per connection */
  TCPX_LOG_TRACE = 4  /* per transfer */
} tcpx_log_level;

/* Called from any thread, one complete line without newline. Must not call back into the engine. */
typedef void (*tcpx_log_fn)(void* user, tcpx_log_level level, const char* line);

typedef struct tcpx_engine tcpx_engine;
typedef struct tcpx_transfer tcpx_transfer;
typedef uint64_t tcpx_peer;   /* 0 is never a peer */
typedef uint64_t tcpx_region; /* 0 is never a region */

typedef struct tcpx_option {
  const char* name;  /* a row of the option table, e.g. "lanes" (see `tcpx config`) */
  const char* value; /* with unit where the row has one, e.g. "512K", "250ms" */
} tcpx_option;

/* ---- library ------------------------------------------------------------------------------ */
TCPX_API const char* tcpx_version(void);             /* "0.1.0" */
TCPX_API const char* tcpx_code_name(tcpx_code code); /* "deadline" */
TCPX_API const char* tcpx_last_error(void);          /* text of this thread's last failure */
TCPX_API tcpx_blast tcpx_last_blast(void);           /* what that failure destroyed */

/* One row of the option table, as text; valid for ever. */
typedef struct tcpx_option_info {
  const char* name;          /* of tcpx_option; TCPX_<NAME> in the environment */
  const char* unit;          /* "bytes", "time", "count", ... */
  const char* default_value; /* "" where the default is none */
  const char* range;
  const char* help;
  const char* aliases; /* other variables of the environment that set it, comma-separated */
} tcpx_option_info;
/* Row `index`, counted from 0; TCPX_NOT_FOUND behind the last one. */
TCPX_API tcpx_code tcpx_option_get(size_t index, tcpx_option_info* info);

/* ---- engine ------------------------------------------------------------------------------- */

/* Options come from, first wins: this list, TCPX_* in the environment, aliases, defaults.
 * `log` may be NULL (then nothing is ever printed). */
TCPX_API tcpx_code tcpx_engine_create(const tcpx_option* options, size_t option_count,
                                      tcpx_log_fn log, void* log_user, tcpx_engine** engine);
/* Says goodbye to every peer, ends every transfer, joins every thread. Transfers not yet released
 * stay valid handles (poll tells how they ended) and must still be released. */
TCPX_API void tcpx_engine_destroy(tcpx_engine* engine);

/* Opaque, versioned, tamper-evident bytes by which others connect to this engine. Constant for the
 * engine's life. Without a configured key they carry the engine's secret: treat them like one.
 * On entry *length is the buffer's size, on return the needed one. */
TCPX_API tcpx_code tcpx_connection_info(tcpx_engine* engine, void* buffer, size_t* length);

/* All effective options with value and origin, as text: "name=value (origin)\n"... */
TCPX_API tcpx_code tcpx_config_text(tcpx_engine* engine, char* buffer, size_t* length);

/* Counters of engine, peers and lanes as one JSON document. */
TCPX_API tcpx_code tcpx_counters_json(tcpx_engine* engine, char* buffer, size_t* length);

/* ---- peers -------------------------------------------------------------------------------- */

/* Starts connecting in the background and returns at once. Transfers may be prepared and posted
 * right away; they wait for the connection within their deadline. */
TCPX_API tcpx_code tcpx_connect(tcpx_engine* engine, const void* info, size_t length,
                                tcpx_peer* peer);
/* The same by "host:port" or "[v6]:port", for engines that share a configured key. A name is looked
 * up in the background, within connect_timeout; TCPX_LIMIT: many wait for the resolver already. */
TCPX_API tcpx_code tcpx_connect_address(tcpx_engine* engine, const char* address, tcpx_peer* peer);
/* TCPX_OK once connected, TCPX_IN_PROGRESS if still connecting after the timeout, else why not. */
TCPX_API tcpx_code tcpx_peer_wait(tcpx_engine* engine, tcpx_peer peer, int64_t timeout_ms);
/* Next peer that connected to us, in order of arrival; TCPX_IN_PROGRESS if none came in time. */
TCPX_API tcpx_code tcpx_accept(tcpx_engine* engine, int64_t timeout_ms, tcpx_peer* peer);
/* Ends the peer's transfers, says goodbye, closes, forgets the peer. TCPX_DEADLINE: all of that,
 * but a copy or a plugin's call that does not end still uses memory, until tcpx_deregister of it
 * returns TCPX_OK. */
TCPX_API tcpx_code tcpx_disconnect(tcpx_engine* engine, tcpx_peer peer);

/* In structs that may grow, `struct_size` is sizeof the struct as the caller knows it, or 0 for
 * what it was in version 0.1. Set it, or the whole struct to zero, before every call. */
typedef struct tcpx_peer_info {
  size_t struct_size;
  tcpx_code state;      /* OK: connected; IN_PROGRESS: connecting; else how it ended */
  uint32_t lanes;       /* live lanes */
  uint64_t generation;  /* of this session; a reconnect has another one */
  char engine_id[33];   /* the remote engine, hex */
  char name[64];        /* its `name` option */
  char path[16];        /* "tcp", "net", or "net+tcp" where lanes go by both */
  char interfaces[128]; /* comma-separated local interfaces in use */
} tcpx_peer_info;
TCPX_API tcpx_code tcpx_peer_get(tcpx_engine* engine, tcpx_peer peer, tcpx_peer_info* info);

/* ---- memory ------------------------------------------------------------------------------- */
#define TCPX_REMOTE_READ 1u  /* peers may READ from it */
#define TCPX_REMOTE_WRITE 2u /* peers may WRITE to it */

/* Where memory lies. */
typedef enum tcpx_memory { TCPX_MEMORY_HOST = 0, TCPX_MEMORY_CUDA = 1 } tcpx_memory;

/* Works before any connection exists. Zero access bits: usable as the local side only. Finds out
 * by itself where the memory lies (tcpx_register_as says so); all of it has to lie in one place. */
TCPX_API tcpx_code tcpx_register(tcpx_engine* engine, void* address, uint64_t length,
                                 uint32_t access, tcpx_region* region);
typedef struct tcpx_register_args {
  size_t struct_size;
  uint32_t access;
  uint32_t memory;        /* tcpx_memory */
  uint32_t device;        /* its number; 0 for host memory */
  uint32_t for_peers;     /* 1: for these peers only, see tcpx_register_for; 0: for all */
  const tcpx_peer* peers; /* may be NULL with a count of 0 */
  size_t peer_count;
} tcpx_register_args;
/* With all that can be said of it. TCPX_UNSUPPORTED: this engine cannot move memory of that kind.
 */
TCPX_API tcpx_code tcpx_register_as(tcpx_engine* engine, void* address, uint64_t length,
                                    const tcpx_register_args* args, tcpx_region* region);
/* The same, for these peers only; others are refused with TCPX_ACCESS_DENIED, whatever they know of
 * it. `peers` may be NULL with a count of 0: for nobody yet. A peer that is disconnected and comes
 * again is another peer. Region descriptions do not say for whom a region is. */
TCPX_API tcpx_code tcpx_register_for(tcpx_engine* engine, void* address, uint64_t length,
                                     uint32_t access, const tcpx_peer* peers, size_t count,
                                     tcpx_region* region);
/* One more peer, or one less, for a region of tcpx_register_for, also while it is suspended. Taking
 * back is a fence as tcpx_deregister is, for that peer; TCPX_DEADLINE: it still used the memory.
 * Giving or taking twice is fine. TCPX_UNSUPPORTED: the region is open to every peer. */
TCPX_API tcpx_code tcpx_grant(tcpx_engine* engine, tcpx_region region, tcpx_peer peer);
TCPX_API tcpx_code tcpx_revoke_grant(tcpx_engine* engine, tcpx_region region, tcpx_peer peer);
/* A fence: when it returns, no later byte lands in the memory and none is read from it. Transfers
 * that still use it end with TCPX_REGION_REVOKED. */
TCPX_API tcpx_code tcpx_deregister(tcpx_engine* engine, tcpx_region region);

/* As tcpx_deregister, the same fence, but the id is kept: while suspended it names nothing, and
 * tcpx_resume makes it name the same memory again, so that descriptions peers hold are good again.
 * The memory may be freed meanwhile, if it is valid again before tcpx_resume. tcpx_deregister ends
 * a suspended region too.
 * A transfer that a peer has posted before tcpx_resume never touches the memory after it, whether
 * anything of it had reached this engine or not: it ends with TCPX_STALE_REGION. */
TCPX_API tcpx_code tcpx_suspend(tcpx_engine* engine, tcpx_region region);
/* Tells every peer and waits, half a second at most, until all have heard, so that what they post
 * after this has returned is served. A peer that does not answer (a stopped process) is waited for
 * once; what it posts before it has heard is refused with TCPX_STALE_REGION. TCPX_NOT_FOUND: the
 * region is not suspended. */
TCPX_API tcpx_code tcpx_resume(tcpx_engine* engine, tcpx_region region);

/* A region as a peer names it. Value type; make one with tcpx_region_import. */
typedef struct tcpx_remote_region {
  uint8_t engine_id[16];
  uint64_t id;
  uint64_t length;
  uint32_t access;
  uint16_t memory; /* tcpx_memory */
  uint16_t device;
  uint64_t chunk_bytes; /* memory of a GPU: most that is moved at a time; else 0 */
} tcpx_remote_region;
TCPX_API tcpx_code tcpx_region_export(tcpx_engine* engine, tcpx_region region, void* buffer,
                                      size_t* length);
TCPX_API tcpx_code tcpx_region_import(const void* bytes, size_t length, tcpx_remote_region* region);

/* ---- transfers ---------------------------------------------------------------------------- */
typedef enum tcpx_op { TCPX_WRITE = 0, TCPX_READ = 1 } tcpx_op;

typedef struct tcpx_local_piece {
  tcpx_region region;
  uint64_t offset;
  uint64_t length;
} tcpx_local_piece;
typedef struct tcpx_remote_piece {
  const tcpx_remote_region* region;
  uint64_t offset;
  uint64_t length;
} tcpx_remote_piece;

/* Piece i of `local` pairs with piece i of `remote`, equal lengths; zero-length pieces are fine.
 * Everything that grows with the number of pieces happens here; the lists may be freed after. */
TCPX_API tcpx_code tcpx_prepare(tcpx_engine* engine, tcpx_peer peer, tcpx_op op,
                                const tcpx_local_piece* local, const tcpx_remote_piece* remote,
                                size_t pieces, tcpx_transfer** transfer);

typedef struct tcpx_post_args {
  size_t struct_size;
  const void* notify; /* bytes delivered to the peer after the data is visible; may be NULL */
  size_t notify_length;
  int32_t has_notify; /* 0: no notification (notify is ignored); 1: send it, even if empty */
  int32_t reserved;
  int64_t deadline_ms; /* counted from this call; 0 or less: the engine's `deadline` option */
} tcpx_post_args;      /* all zero: no notification, the default deadline */
/* Starts the transfer and returns without waiting for data. `args` may be NULL. A transfer that
 * has ended may be posted again; one in progress gives TCPX_BUSY, and so does a WRITE that failed
 * while what it had sent may still land at the peer: tcpx_cancel waits for that. */
TCPX_API tcpx_code tcpx_post(tcpx_transfer* transfer, const tcpx_post_args* args);
/* TCPX_IN_PROGRESS, TCPX_OK (done: bytes are at the destination, visible), or how it failed.
 * Idempotent. Makes progress on the calling thread, for up to 20 us for who polls this transfer and
 * no other of its peer again and again; where the engine's threads leave no core free that may be a
 * sleep of up to a millisecond. TCPX_INVALID_ARGUMENT if never posted. */
TCPX_API tcpx_code tcpx_poll(tcpx_transfer* transfer);
/* As poll, but waits up to the timeout for the end. */
TCPX_API tcpx_code tcpx_wait(tcpx_transfer* transfer, int64_t timeout_ms);
/* A fence. TCPX_OK: no later byte of this transfer is read or written on either side, whatever had
 * ended it before. TCPX_DEADLINE: true for local memory; what a WRITE had sent may still land at
 * the peer, and calling again goes on waiting for its answers. A peer error: the session ended
 * before they came, and they never will. TCPX_PATH_UNAVAILABLE: a net plugin, or the kernel in a
 * page fault of it, may still use local memory: do not free it, call again. The transfer ends in
 * TCPX_CANCELLED unless it ended before, or while this call waited for the peer. */
TCPX_API tcpx_code tcpx_cancel(tcpx_transfer* transfer, int64_t timeout_ms);
/* Frees the handle. In progress: cancelled without waiting for the peer; local memory is safe to
 * reuse when this returns, however long a copy of GPU memory takes to end (unless a net plugin
 * hangs in a call with it: then the session ends, and the log says so). What a WRITE has sent may
 * still land at the peer, unless tcpx_cancel said TCPX_OK before. NULL is fine, and so is one that
 * was released before: a handle is never given twice, and other functions answer
 * TCPX_INVALID_ARGUMENT for it. Other threads may be inside calls on this transfer: what they wait
 * for ends (in TCPX_CANCELLED, unless it was over before), and this call returns when they are out.
 */
TCPX_API void tcpx_release(tcpx_transfer* transfer);

typedef struct tcpx_receipt {
  size_t struct_size;
  tcpx_code result;
  tcpx_op op;
  char path[16];        /* as in tcpx_peer_info */
  char interfaces[128]; /* local interfaces that carried it, comma-separated */
  uint64_t bytes;
  uint64_t pieces; /* as given */
  uint64_t runs;   /* after joining neighbours */
  uint64_t chunks;
  uint64_t staging_copies; /* bytes copied once more on the way, on this side */
  uint64_t retries;        /* chunks sent again after a lane was lost */
  uint32_t lanes_used;
  uint32_t lanes_lost; /* while it ran */
  uint64_t peer_generation;
  double queued_us; /* post to first chunk out */
  double moving_us; /* first chunk out to last chunk confirmed */
  double notify_us; /* notification sent to confirmed; 0 without one */
  double total_us;  /* post to end */

  /* Since struct_size 256. Kinds of memory at both ends, as this side knows them: "host", "cuda",
   * "host+cuda". */
  char local_memory[16];
  char remote_memory[16];
  /* Memory that lanes cannot touch, a GPU's above all, passes through slots. What follows is about
   * that, and about this side alone: what the peer does is part of moving_us. All 0 where nothing
   * is staged, as host memory on tcp. */
  uint64_t staged_out;      /* bytes out of memory into slots, before they left */
  uint64_t staged_in;       /* bytes out of slots into memory, after they arrived */
  uint64_t copies;          /* copies that the GPU's copy engine was asked for */
  uint64_t kernels;         /* kernels that were launched */
  uint64_t kernels_missing; /* chunks of many pieces that the copy engine took piece by piece:
                               there are no kernels here, or they did not start */
  /* By the wall clock: what several chunks wait for at once counts once, so none of these is more
   * than total_us. They overlap each other, and the network's time. */
  double slot_wait_us;   /* a chunk could not go on for want of a slot */
  double submit_wait_us; /* a chunk was handed to the GPU's thread, and its copies or kernels not
                            all to CUDA: the thread has other work, or waits for CUDA's lock */
  double staging_us;     /* CUDA had a chunk's copies or kernels, and they were not seen to be over;
                            with staging=host, the CPU moved it */
} tcpx_receipt;
TCPX_API tcpx_code tcpx_receipt_get(tcpx_transfer* transfer, tcpx_receipt* receipt);
/* The same as one JSON document, with bytes and chunks per lane. */
TCPX_API tcpx_code tcpx_receipt_json(tcpx_transfer* transfer, char* buffer, size_t* length);
/* Text of how the transfer failed; "" if it did not. Valid until the transfer is posted again or
 * released. */
TCPX_API const char* tcpx_transfer_error(tcpx_transfer* transfer);

/* ---- notifications ------------------------------------------------------------------------ */

/* Any bytes, also none; exactly once or an error. Waits for the peer's confirmation; with a timeout
 * of 0 it does not, and TCPX_DEADLINE says that the notification is on its way. TCPX_LIMIT: it was
 * not sent, too many wait until the peer's application reads (option outbox_bytes). */
TCPX_API tcpx_code tcpx_notify(tcpx_engine* engine, tcpx_peer peer, const void* bytes,
                               size_t length, int64_t timeout_ms);
/* Oldest notification received. On entry *length is the buffer's size. TCPX_IN_PROGRESS if none
 * came in time; TCPX_BUFFER_TOO_SMALL leaves it queued. `peer` may be NULL. */
TCPX_API tcpx_code tcpx_next_notification(tcpx_engine* engine, int64_t timeout_ms, tcpx_peer* peer,
                                          void* buffer, size_t* length);

#ifdef __cplusplus
}
#endif
#endif /* TCPX_TCPX_H */
