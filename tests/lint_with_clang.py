#!/usr/bin/env python3
"""What clang says about src/ and plugins/, of which gcc knows nothing. (./run lint)

Usage: lint_with_clang.py locks|tidy BUILD_DIR [SOURCE...]

BUILD_DIR is configured with the preset `lint`: several sources are read as one, which takes a third of the time.
locks: what a mutex guards is touched with it alone (src/base/mutex.h).
tidy: the checks of .clang-tidy.
With sources: only these, and those that are read with them.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def commands(build):
    """(file, what is in it, arguments of the compiler without -o and -c) of each entry."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        arguments = shlex.split(entry["command"])
        at = arguments.index("-o")
        file = pathlib.Path(entry["file"])
        parts = re.findall(r'^#include "(.*)"', file.read_text(), re.M) if build in file.parents else [str(file)]
        yield file, parts, [a for a in arguments[:at] + arguments[at + 2:] if a not in ("-c", str(file))]


def locks(build, file, arguments):
    return [*arguments, "-fsyntax-only", "-Wthread-safety", "-Werror", str(file)]


def tidy(build, file, arguments):
    return ["clang-tidy", "--quiet", "--warnings-as-errors=*", "-p", str(build), str(file)]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + (done.stderr if "-fsyntax-only" in command else "")


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("locks", "tidy"):
        sys.exit(__doc__)
    make = {"locks": locks, "tidy": tidy}[sys.argv[1]]
    build, only = pathlib.Path(sys.argv[2]).resolve(), [str(ROOT / name) for name in sys.argv[3:]]
    todo = [make(build, file, arguments) for file, parts, arguments in commands(build)
            if not only or set(only) & set(parts)]
    if not todo and not only:
        sys.exit(f"{build} has nothing to read: cmake --preset lint")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
        for code, text in pool.map(run, todo):
            failed += code != 0
            if code != 0:
                print(text.strip())
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
