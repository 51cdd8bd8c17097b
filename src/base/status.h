// Status: how something ended. A stable code, what the failure destroyed, and the cause in words.
#pragma once

#include <string>
#include <utility>

#include <tcpx/tcpx.h>

namespace tcpx {

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok; never allocates
  Status(tcpx_code code, tcpx_blast blast, std::string text)
      : code_(code), blast_(blast), text_(std::move(text)) {}

  static Status in_progress() { return Status(TCPX_IN_PROGRESS, TCPX_BLAST_NOTHING, {}); }
  // A failed system call: adds the text of `err` (an errno value).
  static Status system(int err, tcpx_blast blast, std::string what);

  bool ok() const { return code_ == TCPX_OK; }
  explicit operator bool() const { return ok(); }
  tcpx_code code() const { return code_; }
  tcpx_blast blast() const { return blast_; }
  const std::string& text() const { return text_; }
  // "deadline: no answer from peer ..." for logs.
  std::string to_string() const;

 private:
  tcpx_code code_ = TCPX_OK;
  tcpx_blast blast_ = TCPX_BLAST_NOTHING;
  std::string text_;
};

// Shorthands for the common blast radii.
inline Status bad_call(tcpx_code code, std::string text) {
  return Status(code, TCPX_BLAST_NOTHING, std::move(text));
}
inline Status transfer_error(tcpx_code code, std::string text) {
  return Status(code, TCPX_BLAST_TRANSFER, std::move(text));
}
inline Status lane_error(tcpx_code code, std::string text) {
  return Status(code, TCPX_BLAST_LANE, std::move(text));
}
inline Status peer_error(tcpx_code code, std::string text) {
  return Status(code, TCPX_BLAST_PEER, std::move(text));
}

const char* code_name(tcpx_code code);

}  // namespace tcpx
