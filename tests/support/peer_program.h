// The other side in a test: an engine driven by lines. One command per line, one answer per line:
//   "ok [result]"  or  "err CODE text"
// The same program runs on a thread of the test, in a re-executed test binary and as
// tcpx_test_peer, so a test does not care where its peer lives. Between commands its application
// thread sleeps in read(): a target that makes progress does so without any call.
//
//   create k=v ...                        info                     destroy      exit
//   memory NAME KIND BYTES ACCESS SEED SKEW    -> region description, hex
//   private NAME BYTES ACCESS SEED        -> the same, for no peer at all
//   fill NAME OFF LEN SEED ITER POS       check NAME OFF LEN SEED ITER POS
//   digest NAME OFF LEN -> hex            bytes NAME OFF LEN -> hex
//   sentinel NAME SEED MS                 (fills, then checks for MS that nothing lands)
//   no_trace NAME SEED ITER               (no word is what that pattern has in its place)
//   deregister NAME   suspend NAME   resume NAME      damage NAME
//   connect HEX -> peer    connect_address ADDR -> peer    wait_peer PEER MS    accept MS -> peer
//   peer_info PEER -> json                disconnect PEER
//   import NAME HEX
//   prepare ID OP PEER LOCAL LOFF REMOTE ROFF LEN
//   post ID DEADLINE_MS NOTIFY|none       wait ID MS     poll ID     cancel ID MS
//   receipt ID -> json                    release ID     error ID
//   loop ID SEED    (repeats the prepared transfer on a thread)      stop ID -> rounds code
//   notify PEER HEX MS                    next MS -> peer hex
//   counters -> json                      config -> hex              holdings -> fds threads rss
//   trim           (the allocator gives back what is free)
//   fork MS -> pid (of a child that only sleeps)
//   cut_lane       (shuts one connected socket of this process down)
//   serve WHAT     (on a thread: "peers" accepts and forgets peers; "all" takes notifications too)
#pragma once

namespace tcpx::test {

// Until "exit" or the end of input.
int run_peer_program(int in, int out);

// For main(): runs the program when the binary was started as "X --peer". -1: it was not.
int peer_main(int argc, char** argv);

}  // namespace tcpx::test
