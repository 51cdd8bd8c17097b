#include "peer_program.h"

#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <tcpx/tcpx.hpp>

#include "hex.h"
#include "log.h"
#include "memory.h"
#include "proc.h"

namespace tcpx::test {
namespace {

class PeerProgram {
 public:
  PeerProgram(int in, int out) : in_(in), out_(out) {}
  ~PeerProgram() {
    stop_serving();
    stop_loops();
  }

  // Until "exit" or the end of input.
  int run() {
    std::string line;
    while (read_line(&line)) {
      if (line == "exit") {
        answer("ok");
        return 0;
      }
      answer(execute(line));
    }
    return 0;
  }

 private:
  struct Failure {
    tcpx_code code;
    std::string text;
  };
  class Args {
   public:
    explicit Args(const std::string& line) : in_(line) {}
    std::string text() {
      std::string word;
      if (!(in_ >> word)) throw Failure{TCPX_INVALID_ARGUMENT, "missing argument"};
      return word;
    }
    uint64_t number() { return std::stoull(text()); }
    int64_t ms() { return std::stoll(text()); }
    bool more() { return (in_ >> std::ws).good() && in_.peek() != EOF; }

   private:
    std::istringstream in_;
  };
  struct Block {
    std::unique_ptr<Memory> memory;
    tcpx_region region = 0;
  };
  struct Job {
    Transfer transfer;
    tcpx_op op = TCPX_WRITE;
    Block* block = nullptr;
    uint64_t offset = 0, length = 0;
    std::thread loop;
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> rounds{0};
    tcpx_code last = TCPX_OK;
  };
  using Handler = std::string (PeerProgram::*)(Args&);

  std::string execute(const std::string& line) {
    try {
      Args args(line);
      auto& table = handlers();
      auto found = table.find(args.text());
      if (found == table.end()) throw Failure{TCPX_INVALID_ARGUMENT, "no such command"};
      std::string result = (this->*found->second)(args);
      return result.empty() ? "ok" : "ok " + result;
    } catch (const Failure& failure) {
      return "err " + std::to_string(failure.code) + " " + failure.text;
    } catch (const std::exception& error) {
      return "err " + std::to_string(TCPX_INTERNAL) + " " + error.what();
    }
  }

  static const std::map<std::string, Handler>& handlers() {
    using P = PeerProgram;
    static const std::map<std::string, Handler> table = {
        {"create", &P::create},
        {"info", &P::info},
        {"destroy", &P::destroy},
        {"memory", &P::memory},
        {"private", &P::private_memory},
        {"fill", &P::fill_block},
        {"check", &P::check},
        {"digest", &P::digest_block},
        {"bytes", &P::bytes},
        {"sentinel", &P::sentinel},
        {"no_trace", &P::no_trace},
        {"deregister", &P::deregister},
        {"suspend", &P::suspend},
        {"resume", &P::resume},
        {"damage", &P::damage},
        {"connect", &P::connect},
        {"connect_address", &P::connect_address},
        {"wait_peer", &P::wait_peer},
        {"accept", &P::accept},
        {"peer_info", &P::peer_info},
        {"disconnect", &P::disconnect},
        {"import", &P::import},
        {"prepare", &P::prepare},
        {"post", &P::post},
        {"wait", &P::wait},
        {"poll", &P::poll},
        {"cancel", &P::cancel},
        {"receipt", &P::receipt},
        {"release", &P::release},
        {"error", &P::error},
        {"loop", &P::loop},
        {"stop", &P::stop},
        {"notify", &P::notify},
        {"next", &P::next},
        {"counters", &P::counters},
        {"config", &P::config},
        {"holdings", &P::holdings},
        {"cut_lane", &P::cut_lane},
        {"fork", &P::fork_sleeper},
        {"serve", &P::serve},
        {"trim", &P::trim},
    };
    return table;
  }

  static void need(const Result& result) {
    if (!result) throw Failure{result.code(), result.text()};
  }
  template <class T>
  static T& at(std::map<std::string, T>& map, const std::string& name) {
    auto found = map.find(name);
    if (found == map.end()) throw Failure{TCPX_NOT_FOUND, "no such name: " + name};
    return found->second;
  }

  // ---- engine ----
  std::string create(Args& args) {
    Options options;
    while (args.more()) {
      std::string pair = args.text();
      size_t equals = pair.find('=');
      options.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    }
    need(Engine::create(options, &engine_, log_to_stderr()));
    return {};
  }
  std::string info(Args&) { return to_hex(engine_.connection_info()); }
  std::string destroy(Args&) {
    stop_serving();
    engine_.destroy();
    return {};
  }
  std::string counters(Args&) { return one_line(engine_.counters_json()); }
  std::string config(Args&) { return to_hex(engine_.config_text()); }
  std::string holdings(Args&) {
    return std::to_string(open_fds()) + " " + std::to_string(thread_count()) + " " +
           std::to_string(rss_bytes());
  }

  // ---- memory ----
  std::string memory(Args& args) {
    std::string name = args.text();
    std::string kind = args.text();
    uint64_t size = args.number();
    auto access = static_cast<uint32_t>(args.number());
    uint64_t seed = args.number();
    Block block;
    block.memory = allocate(kind, size, args.number());
    if (kind != "sparse") fill(*block.memory, 0, content_size(kind, size), Pattern(seed), 0);
    need(engine_.register_memory(block.memory->address(), size, access, &block.region));
    return keep(name, std::move(block));
  }
  std::string private_memory(Args& args) {
    std::string name = args.text();
    uint64_t size = args.number();
    auto access = static_cast<uint32_t>(args.number());
    Block block;
    block.memory = allocate("host", size);
    fill(*block.memory, 0, size, Pattern(args.number()), 0);
    need(engine_.register_for(block.memory->address(), size, access, {}, &block.region));
    return keep(name, std::move(block));
  }
  std::string keep(const std::string& name, Block block) {
    Bytes description;
    need(engine_.export_region(block.region, &description));
    blocks_[name] = std::move(block);
    return to_hex(description);
  }
  std::string fill_block(Args& args) {
    Block& block = at(blocks_, args.text());
    uint64_t offset = args.number(), length = args.number();
    uint64_t seed = args.number(), iteration = args.number();
    fill(*block.memory, offset, length, Pattern(seed, iteration), args.number());
    return {};
  }
  std::string check(Args& args) {
    Block& block = at(blocks_, args.text());
    uint64_t offset = args.number(), length = args.number();
    uint64_t seed = args.number(), iteration = args.number();
    int64_t bad = mismatch(*block.memory, offset, length, Pattern(seed, iteration), args.number());
    if (bad >= 0) throw Failure{TCPX_INTERNAL, "content wrong at " + std::to_string(bad)};
    return {};
  }
  std::string digest_block(Args& args) {
    Block& block = at(blocks_, args.text());
    uint64_t offset = args.number();
    return std::to_string(digest(*block.memory, offset, args.number()));
  }
  std::string bytes(Args& args) {
    Block& block = at(blocks_, args.text());
    uint64_t offset = args.number();
    std::vector<uint8_t> out(args.number());
    block.memory->load(offset, out.data(), out.size());
    return to_hex(out);
  }
  std::string sentinel(Args& args) {
    Block& block = at(blocks_, args.text());
    Pattern pattern(args.number(), 0x5e);
    Ms time{args.ms()};
    fill(*block.memory, 0, block.memory->size(), pattern, 0);
    for (Stopwatch watch; watch.elapsed() < time;) {
      int64_t bad = mismatch(*block.memory, 0, block.memory->size(), pattern, 0);
      if (bad >= 0) throw Failure{TCPX_INTERNAL, "a foreign byte landed at " + std::to_string(bad)};
    }
    return {};
  }
  std::string no_trace(Args& args) {
    Block& block = at(blocks_, args.text());
    uint64_t seed = args.number();
    uint64_t found = first_trace(*block.memory, Pattern(seed, args.number()));
    if (found < block.memory->size())
      throw Failure{TCPX_INTERNAL, "has it at " + std::to_string(found)};
    return {};
  }
  std::string deregister(Args& args) {
    need(engine_.deregister(at(blocks_, args.text()).region));
    return {};
  }
  std::string suspend(Args& args) {
    need(engine_.suspend(at(blocks_, args.text()).region));
    return {};
  }
  std::string resume(Args& args) {
    need(engine_.resume(at(blocks_, args.text()).region));
    return {};
  }
  std::string damage(Args& args) { return at(blocks_, args.text()).memory->damage(); }

  // ---- peers ----
  std::string connect(Args& args) {
    tcpx_peer peer = 0;
    need(engine_.connect(from_hex(args.text()), &peer));
    return std::to_string(peer);
  }
  std::string connect_address(Args& args) {
    tcpx_peer peer = 0;
    need(engine_.connect_address(args.text(), &peer));
    return std::to_string(peer);
  }
  std::string wait_peer(Args& args) {
    tcpx_peer peer = args.number();
    need(engine_.peer_wait(peer, Millis{args.ms()}));
    return {};
  }
  std::string accept(Args& args) {
    tcpx_peer peer = 0;
    need(engine_.accept(&peer, Millis{args.ms()}));
    return std::to_string(peer);
  }
  std::string peer_info(Args& args) {
    tcpx_peer_info info{};
    need(engine_.peer_info(args.number(), &info));
    return std::to_string(info.state) + " " + std::to_string(info.lanes) + " " +
           std::to_string(info.generation) + " " + info.interfaces;
  }
  std::string disconnect(Args& args) {
    need(engine_.disconnect(args.number()));
    return {};
  }
  std::string import(Args& args) {
    std::string name = args.text();
    need(Engine::import_region(from_hex(args.text()), &remotes_[name]));
    return {};
  }

  // ---- transfers ----
  std::string prepare(Args& args) {
    std::string id = args.text();
    auto job = std::make_unique<Job>();
    job->op = args.text() == "read" ? TCPX_READ : TCPX_WRITE;
    tcpx_peer peer = args.number();
    job->block = &at(blocks_, args.text());
    job->offset = args.number();
    tcpx_remote_region& remote = at(remotes_, args.text());
    uint64_t remote_offset = args.number();
    job->length = args.number();
    need(engine_.prepare(peer, job->op, {{job->block->region, job->offset, job->length}},
                         {{&remote, remote_offset, job->length}}, &job->transfer));
    jobs_[id] = std::move(job);
    return {};
  }
  std::string post(Args& args) {
    Job& job = *at(jobs_, args.text());
    Millis deadline{args.ms()};
    std::string message = args.text();
    if (message == "none") {
      need(job.transfer.post(deadline));
    } else {
      auto bytes = from_hex(message);
      need(job.transfer.post_notify({reinterpret_cast<char*>(bytes.data()), bytes.size()},
                                    deadline));
    }
    return {};
  }
  std::string wait(Args& args) {
    Job& job = *at(jobs_, args.text());
    need(job.transfer.wait(Millis{args.ms()}));
    return {};
  }
  std::string poll(Args& args) {
    need(at(jobs_, args.text())->transfer.poll());
    return {};
  }
  std::string cancel(Args& args) {
    Job& job = *at(jobs_, args.text());
    need(job.transfer.cancel(Millis{args.ms()}));
    return {};
  }
  std::string receipt(Args& args) {
    return one_line(at(jobs_, args.text())->transfer.receipt_json());
  }
  std::string error(Args& args) { return one_line(at(jobs_, args.text())->transfer.error()); }
  std::string release(Args& args) {
    at(jobs_, args.text())->transfer.release();
    return {};
  }
  std::string loop(Args& args) {
    Job& job = *at(jobs_, args.text());
    uint64_t seed = args.number();
    job.stop = false;
    job.loop = std::thread([&job, seed] { run_loop(job, seed); });
    return {};
  }
  std::string stop(Args& args) {
    Job& job = *at(jobs_, args.text());
    job.stop = true;
    if (job.loop.joinable()) job.loop.join();
    return std::to_string(job.rounds) + " " + std::to_string(job.last);
  }
  // WRITE sends new content each round; READ checks that the source holds Pattern(seed). At least
  // one round, however soon it is stopped: whoever asked for it is not always the faster one.
  static void run_loop(Job& job, uint64_t seed) {
    Memory& memory = *job.block->memory;
    do {
      if (job.op == TCPX_WRITE)
        fill(memory, job.offset, job.length, Pattern(seed, job.rounds), job.offset);
      Result result = job.transfer.post();
      if (result) result = job.transfer.wait();
      job.last = result.code();
      if (!result) return;
      if (job.op == TCPX_READ &&
          mismatch(memory, job.offset, job.length, Pattern(seed), job.offset) >= 0) {
        job.last = TCPX_INTERNAL;
        return;
      }
      ++job.rounds;
    } while (!job.stop);
  }

  // ---- notifications ----
  std::string notify(Args& args) {
    tcpx_peer peer = args.number();
    auto bytes = from_hex(args.text());
    need(engine_.notify(peer, {reinterpret_cast<char*>(bytes.data()), bytes.size()},
                        Millis{args.ms()}));
    return {};
  }
  std::string next(Args& args) {
    Notification notification;
    need(engine_.next_notification(&notification, Millis{args.ms()}));
    return std::to_string(notification.peer) + " " + to_hex(notification.bytes);
  }

  std::string cut_lane(Args&) {
    auto sockets = connected_sockets();
    if (sockets.empty()) throw Failure{TCPX_NOT_FOUND, "no connected socket"};
    ::shutdown(sockets.back(), SHUT_RDWR);
    return std::to_string(sockets.size());
  }

  std::string trim(Args&) {
    ::malloc_trim(0);
    return {};
  }
  // What a server's application does beside its transfers.
  std::string serve(Args& args) {
    stop_serving();
    bool all = args.text() == "all";
    serving_ = true;
    server_ = std::thread([this, all] {
      std::vector<tcpx_peer> peers;
      Notification taken;
      while (serving_) {
        tcpx_peer peer = 0;
        for (Ms wait{20}; engine_.accept(&peer, wait); wait = Ms{0}) peers.push_back(peer);
        std::erase_if(peers, [&](tcpx_peer each) { return forget_if_ended(each); });
        while (all && serving_ && engine_.next_notification(&taken)) {
        }
      }
    });
    return {};
  }
  bool forget_if_ended(tcpx_peer peer) {
    tcpx_peer_info info{};
    if (!engine_.peer_info(peer, &info)) return true;
    if (info.state == TCPX_OK || info.state == TCPX_IN_PROGRESS) return false;
    (void)engine_.disconnect(peer);
    return true;
  }
  void stop_serving() {
    serving_ = false;
    if (server_.joinable()) server_.join();
  }

  std::string fork_sleeper(Args& args) {
    Ms time{args.ms()};
    pid_t child = ::fork();
    if (child == 0) {
      ::usleep(static_cast<useconds_t>(time.count() * 1000));
      ::_exit(0);
    }
    return std::to_string(child);
  }

  // ---- lines ----
  bool read_line(std::string* line) {
    for (;;) {
      size_t end = input_.find('\n');
      if (end != std::string::npos) {
        *line = input_.substr(0, end);
        input_.erase(0, end + 1);
        return true;
      }
      char buffer[4096];
      ssize_t n = ::read(in_, buffer, sizeof buffer);
      if (n <= 0) return false;
      input_.append(buffer, static_cast<size_t>(n));
    }
  }
  void answer(std::string text) {
    text += '\n';
    for (size_t at = 0; at < text.size();) {
      ssize_t n = ::write(out_, text.data() + at, text.size() - at);
      if (n <= 0) return;
      at += static_cast<size_t>(n);
    }
  }
  static std::string one_line(std::string text) {
    for (char& c : text)
      if (c == '\n') c = ' ';
    return text;
  }
  void stop_loops() {
    for (auto& [id, job] : jobs_) job->stop = true;
    for (auto& [id, job] : jobs_)
      if (job->loop.joinable()) job->loop.join();
  }

  int in_, out_;
  std::string input_;
  // Destroyed from the bottom: transfers, then the engine, then the memory it may still use.
  std::map<std::string, Block> blocks_;
  std::map<std::string, tcpx_remote_region> remotes_;
  Engine engine_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;
  std::atomic<bool> serving_{false};
  std::thread server_;
};

}  // namespace

int run_peer_program(int in, int out) {
  return PeerProgram(in, out).run();
}

int peer_main(int argc, char** argv) {
  if (argc != 2 || std::string(argv[1]) != "--peer") return -1;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also when it is stopped: no orphans after a crashed test
  int code = run_peer_program(STDIN_FILENO, STDOUT_FILENO);
#if defined(__SANITIZE_ADDRESS__)
  // At exit the leak checker stops all threads one by one, and waits for ever for one that is just
  // ending: those of the engine have been joined, but may not be gone (1 of 50 runs).
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
#endif
  return code;
}

}  // namespace tcpx::test
