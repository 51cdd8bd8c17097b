#include "session/keyring.h"

#include "base/text.h"
#include "config/fields.h"

namespace tcpx {

using wire::AuthMode;

Status Keyring::add(auth::Secret secret) {
  OperatorKey key;
  key.secret = std::move(secret);
  Status status = auth::derive_engine_key(key.secret.bytes(), &key.client.key);
  if (status) status = auth::make_key_id(key.client.key, &key.client.id);
  if (!status) return status;
  for (const OperatorKey& other : operator_keys_)
    if (other.client.id == key.client.id) return {};  // the same key in two files
  operator_keys_.push_back(std::move(key));
  return {};
}

Status Keyring::load(const EngineOptions& options, const Log& log) {
  if (!options.auth) {
    mode_ = AuthMode::kOpen;
    log.warn(
        "auth=off: anyone who can connect to this engine can read and write the "
        "memory it registers for remote access");
    return {};
  }
  mode_ = AuthMode::kSharedKey;
  if (!options.auth_key.empty())
    return add(auth::Secret(
        {reinterpret_cast<const uint8_t*>(options.auth_key.data()), options.auth_key.size()}));
  if (!options.auth_key_file.empty()) {
    for (std::string_view path : config::split(options.auth_key_file, ',')) {
      auth::KeyFile file;
      if (Status status = auth::load_key_file(std::string(path), &file); !status) return status;
      if (file.readable_by_others)
        log.warn("key file {} can be read by others; chmod 600 it", path);
      if (Status status = add(std::move(file.secret)); !status) return status;
    }
    return {};
  }
  mode_ = AuthMode::kSecretInside;
  if (Status status = auth::new_secret(own_secret_); !status) return status;
  return auth::derive_engine_key(own_secret_, &own_key_);
}

std::string Keyring::describe() const {
  if (mode_ == AuthMode::kOpen) return "OFF";
  if (mode_ == AuthMode::kSecretInside) return "by connection info";
  if (operator_keys_.size() == 1) return "by shared key";
  return strf("by shared key, {} more accepted", operator_keys_.size() - 1);
}

std::vector<uint8_t> Keyring::make_info(wire::ConnectionInfo info) const {
  info.auth = mode_;
  if (mode_ == AuthMode::kSecretInside) info.secret = own_secret_;
  return wire::encode_connection_info(
      info, operator_keys_.empty() ? std::span<const uint8_t>() : operator_keys_[0].secret.bytes());
}

Status Keyring::open_info(std::span<const uint8_t> bytes, wire::ConnectionInfo* info,
                          ClientKey* key) const {
  *key = {};
  Status status;
  if (operator_keys_.empty()) status = wire::decode_connection_info(bytes, {}, info);
  for (const OperatorKey& mine : operator_keys_) {
    status = wire::decode_connection_info(bytes, mine.secret.bytes(), info);
    *key = mine.client;
    if (status.code() != TCPX_TAMPERED) break;  // else it may be signed with another one
  }
  if (status) status = auth::check_info_mode(mode_, info->auth);
  if (status && mode_ == AuthMode::kSecretInside)
    status = auth::derive_engine_key(info->secret, &key->key);
  return status;
}

Status Keyring::address_keys(std::vector<ClientKey>* out) const {
  if (mode_ == AuthMode::kSecretInside)
    return bad_call(TCPX_AUTH_FAILED,
                    "connecting by address needs a key both sides have; set "
                    "auth_key_file (TCPX_AUTH_KEY_FILE), or connect with the "
                    "peer's connection info");
  out->clear();
  if (mode_ == AuthMode::kOpen) out->emplace_back();
  for (const OperatorKey& mine : operator_keys_) out->push_back(mine.client);
  return {};
}

// A client that says nothing (0) means the only key, or the first.
Status Keyring::key_of_client(uint64_t key_id, auth::Key* out) const {
  for (const OperatorKey& mine : operator_keys_) {
    if (key_id != 0 && key_id != mine.client.id) continue;
    *out = mine.client.key;
    return {};
  }
  if (mode_ == AuthMode::kSharedKey)
    return peer_error(TCPX_AUTH_FAILED,
                      "the client holds another key than this engine; give both the same "
                      "auth_key_file");
  if (key_id != 0)
    return peer_error(TCPX_AUTH_FAILED,
                      "the client uses an operator's key and this engine has none; set "
                      "auth_key_file here too");
  *out = own_key_;
  return {};
}

}  // namespace tcpx
