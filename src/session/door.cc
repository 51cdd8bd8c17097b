#include "session/door.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/caught.h"
#include "base/thread.h"
#include "session/sockets.h"
#include "topo/interfaces.h"

namespace tcpx {

namespace {

// Per turn: who has said something is heard after so many newcomers at most.
constexpr int kDoorEventsPerTurn = 32;
constexpr int kAcceptsPerTurn = 8;
constexpr Nanos kShortestPause = 100 * kMilli;
constexpr Nanos kLongestPause = 1 * kSecond;

// What an event is about: a listener, the wake-up, or a place and its turn.
constexpr uint64_t kWake = UINT64_MAX;
constexpr uint64_t kListener = uint64_t{1} << 63;
// A fork may hold a socket that we closed, and so keep it in the epoll set: it speaks up once at
// most. That is why leaving costs no call to take it out.
constexpr uint32_t kOnce = EPOLLIN | EPOLLONESHOT;
uint64_t name_of(uint32_t place, uint32_t turn) {
  return place | (uint64_t{turn} & 0x7fffffff) << 32;
}
bool is_listener(uint64_t event) {
  return event != kWake && (event & kListener) != 0;
}

// Strangers are reset, which frees everything at once on this side: no FIN to wait for, no
// TIME_WAIT. Sockets inherit it from their listener, without a call for each.
void set_resets(int fd, bool on) {
  linger value{on ? 1 : 0, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof value);
}

// accept() hands on what happened to the connection; the next one is another.
bool concerns_one_connection(int err) {
  switch (err) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENOPROTOOPT:
    case EPERM:  // a firewall
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case EOPNOTSUPP: return true;
    default: return false;
  }
}

}  // namespace

Door::Door(DoorOwner& owner, HandshakeHost& host, Settings settings)
    : owner_(owner), host_(host), settings_(settings), answers_(settings.salt) {}

Door::~Door() {
  stop();
}

Status Door::start(std::vector<Fd> listeners) {
  listeners_ = std::move(listeners);
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  bool watched = epoll_ && wake_ && watch(wake_.get(), EPOLLIN, kWake, true);
  for (size_t i = 0; i < listeners_.size() && watched; ++i) {
    set_resets(listeners_[i].get(), true);
    watched = watch(listeners_[i].get(), EPOLLIN, kListener | i, true);
  }
  if (!watched) return Status::system(errno, TCPX_BLAST_ENGINE, "cannot create the door's thread");
  return start_thread(&thread_, "the door's thread", [this] { run(); });
}

void Door::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
  thread_.join();
  places_.clear();
  free_.clear();
  visitors_.store(0);
  listeners_.clear();
}

bool Door::watch(int fd, uint32_t events, uint64_t name, bool add) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = name;
  return epoll_ctl(epoll_.get(), add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) == 0;
}

void Door::run() {
  while (!stopping_.load()) {
    Nanos left = std::max<Nanos>(0, next_deadline() - now_ns());
    int timeout = static_cast<int>(std::min<Nanos>((left + kMilli - 1) / kMilli, 1000));
    epoll_event events[kDoorEventsPerTurn];
    int count = epoll_wait(epoll_.get(), events, kDoorEventsPerTurn, timeout);
    // Who is at the door has its say before newcomers are let in and may take its place.
    for (bool newcomers : {false, true})
      for (int i = 0; i < count; ++i)
        if (is_listener(events[i].data.u64) == newcomers)
          attempt("a connection", [&] { handle(events[i].data.u64); });
    Nanos now = now_ns();
    if (now >= next_expiry_) attempt("connections that are late", [&] { expire(now); });
    if (now >= listen_at_) listen_again();
  }
}

// Nothing that is done here for one visitor may end the thread that serves them all.
template <class F>
void Door::attempt(const char* what, F&& f) noexcept {
  try {
    f();
  } catch (...) {
    owner_.failed(what, caught(TCPX_BLAST_NOTHING));
  }
}

void Door::handle(uint64_t event) {
  if (event == kWake) return;  // to stop
  if (is_listener(event)) return accept_some(listeners_[event & ~kListener].get());
  Place& place = places_[static_cast<uint32_t>(event)];
  if (place.fd && event == name_of(static_cast<uint32_t>(event), place.turn)) hear(place);
}

// ---- coming --------------------------------------------------------------------------------

void Door::accept_some(int listener) {
  for (int i = 0; i < kAcceptsPerTurn && listen_at_ == kNever; ++i) {
    sockaddr_storage from;
    socklen_t length = sizeof from;
    Fd fd(accept4(listener, reinterpret_cast<sockaddr*>(&from), &length,
                  SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      accept_pause_ = 0;
      receive(std::move(fd), address_of(from));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (!concerns_one_connection(errno)) {
      return stop_accepting(errno);
    }
  }
}

// A hello often comes with its connection: then it needs no place.
void Door::receive(Fd fd, const wire::Address& remote) {
  std::array<uint8_t, wire::kHelloBytes> said;
  ssize_t got = recv(fd.get(), said.data(), said.size(), MSG_DONTWAIT);
  Nanos now = now_ns();
  if (got == static_cast<ssize_t>(said.size()))
    return judge(std::move(fd), remote, said, now + settings_.handshake_timeout);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return owner_.left();
  if (has_room(now))
    seat(std::move(fd), remote, std::span(said).first(got < 0 ? 0 : static_cast<size_t>(got)), now);
}

bool Door::has_room(Nanos now) {
  if (visitors_.load() < settings_.places) return true;
  size_t evicted = make_room(now);
  owner_.crowded(evicted);
  return evicted > 0;
}

void Door::seat(Fd fd, const wire::Address& remote, std::span<const uint8_t> said, Nanos now) {
  if (free_.empty()) {
    if (free_.capacity() == places_.size())
      free_.reserve(2 * places_.size() + 1);  // so that leaving needs no memory
    places_.emplace_back();
    free_.push_back(static_cast<uint32_t>(places_.size() - 1));
  }
  const uint32_t index = free_.back();
  Place& place = places_[index];
  ++place.turn;
  if (!watch(fd.get(), kOnce, name_of(index, place.turn), true))
    return owner_.failed("a connection", Status::system(errno, TCPX_BLAST_LANE, "cannot watch it"));
  free_.pop_back();
  place.fd = std::move(fd);
  place.remote = remote;
  place.since = now;
  place.deadline = now + settings_.handshake_timeout;
  place.got = said.size();
  std::copy(said.begin(), said.end(), place.hello.begin());
  next_expiry_ = std::min(next_expiry_, place.deadline);
  visitors_.fetch_add(1);
}

// ---- speaking ------------------------------------------------------------------------------

void Door::hear(Place& place) {
  std::span<uint8_t> room = std::span(place.hello).subspan(place.got);
  ssize_t got = recv(place.fd.get(), room.data(), room.size(), MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    leave(place);
    return owner_.left();
  }
  if (got > 0) {
    place.got += static_cast<size_t>(got);
    place.since = now_ns();
  }
  if (place.got == place.hello.size())
    return judge(leave(place), place.remote, place.hello, place.deadline);
  watch(place.fd.get(), kOnce, name_of(index_of(place), place.turn), false);
}

void Door::judge(Fd fd, const wire::Address& remote, auth::HelloBytes hello, Nanos deadline) {
  Greeting greeting;
  Status status = read_greeting(host_, hello, &greeting);
  if (status) return enter(std::move(fd), remote, greeting, deadline);
  // What is no hello at all gets no answer: a stranger learns nothing.
  if (status.code() != TCPX_PROTOCOL_ERROR && answers_.spend(source_of(remote), now_ns()))
    answer(fd, refusing_challenge(host_, greeting.hello, status));
  owner_.refused(remote, status);
}

// The challenge is said here: it reaches the client while the guest goes to another thread.
void Door::enter(Fd fd, const wire::Address& remote, const Greeting& greeting, Nanos deadline) {
  set_resets(fd.get(), false);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd.get(), nullptr);  // if it had a place
  Guest guest{
      std::make_unique<Handshake>(std::move(fd), to_string(remote), host_, greeting, deadline),
      source_of(remote)};
  if (guest.handshake->challenge_client() == Handshake::Progress::kFailed)
    return owner_.refused(remote, guest.handshake->status());
  if (!owner_.enter(std::move(guest))) owner_.crowded(0);
}

// It fits into the buffer of a socket that nothing was sent on.
void Door::answer(const Fd& fd, const wire::Challenge& refusal) {
  std::array<uint8_t, wire::kChallengeBytes> bytes;
  wire::encode(refusal, bytes);
  set_resets(fd.get(), false);
  (void)!send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

// ---- leaving -------------------------------------------------------------------------------

Fd Door::leave(Place& place) {
  free_.push_back(index_of(place));
  visitors_.fetch_sub(1);
  return std::move(place.fd);
}

size_t Door::make_room(Nanos now) {
  scratch_.clear();
  for (uint32_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    if (place.fd)
      scratch_.push_back({i, source_of(place.remote),
                          place.got == 0 ? Standing::kSilent : Standing::kSpoke, place.since});
  }
  std::vector<uint32_t> leaving = choose_leaving(scratch_, now);
  for (uint32_t index : leaving) leave(places_[index]);
  return leaving.size();
}

void Door::expire(Nanos now) {
  next_expiry_ = kNever;
  for (Place& place : places_) {
    if (!place.fd) continue;
    if (place.deadline > now) {
      next_expiry_ = std::min(next_expiry_, place.deadline);
      continue;
    }
    leave(place);
    attempt("a connection that is late", [&] { owner_.late(place.remote); });
  }
}

// Mostly no descriptor is left. The listener stays readable, so it is not watched for a while.
void Door::stop_accepting(int err) {
  if (make_room(now_ns()) > 0) return;
  accept_pause_ = std::clamp(accept_pause_ * 2, kShortestPause, kLongestPause);
  listen_at_ = now_ns() + accept_pause_;
  for (size_t i = 0; i < listeners_.size(); ++i)
    watch(listeners_[i].get(), 0, kListener | i, false);
  owner_.cannot_accept(err, accept_pause_);
}

void Door::listen_again() {
  listen_at_ = kNever;
  for (size_t i = 0; i < listeners_.size(); ++i)
    watch(listeners_[i].get(), EPOLLIN, kListener | i, false);
}

}  // namespace tcpx
