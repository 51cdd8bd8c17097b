#include "notifications.h"

#include <iterator>

namespace tcpx_nixl {

namespace {

constexpr int kMostPerCall = 1 << 16;
constexpr size_t kHead = 4;
}  // namespace

std::string encode_notification(const std::string& agent, const std::string& message) {
  std::string out;
  out.reserve(kHead + agent.size() + message.size());
  for (size_t i = 0; i < kHead; ++i) out += static_cast<char>(agent.size() >> (8 * i) & 0xff);
  out += agent;
  out += message;
  return out;
}

bool decode_notification(const std::string& bytes, std::string* agent, std::string* message) {
  if (bytes.size() < kHead) return false;
  size_t length = 0;
  for (size_t i = 0; i < kHead; ++i)
    length |= size_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  if (length > bytes.size() - kHead) return false;
  agent->assign(bytes, kHead, length);
  message->assign(bytes, kHead + length);
  return true;
}

void Inbox::add_own(const std::string& agent, const std::string& message) {
  tcpx::MutexLock lock(mu_);
  own_.emplace_back(agent, message);
}

// The lock is held from asking for the size to taking the bytes: several threads may ask.
bool Inbox::take_one_locked(std::string* bytes) {
  size_t length = 0;
  tcpx_code code = tcpx_next_notification(engine_, 0, nullptr, nullptr, &length);
  if (code == TCPX_BUFFER_TOO_SMALL) {
    bytes->resize(length);
    code = tcpx_next_notification(engine_, 0, nullptr, bytes->data(), &length);
  } else if (code == TCPX_OK) {
    bytes->clear();
  }
  return code == TCPX_OK;
}

void Inbox::take_all(notif_list_t* out) {
  tcpx::MutexLock lock(mu_);
  out->insert(out->end(), std::make_move_iterator(own_.begin()),
              std::make_move_iterator(own_.end()));
  own_.clear();
  std::string bytes, agent, message;
  // The agent is locked meanwhile, and senders may be faster than we are: the rest comes next time.
  for (int taken = 0; taken < kMostPerCall && take_one_locked(&bytes); ++taken) {
    if (decode_notification(bytes, &agent, &message))
      out->emplace_back(std::move(agent), std::move(message));
    else
      log_.log(TCPX_LOG_WARN, "a peer sent a notification of " + std::to_string(bytes.size()) +
                                  " bytes without an agent's name; is it a NIXL agent? Dropped");
  }
}

}  // namespace tcpx_nixl
