#!/usr/bin/env bash
# Makes the virtual environment with one pinned NIXL and prints its path.
#   venv.sh [oldest|default|newest|refused]   into build/venv-nixl-VERSION (or $TCPX_VENV_ROOT)
# Nothing happens, and no network is needed, when it is there and up to date.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
which=${1:-default}
requirements=$here/requirements/$which.txt
[ -f "$requirements" ] || { echo "venv.sh: no such set of versions: $which" >&2; exit 2; }
python=${PYTHON:-python3}
version=$(sed -n 's/^nixl==//p' "$requirements")
root=${TCPX_VENV_ROOT:-$here/../../build}
mkdir -p "$root"
venv=$(cd "$root" && pwd)/venv-nixl-$version

# Other pins, or an interpreter that is gone or another version, make a new one.
current() {
  cmp -s "$requirements" "$venv/stamp" && "$venv/bin/python" -c \
    'import importlib.util, sys; sys.exit(not importlib.util.find_spec("nixl"))' 2>/dev/null
}

make() {
  rm -rf "$venv"
  "$python" -m venv "$venv" || {
    echo "venv.sh: python3 -m venv failed; on Debian: apt-get install python3-venv" >&2
    return 1
  }
  "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --only-binary :all: \
    -r "$requirements" >&2 || return 1
  # Kernels for GPUs that no test touches, and most of the size.
  rm -rf "$venv"/lib/python*/site-packages/nixl_ep*
  cp "$requirements" "$venv/stamp"  # last: it says that all is there
}

if ! current; then
  exec 9>"$venv.lock"
  flock 9
  current || make || { rm -f "$venv/stamp"; exit 1; }
fi
echo "$venv"
