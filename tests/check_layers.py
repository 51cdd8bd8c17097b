#!/usr/bin/env python3
"""Fails when a file in src/<layer> includes a header of a layer that is not below it.

Usage: check_layers.py <repository root> | --self-test
"""
import pathlib
import re
import sys
import tempfile

# Layers of equal rank do not see each other.
RANK = {"base": 0, "config": 1, "wire": 2, "memory": 3, "topo": 3, "gpu": 4,
        "path": 5, "session": 6, "engine": 7, "capi": 8}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def check_file(path, layer):
    """Yields (line number, problem)."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, header = match.groups()
        if header == "tcpx/tcpx.hpp":
            yield number, "the library does not use its own C++ wrapper"
        if quote == "<":
            continue
        target = header.split("/")[0]
        if "/" not in header or target not in RANK:
            yield number, f'"{header}": write includes relative to src/, as "layer/file.h"'
        elif target != layer and RANK[target] >= RANK[layer]:
            yield number, f"{layer} (rank {RANK[layer]}) may not include {target} (rank {RANK[target]})"


def check_tree(root):
    problems, files = [], 0
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu", ".cuh"):
            continue
        files += 1
        layer = path.relative_to(root / "src").parts[0]
        if layer not in RANK:
            problems.append(f"{path}: folder src/{layer} has no rank; add it to {__file__}")
            continue
        problems += [f"{path}:{number}: {text}" for number, text in check_file(path, layer)]
    return problems, files


def self_test():
    cases = [("wire/a.h", '#include "base/b.h"', True), ("wire/a.h", '#include "wire/b.h"', True),
             ("capi/a.cc", '#include "engine/b.h"', True), ("base/a.h", "#include <vector>", True),
             ("path/tcp/a.cc", '#include "path/path.h"', True),
             ("base/a.h", '#include "config/b.h"', False), ("topo/a.h", '#include "memory/b.h"', False),
             ("path/tcp/a.cc", '  # include "session/b.h"', False), ("base/a.h", '#include "b.h"', False),
             ("wire/a.h", '#include "../engine/b.h"', False), ("odd/a.h", "", False),
             ("capi/a.cc", "#include <tcpx/tcpx.hpp>", False)]
    for name, text, good in cases:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "src" / name
            path.parent.mkdir(parents=True)
            path.write_text(text + "\n")
            problems, _ = check_tree(pathlib.Path(folder))
            if bool(problems) == good:
                sys.exit(f"self-test: {name} with {text!r}: expected good={good}, got {problems}")
    print(f"self-test: {len(cases)} cases right")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        return self_test()
    problems, files = check_tree(pathlib.Path(sys.argv[1]))
    if files == 0:
        sys.exit(f"no sources under {sys.argv[1]}/src: wrong directory?")
    print("\n".join(problems) or f"{files} files include only downwards")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
