#!/usr/bin/env bash
# Installs a build into a temporary tree, looks at what is there, and builds and runs small C and
# C++ programs against it: by find_package and by pkg-config, shared and static. Then the NIXL backend
# by Meson, by itself and as a folder of somebody else's tree.
# Usage: check_install.sh <build dir> <C compiler> <C++ compiler>
set -euo pipefail
build=$1 cc=$2 cxx=$3
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
prefix=$tmp/prefix

fail() { echo "FAIL: $*" >&2; exit 1; }
say() { echo "== $*"; }

say "install"
cmake --install "$build" --prefix "$prefix" >"$tmp/install.log" || { cat "$tmp/install.log"; exit 1; }
libdir=$(dirname "$(find "$prefix" -name libtcpx_p2p.a)")
so=$libdir/libtcpx_p2p.so archive=$libdir/libtcpx_p2p.a

say "the installed tree"
headers=$(cd "$prefix/include" && find . -type f | sort | tr '\n' ' ')
[ "$headers" = "./tcpx/tcpx.h ./tcpx/tcpx.hpp " ] || fail "headers installed: $headers"
[ -f "$so" ] && [ -f "$archive" ] || fail "a library is missing in $libdir"
! [ -x "$build/tools/tcpx" ] || "$prefix/bin/tcpx" --help >/dev/null || fail "tcpx --help"

say "the shared library"
readelf -d "$so" >"$tmp/dynamic"
! grep -q TEXTREL "$tmp/dynamic" || fail "text relocations"
grep -q 'SONAME.*libtcpx_p2p\.so\.0' "$tmp/dynamic" || fail "soname is not libtcpx_p2p.so.0"
needed=$(sed -n 's/.*(NEEDED).*\[\(.*\)\.so.*/\1/p' "$tmp/dynamic" | sort | tr '\n' ' ')
for lib in $needed; do
  case $lib in
    libcrypto | libstdc++ | libm | libgcc_s | libc | libpthread | ld-linux*) ;;
    *) fail "needs $lib; only libcrypto and the C and C++ runtimes are expected" ;;
  esac
done
# What the header declares and what is exported have to be the same set.
grep -A2 '^TCPX_API' "$prefix/include/tcpx/tcpx.h" | grep -o '\btcpx_[a-z_]*(' | tr -d '(' |
  sort -u >"$tmp/declared"
nm -D --defined-only "$so" | awk '$2 != "A" {print $3}' | sed 's/@.*//' | sort -u >"$tmp/exported"
! grep -v '^tcpx_' "$tmp/exported" || fail "exports names without tcpx_ (above)"
diff "$tmp/declared" "$tmp/exported" || fail "< declared in tcpx.h, > exported: they differ"

say "by find_package"
generator=(); command -v ninja >/dev/null && generator=(-G Ninja)
cmake "${generator[@]}" -S "$here/consumer" -B "$tmp/consumer" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" >"$tmp/configure.log" 2>&1 ||
  { cat "$tmp/configure.log"; fail "configure"; }
cmake --build "$tmp/consumer" >"$tmp/build.log" 2>&1 || { cat "$tmp/build.log"; fail "build"; }
for program in use_c_shared use_cxx_shared use_c_static use_cxx_static; do
  "$tmp/consumer/$program" || fail "$program"
done
! ldd "$tmp/consumer/use_c_static" | grep -q libtcpx || fail "use_c_static is not static"

say "by pkg-config"
if ! command -v pkg-config >/dev/null; then
  echo "SKIP: no pkg-config on this machine; find_package was tested"
  exit 77
fi
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
for module in tcpx tcpx-static; do
  read -ra cflags <<<"$(pkg-config --cflags "$module")"
  read -ra libs <<<"$(pkg-config --libs "$module")"
  "$cc" -std=c99 -Wall -Wextra -Werror -pedantic "${cflags[@]}" "$here/consumer/use.c" \
    "${libs[@]}" -o "$tmp/c-$module"
  "$cxx" -std=c++20 -Wall -Wextra -Werror "${cflags[@]}" "$here/consumer/use.cc" \
    "${libs[@]}" -o "$tmp/cxx-$module"
  "$tmp/c-$module" && "$tmp/cxx-$module" || fail "programs by pkg-config $module"
done
[ "$(pkg-config --modversion tcpx)" = 0.1.0 ] || fail "pkg-config version"

say "the NIXL backend by Meson"
if ! command -v meson >/dev/null; then
  echo "SKIP: no meson on this machine; the rest was tested"
  exit 77
fi
# As NIXL's tree has it: a folder of plugins, each by its name, and where they go.
mkdir -p "$tmp/tree/src/plugins"
cat >"$tmp/tree/meson.build" <<END
project('tree', 'cpp', default_options: ['cpp_std=c++17'])
plugin_install_dir = get_option('libdir') / 'plugins'
subdir('src/plugins')
END
echo "subdir('tcpx')" >"$tmp/tree/src/plugins/meson.build"
ln -s "$here/../../plugins/nixl" "$tmp/tree/src/plugins/tcpx"
for tree in "$here/../../plugins lib/nixl/plugins" "$tmp/tree lib/plugins"; do
  read -r source place <<<"$tree"
  out=$tmp/meson-$(basename "$source")
  { CXX=$cxx meson setup "$out" "$source" -Dbuildtype=plain -Dlibdir=lib --prefix=/ &&
      meson compile -C "$out" && DESTDIR=$out/root meson install -C "$out" --no-rebuild; } >"$out.log" 2>&1 ||
    { cat "$out.log"; fail "meson in $source"; }
  plugin=$out/root/$place/libplugin_TCPX.so
  [ -f "$plugin" ] || fail "meson installs no $place/libplugin_TCPX.so"
  exports() { nm -D --defined-only "$1" | awk '{print $3}' | sort; }
  [ "$(exports "$plugin")" = "$(exports "$build/plugins/nixl/libplugin_TCPX.so")" ] ||
    fail "meson's plugin exports: $(exports "$plugin" | tr '\n' ' ')"
  ! nm -D --undefined-only "$plugin" | grep -i -E 'nixl|absl' || fail "undefined symbols (above)"
done
echo "all good"
