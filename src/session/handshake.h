// The handshake of one socket as a state machine: non-blocking, fixed-size messages, one deadline.
// Nothing here allocates by what a stranger says.
#pragma once

#include <sys/socket.h>

#include <array>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "session/auth.h"
#include "session/half_open.h"
#include "wire/handshake.h"

namespace tcpx {

// What the accepting engine decides while it shakes hands.
class HandshakeHost {
 public:
  virtual ~HandshakeHost() = default;
  virtual bool requires_auth() const = 0;
  virtual wire::Uid uid() const = 0;
  // Key the client has to know: the engine's for a new session, the session's for a joining lane.
  virtual Status key_for(const wire::Hello& hello, auth::Key* key) = 0;
  // The client has proved itself: what it is told. Not ok: it is refused with that code.
  virtual Status welcome_for(const wire::Hello& hello, wire::Welcome* welcome) = 0;
};

class Handshake {
 public:
  enum class Progress { kMore, kDone, kFailed };

  // Server side of a socket accepted from `remote`.
  Handshake(Fd fd, std::string remote, HandshakeHost& host, Nanos deadline);
  // Client side of a socket whose connect() is under way.
  Handshake(Fd fd, std::string remote, const wire::Hello& hello, const auth::Key& key,
            Nanos deadline);

  Progress step();  // does what can be done now
  bool wants_write() const { return connecting_ || out_at_ < out_size_; }
  Nanos deadline() const { return deadline_; }
  void expire();  // the deadline passed

  int fd() const { return fd_.get(); }
  Fd take_fd() { return std::move(fd_); }
  bool is_server() const { return host_ != nullptr; }
  // Whether the other side got as far as its hello; before that it may just be a port scan.
  bool heard() const { return heard_; }
  // Server: what the client has shown of itself.
  Standing standing() const;
  // Client: the other side accepted the connection and closed it without saying why, as an engine
  // does that has too many half-open ones.
  bool turned_away() const { return turned_away_; }
  // Client: whoever answers holds the key; with auth=off nobody has to.
  bool server_proved() const { return server_proved_; }
  const Status& status() const { return status_; }
  const wire::Hello& hello() const { return hello_; }
  const wire::Challenge& challenge() const { return challenge_; }
  const wire::Welcome& welcome() const { return welcome_; }
  const auth::Key& session_key() const { return session_key_; }
  const std::string& remote() const { return remote_; }

 private:
  enum class Step {
    kConnecting,
    kSendHello,
    kAwaitChallenge,
    kSendProof,
    kAwaitWelcome,  // client
    kAwaitHello,
    kSendChallenge,
    kAwaitProof,
    kSendWelcome,
    kSendRefusal,  // server
    kDone,
    kFailed
  };

  Progress fail(Status status);
  Progress closed_by_peer(Status status);
  Progress finish_connect();
  void expect(Step step, size_t bytes);
  void after_send();
  void after_receive();
  void hello_received();
  void challenge_received();
  void proof_received();
  void welcome_received();
  void refuse_challenge(const Status& status);
  const auth::Key& welcome_key() const;
  Status sign_welcome();
  Status connection_error(int err) const;
  Status refusal(uint16_t code) const;
  template <size_t N, class Message>
  void queue(const Message& message);

  Fd fd_;
  HandshakeHost* host_ = nullptr;  // server side only
  Nanos deadline_;
  Step step_;
  bool connecting_ = false;
  bool heard_ = false;
  bool turned_away_ = false;
  bool server_proved_ = false;
  Status status_;
  std::string remote_;

  wire::Hello hello_;
  wire::Challenge challenge_;
  wire::Welcome welcome_;
  auth::Key key_;
  auth::Key session_key_;
  std::array<uint8_t, wire::kHelloBytes> hello_bytes_{};
  std::array<uint8_t, wire::kChallengeBytes> challenge_bytes_{};

  std::array<uint8_t, wire::kWelcomeBytes> in_{};
  size_t in_got_ = 0, in_need_ = 0;
  std::array<uint8_t, wire::kWelcomeBytes> out_{};
  size_t out_at_ = 0, out_size_ = 0;
};

}  // namespace tcpx
