// The handshake of one socket as a state machine: non-blocking, fixed-size messages, one deadline.
// Nothing here allocates by what a stranger says.
#pragma once

#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "session/auth.h"
#include "session/greeting.h"
#include "session/half_open.h"
#include "wire/handshake.h"

namespace tcpx {

// What the accepting engine decides while it shakes hands.
class HandshakeHost : public GreetingHost {
 public:
  // A client at `remote` has proved itself: what it is told. Not ok: it is refused with that code.
  // As soon as it has been told, lanes may come that join the session with `session_key`.
  virtual Status welcome_for(const wire::Hello& hello, const wire::Address& remote,
                             const auth::Key& session_key, wire::Welcome* welcome) = 0;
  // The handshake of the first socket of `session` is over, however it ended.
  virtual void welcome_over(uint64_t session) noexcept = 0;
};

class Handshake {
 public:
  enum class Progress { kMore, kDone, kFailed };

  // Server side of a socket accepted from `remote`, whose hello was read: challenge_client() is
  // next.
  Handshake(Fd fd, std::string remote, HandshakeHost& host, const Greeting& greeting,
            Nanos deadline);
  // Client side of a socket whose connect() is under way.
  Handshake(Fd fd, std::string remote, const wire::Hello& hello, const auth::Key& key,
            Nanos deadline);

  ~Handshake();
  Handshake(const Handshake&) = delete;

  // Server: says the challenge and reads nothing, on whatever thread has it.
  Progress challenge_client();
  Progress step();  // does what can be done now
  bool wants_write() const { return connecting_ || out_at_ < out_size_; }
  Nanos deadline() const { return deadline_; }
  void expire();  // the deadline passed

  int fd() const { return fd_.get(); }
  Fd take_fd() { return std::move(fd_); }
  bool is_server() const { return host_ != nullptr; }
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
    kGreeted,
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
  Progress flush();
  void expect(Step step, size_t bytes);
  void after_send();
  void after_receive();
  Status make_challenge();
  void challenge_received();
  void proof_received();
  void welcome_received();
  const auth::Key& welcome_key() const;
  Status sign_welcome();
  Status say_hello();
  Status connection_error(int err) const;
  Status refusal(uint16_t code) const;
  template <size_t N, class Message>
  void queue(const Message& message);

  Fd fd_;
  HandshakeHost* host_ = nullptr;  // server side only
  Nanos deadline_;
  Step step_;
  bool connecting_ = false;
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

// A client that has been challenged, on its way from the door to the service thread.
struct Guest {
  std::unique_ptr<Handshake> handshake;
  Source source;
};

}  // namespace tcpx
