#include "path/commands.h"

#include <new>
#include <stdexcept>

#include "base/caught.h"
#include "base/wait.h"

namespace tcpx {

void Command::run() noexcept {
  {
    MutexLock before(mu_);
    if (abandoned_) return;
  }
  tcpx_code code = TCPX_OK;
  try {
    f_();
  } catch (...) {
    code = caught(TCPX_BLAST_NOTHING).code();
  }
  MutexLock after(mu_);
  thrown_ = code;
  done_ = true;
  cv_.notify_all();
}

bool Command::wait_until(Nanos give_up) {
  MutexLock lock(mu_);
  tcpx::wait_until(cv_, lock, give_up, [&]() TCPX_REQUIRES(mu_) { return done_ || abandoned_; });
  return done_;
}

bool Command::abandon() {
  MutexLock lock(mu_);
  abandoned_ = true;
  return done_;
}

void Command::rethrow() const {
  MutexLock lock(mu_);
  if (thrown_ == TCPX_NO_MEMORY) throw std::bad_alloc();
  if (thrown_ != TCPX_OK) throw std::runtime_error("a command of a progress loop failed");
}

std::shared_ptr<Command> Commands::push(std::function<void()> f) {
  auto command = std::make_shared<Command>(std::move(f));
  MutexLock lock(mu_);
  waiting_.push_back(command);
  any_.store(true);
  return command;
}

bool Commands::run_all() {
  std::vector<std::shared_ptr<Command>> batch;
  {
    MutexLock lock(mu_);
    batch.swap(waiting_);
    any_.store(false);
  }
  for (auto& command : batch) command->run();
  return !batch.empty();
}

}  // namespace tcpx
