#include "session/handshake.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/ids.h"
#include "base/text.h"
#include "session/sockets.h"
#include "topo/interfaces.h"

namespace tcpx {

namespace {

auth::ChallengeBytes signed_part(const std::array<uint8_t, wire::kChallengeBytes>& bytes) {
  return auth::ChallengeBytes(bytes.data(), wire::kChallengeSignedBytes);
}

}  // namespace

Handshake::Handshake(Fd fd, std::string remote, HandshakeHost& host, const Greeting& greeting,
                     Nanos deadline)
    : fd_(std::move(fd)),
      host_(&host),
      deadline_(deadline),
      step_(Step::kGreeted),
      remote_(std::move(remote)),
      hello_(greeting.hello),
      key_(greeting.key),
      hello_bytes_(greeting.bytes) {}

Handshake::Handshake(Fd fd, std::string remote, const wire::Hello& hello, const auth::Key& key,
                     Nanos deadline)
    : fd_(std::move(fd)),
      deadline_(deadline),
      step_(Step::kConnecting),
      connecting_(true),
      remote_(std::move(remote)),
      hello_(hello),
      key_(key) {}

Handshake::~Handshake() {
  if (is_server() && hello_.kind == wire::HelloKind::kNewSession && welcome_.session != 0)
    host_->welcome_over(welcome_.session);
}

template <size_t N, class Message>
void Handshake::queue(const Message& message) {
  wire::encode(message, std::span<uint8_t, N>(out_.data(), N));
  out_at_ = 0;
  out_size_ = N;
}

Handshake::Progress Handshake::fail(Status status) {
  status_ = std::move(status);
  step_ = Step::kFailed;
  return Progress::kFailed;
}

Handshake::Progress Handshake::closed_by_peer(Status status) {
  turned_away_ = true;
  return fail(std::move(status));
}

Standing Handshake::standing() const {
  switch (step_) {
    case Step::kGreeted:
    case Step::kSendChallenge:
    case Step::kAwaitProof:
      return hello_.kind == wire::HelloKind::kJoinLane ? Standing::kJoining : Standing::kSaidHello;
    case Step::kSendWelcome:
    case Step::kDone: return Standing::kProved;
    default: return Standing::kSpoke;  // it is being refused
  }
}

void Handshake::expire() {
  fail(peer_error(is_server() ? TCPX_DEADLINE : TCPX_CONNECT_FAILED,
                  connecting_ ? strf("{} did not answer the connection attempt", remote_)
                              : strf("{} did not finish the handshake in time", remote_)));
}

Handshake::Progress Handshake::step() {
  for (;;) {
    if (step_ == Step::kDone) return Progress::kDone;
    if (step_ == Step::kFailed) return Progress::kFailed;
    if (step_ == Step::kConnecting) {
      if (Progress progress = finish_connect(); progress != Progress::kMore) return progress;
      if (connecting_) return Progress::kMore;
    }
    if (out_at_ < out_size_) {
      if (Progress progress = flush(); progress != Progress::kDone) return progress;
      continue;
    }
    ssize_t got = recv(fd_.get(), in_.data() + in_got_, in_need_ - in_got_, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::kMore;
    if (got < 0) return closed_by_peer(connection_error(errno));
    if (got == 0)
      return closed_by_peer(peer_error(
          TCPX_CONNECT_FAILED, strf("{} closed the connection during the handshake; it is crowded "
                                    "by others, or no tcpx engine",
                                    remote_)));
    in_got_ += static_cast<size_t>(got);
    if (in_got_ == in_need_) after_receive();
  }
}

// kDone: all is out, and what comes next is expected.
Handshake::Progress Handshake::flush() {
  while (out_at_ < out_size_) {
    ssize_t sent =
        send(fd_.get(), out_.data() + out_at_, out_size_ - out_at_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::kMore;
    if (sent < 0) return closed_by_peer(connection_error(errno));
    out_at_ += static_cast<size_t>(sent);
  }
  after_send();
  return Progress::kDone;
}

Status Handshake::connection_error(int err) const {
  return peer_error(TCPX_CONNECT_FAILED, Status::system(err, TCPX_BLAST_PEER, remote_).text());
}

Handshake::Progress Handshake::finish_connect() {
  int err = 0;
  socklen_t length = sizeof err;
  getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &err, &length);
  // There was a connection, and it was taken back.
  if (err == ECONNRESET || err == EPIPE) return closed_by_peer(connection_error(err));
  if (err != 0) return fail(connection_error(err));
  sockaddr_storage storage{};
  length = sizeof storage;
  if (getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0)
    return Progress::kMore;  // still under way
  connecting_ = false;
  step_ = Step::kSendHello;
  if (Status status = say_hello(); !status) return fail(status);
  return Progress::kMore;
}

Status Handshake::say_hello() {
  if (Status status = random_bytes(hello_.nonce); !status) return status;
  wire::encode(hello_, hello_bytes_);
  if (hello_.authenticated) {
    auto knocked = std::span(hello_bytes_).first<wire::kKnockedBytes>();
    if (Status status = auth::make_knock(key_, knocked, &hello_.knock); !status) return status;
    wire::encode(hello_, hello_bytes_);
  }
  queue<wire::kHelloBytes>(hello_);
  return {};
}

void Handshake::expect(Step step, size_t bytes) {
  step_ = step;
  in_got_ = 0;
  in_need_ = bytes;
}

void Handshake::after_send() {
  switch (step_) {
    case Step::kSendHello: return expect(Step::kAwaitChallenge, wire::kChallengeBytes);
    case Step::kSendProof: return expect(Step::kAwaitWelcome, wire::kWelcomeBytes);
    case Step::kSendChallenge: return expect(Step::kAwaitProof, wire::kProofMessageBytes);
    case Step::kSendWelcome: step_ = Step::kDone; return;
    default: step_ = Step::kFailed; return;  // a refusal is out
  }
}

void Handshake::after_receive() {
  switch (step_) {
    case Step::kAwaitProof: return proof_received();
    case Step::kAwaitChallenge: return challenge_received();
    default: return welcome_received();
  }
}

Handshake::Progress Handshake::challenge_client() {
  if (Status status = make_challenge(); !status) return fail(status);
  queue<wire::kChallengeBytes>(challenge_);
  step_ = Step::kSendChallenge;
  return flush() == Progress::kFailed ? Progress::kFailed : Progress::kMore;
}

Status Handshake::make_challenge() {
  challenge_ = {};
  challenge_.version = wire::common_version(hello_.versions, {});
  challenge_.uid = host_->uid();
  challenge_.authenticated = host_->requires_auth();
  if (Status status = random_bytes(challenge_.nonce); !status) return status;
  wire::encode(challenge_, challenge_bytes_);
  if (!host_->requires_auth()) return {};
  return auth::make_proof(key_, auth::Role::kServer, hello_bytes_, signed_part(challenge_bytes_),
                          &challenge_.proof);
}

Status Handshake::refusal(uint16_t code) const {
  const auto why = static_cast<tcpx_code>(code);
  const char* hint = "";
  if (why == TCPX_AUTH_FAILED && hello_.key_id != 0)
    hint = "; it has another key, or none: give both the same auth_key_file";
  else if (why == TCPX_AUTH_FAILED && hello_.authenticated)
    hint = "; the connection info is not of the engine that answers there now, or was changed";
  return peer_error(why, strf("{} refused the connection: {}{}", remote_, code_name(why), hint));
}

void Handshake::challenge_received() {
  std::span<const uint8_t, wire::kChallengeBytes> bytes(in_.data(), wire::kChallengeBytes);
  std::copy(bytes.begin(), bytes.end(), challenge_bytes_.begin());
  Status status = wire::decode(bytes, &challenge_);
  if (status && challenge_.status != TCPX_OK) status = refusal(challenge_.status);
  if (status) status = auth::check_mode(hello_.authenticated, challenge_.authenticated);
  if (status && hello_.target_uid != wire::Uid{} && challenge_.uid != hello_.target_uid)
    status = peer_error(TCPX_NOT_FOUND, strf("another engine answers at {}", remote_));
  if (status && hello_.authenticated)
    status = auth::check_proof(key_, auth::Role::kServer, hello_bytes_,
                               signed_part(challenge_bytes_), challenge_.proof);
  server_proved_ = status.ok();
  wire::Proof proof;
  if (status && hello_.authenticated)
    status = auth::make_proof(key_, auth::Role::kClient, hello_bytes_,
                              signed_part(challenge_bytes_), &proof.proof);
  if (status && hello_.kind == wire::HelloKind::kNewSession)
    status =
        auth::derive_session_key(key_, hello_bytes_, signed_part(challenge_bytes_), &session_key_);
  if (!status) {
    fail(status);
    return;
  }
  queue<wire::kProofMessageBytes>(proof);
  step_ = Step::kSendProof;
}

void Handshake::proof_received() {
  std::span<const uint8_t, wire::kProofMessageBytes> bytes(in_.data(), wire::kProofMessageBytes);
  wire::Proof proof;
  Status status = wire::decode(bytes, &proof);
  if (!status) {
    fail(status);
    return;
  }
  if (host_->requires_auth())
    status = auth::check_proof(key_, auth::Role::kClient, hello_bytes_,
                               signed_part(challenge_bytes_), proof.proof);
  const bool proved = status.ok();
  // Not before: a hello that is replayed costs no more than the one proof.
  if (status && hello_.kind == wire::HelloKind::kNewSession)
    status =
        auth::derive_session_key(key_, hello_bytes_, signed_part(challenge_bytes_), &session_key_);
  if (status)
    status = host_->welcome_for(hello_, remote_address_of(fd_.get()), session_key_, &welcome_);
  if (!status) {
    status_ = status;
    welcome_ = {};
    welcome_.status = static_cast<uint16_t>(status.code());
    step_ = Step::kSendRefusal;
  } else {
    step_ = Step::kSendWelcome;
  }
  // Who has not proved itself gets nothing signed.
  if (proved && host_->requires_auth()) {
    if (status = sign_welcome(); !status) {
      fail(status);
      return;
    }
  }
  queue<wire::kWelcomeBytes>(welcome_);
}

// The session's key: made by a first socket, what a joining lane has proved.
const auth::Key& Handshake::welcome_key() const {
  return hello_.kind == wire::HelloKind::kNewSession ? session_key_ : key_;
}

Status Handshake::sign_welcome() {
  std::array<uint8_t, wire::kWelcomeBytes> bytes;
  wire::encode(welcome_, bytes);
  return auth::make_welcome_mac(welcome_key(), hello_bytes_, signed_part(challenge_bytes_),
                                std::span(bytes).first<wire::kWelcomeSignedBytes>(), &welcome_.mac);
}

void Handshake::welcome_received() {
  std::span<const uint8_t, wire::kWelcomeBytes> bytes(in_.data(), wire::kWelcomeBytes);
  // Nothing in it is believed before this, a refusal neither.
  Status status;
  if (hello_.authenticated)
    status = auth::check_welcome_mac(welcome_key(), hello_bytes_, signed_part(challenge_bytes_),
                                     bytes.first<wire::kWelcomeSignedBytes>(),
                                     bytes.last<wire::kProofBytes>());
  if (status) status = wire::decode(bytes, &welcome_);
  if (status && welcome_.status != TCPX_OK) status = refusal(welcome_.status);
  if (!status) {
    fail(status);
    return;
  }
  step_ = Step::kDone;
}

}  // namespace tcpx
