#include "config/bindings.h"

#include <net/if.h>

#include <algorithm>

#include "base/log.h"
#include "base/units.h"
#include "config/fields.h"

namespace tcpx {
namespace {

constexpr const char* kExample = "eth1:8-21,112-125;eth2:22-35";

// Knows where in the whole text a piece of it is.
class Text {
 public:
  explicit Text(std::string_view whole) : whole_(whole) {}
  Status wrong(std::string_view piece, std::string_view what) const {
    return bad_call(TCPX_BAD_CONFIG,
                    strf("character {}: \"{}\" {}, e.g. {}", piece.data() - whole_.data() + 1,
                         escaped(piece.substr(0, 40)), what, kExample));
  }

 private:
  std::string_view whole_;
};

Status parse_range(const Text& text, std::string_view piece, CpuSet* cpus) {
  if (piece.empty()) return text.wrong(piece, "is an empty range; remove a comma or add CPUs");
  uint64_t first = 0, last = 0;
  size_t dash = piece.find('-');
  bool good = parse_count(piece.substr(0, dash), &first).ok();
  if (good && dash == std::string_view::npos)
    return text.wrong(piece,
                      strf("is a single CPU, which the plugin passes over; write {0}-{0}", first));
  if (!good || !parse_count(piece.substr(dash + 1), &last))
    return text.wrong(piece, "is no range of CPUs; write first-last without spaces");
  if (first > last) return text.wrong(piece, strf("runs backwards; write {}-{}", last, first));
  if (last >= kMaxCpus)
    return text.wrong(piece, strf("goes beyond CPU {}, the last there can be", kMaxCpus - 1));
  add_cpus(first, last, cpus);
  return {};
}

bool could_be_interface(std::string_view name) {
  return !name.empty() && name.size() < IFNAMSIZ &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return c > 0x20 && c < 0x7f && c != '/'; });
}

Status parse_entry(const Text& text, std::string_view entry, Binding* out) {
  size_t colon = entry.find(':');
  if (entry.empty()) return text.wrong(entry, "is an empty entry; remove a semicolon");
  if (colon == std::string_view::npos)
    return text.wrong(entry, "has no colon between interface and CPUs");
  std::string_view name = entry.substr(0, colon);
  if (!could_be_interface(name))
    return text.wrong(name, "is no name of an interface; write it without spaces before the colon");
  out->interface = name;
  for (std::string_view piece : config::split(entry.substr(colon + 1), ','))
    if (Status s = parse_range(text, piece, &out->cpus); !s) return s;
  return {};
}

}  // namespace

Status parse_bindings(std::string_view text, Bindings* out) {
  Bindings bindings;
  if (!text.empty()) {
    Text whole(text);
    for (std::string_view entry : config::split(text, ';')) {
      Binding binding;
      if (Status s = parse_entry(whole, entry, &binding); !s) return s;
      for (const Binding& other : bindings)
        if (other.interface == binding.interface)
          return whole.wrong(entry.substr(0, entry.find(':')),
                             "has an entry already; write all its CPUs in one");
      bindings.push_back(std::move(binding));
    }
  }
  *out = std::move(bindings);
  return {};
}

}  // namespace tcpx
