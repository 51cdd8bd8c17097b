#include "session/lookup.h"

#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/text.h"
#include "base/thread.h"
#include "topo/interfaces.h"

namespace tcpx {

namespace {

std::atomic<int> under_way{0};

Status too_many(const std::string& why) {
  return bad_call(TCPX_LIMIT, strf("{}; connect by IP address, or try again later", why));
}

}  // namespace

Status Lookup::start(const std::string& host, uint16_t port, Fd wake,
                     std::shared_ptr<Lookup>* out) {
  if (under_way.fetch_add(1) >= kMost) {
    under_way.fetch_sub(1);
    return too_many(
        strf("{} host names are being looked up and the resolver does not answer", kMost));
  }
  auto lookup = std::make_shared<Lookup>();
  lookup->host_ = host;
  lookup->port_ = port;
  lookup->wake_ = std::move(wake);
  std::thread thread;
  if (Status status =
          start_thread(&thread, "a thread that looks up a host name", [lookup] { lookup->run(); });
      !status) {
    under_way.fetch_sub(1);
    return status.code() == TCPX_LIMIT ? too_many(status.text()) : status;
  }
  thread.detach();
  *out = std::move(lookup);
  return {};
}

void Lookup::run() noexcept {
  std::vector<wire::Address> found;
  Status status;
  try {
    status = lookup_host(host_, port_, &found);
  } catch (const std::bad_alloc&) {
    status = Status(TCPX_NO_MEMORY, TCPX_BLAST_PEER, {});
  }
  under_way.fetch_sub(1);
  MutexLock lock(mu_);
  ended_ = true;
  status_ = std::move(status);
  found_ = std::move(found);
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

bool Lookup::ended(Status* status, std::vector<wire::Address>* out) {
  MutexLock lock(mu_);
  if (!ended_) return false;
  *status = status_;
  *out = found_;
  return true;
}

}  // namespace tcpx
