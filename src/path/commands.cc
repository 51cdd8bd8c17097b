#include "path/commands.h"

#include <new>
#include <stdexcept>

#include "base/caught.h"
#include "base/wait.h"

namespace tcpx {

void Command::run() noexcept {
  {
    std::lock_guard before(mu_);
    if (abandoned_) return;
  }
  tcpx_code code = TCPX_OK;
  try {
    f_();
  } catch (...) {
    code = caught(TCPX_BLAST_NOTHING).code();
  }
  std::lock_guard after(mu_);
  thrown_ = code;
  done_ = true;
  cv_.notify_all();
}

bool Command::wait_until(Nanos give_up) {
  std::unique_lock lock(mu_);
  tcpx::wait_until(cv_, lock, give_up, [&] { return done_ || abandoned_; });
  return done_;
}

bool Command::abandon() {
  std::lock_guard lock(mu_);
  abandoned_ = true;
  return done_;
}

void Command::rethrow() const {
  std::lock_guard lock(mu_);
  if (thrown_ == TCPX_NO_MEMORY) throw std::bad_alloc();
  if (thrown_ != TCPX_OK) throw std::runtime_error("a command of a progress loop failed");
}

std::shared_ptr<Command> Commands::push(std::function<void()> f) {
  auto command = std::make_shared<Command>(std::move(f));
  std::lock_guard lock(mu_);
  waiting_.push_back(command);
  any_.store(true);
  return command;
}

bool Commands::run_all() {
  std::vector<std::shared_ptr<Command>> batch;
  {
    std::lock_guard lock(mu_);
    batch.swap(waiting_);
    any_.store(false);
  }
  for (auto& command : batch) command->run();
  return !batch.empty();
}

}  // namespace tcpx
