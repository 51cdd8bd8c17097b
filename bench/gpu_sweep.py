#!/usr/bin/env python3
"""What an option, or another build, does to the rates of GPU memory: every combination in one run, one table.

  gpu_sweep.py BUILD [--set OPTION=VALUE,VALUE...]... [--tcpx NAME=FILE]... [--lanes 4,8] [--sizes 64M,1G] [--ops write,read]
               [--memory cuda] [--turns N] [--ms 300] [--rounds 2]

  --set   an option of the library (docs/config.md) and the values it takes by turns; several: all combinations
  --tcpx  another build of the command, beside BUILD's
Each row has the rate beside host memory's with as many lanes (and no option set) in the same run, CPU seconds per GB, and what
the receipt of the last transfer says a byte waited for: a slot, the GPU's thread, its copies (sums over chunks, of one end).
For example, whether larger chunks help:  --set chunk_bytes=512K,1M,2M,4M --set gpu_staging=64M,256M
"""
import argparse
import itertools
import os
import pathlib
import statistics
import sys

from gpu_bench import Trouble, cpu, rate, records_of, run, size_name

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def bytes_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def measure(arguments, program, lanes, memory, options):
    env = {**os.environ, **{f"TCPX_{name.upper()}": value for name, value in options}}
    return records_of(run([program, "bench", "--loopback", "--json", "--baseline", "none", "--memory", memory, "--lanes", lanes,
                           "--size", arguments.sizes, "--op", arguments.ops, "--duration", f"{arguments.ms}ms", "--rounds",
                           arguments.rounds], env=env))


def in_turns(arguments, points):
    """{point: [records of each turn]}; every other turn goes backwards. What fails is told and left out."""
    out, failed = {point: [] for point in points}, {}
    for turn in range(arguments.turns):
        for point in points if turn % 2 == 0 else points[::-1]:
            try:
                out[point].append(measure(arguments, *point[1:]))
            except (Trouble, ValueError, KeyError) as trouble:
                failed[point] = str(trouble)
    return out, failed


def waits(record):
    receipt = record.get("receipt", {})
    return " / ".join(f"{receipt.get(name, 0) / 1e3:.1f}" for name in ("slot_wait_us", "submit_wait_us", "staging_us"))


def label(point):
    return " ".join(filter(None, [point[0], *(f"{option}={value}" for option, value in point[4])])) or "as it is"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="folder with tools/tcpx")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUES")
    parser.add_argument("--tcpx", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--lanes", default="4,8")
    parser.add_argument("--sizes", default="64M,1G")
    parser.add_argument("--ops", default="write,read")
    parser.add_argument("--memory", default="cuda")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--ms", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    programs = {"": pathlib.Path(arguments.build) / "tools/tcpx"} | dict(one.split("=", 1) for one in arguments.tcpx)
    options = [[(name, value) for value in values.split(",")] for name, values in (one.split("=", 1) for one in arguments.set)]
    points = []
    for lanes in arguments.lanes.split(","):
        points.append(("host memory", programs[""], lanes, "host", ()))
        points += [(name, program, lanes, arguments.memory, chosen) for chosen in itertools.product(*options)
                   for name, program in programs.items()]
    seen, failed = in_turns(arguments, points)
    print(f"{'lanes':>5}  {'size':>5}  {'op':5}  {'GB/s':>6}  {'x host':>6}  {'CPU s/GB':>8}  {'ms waited: slot / thread / copies':>33}  what")
    for op, size in itertools.product(arguments.ops.split(","), map(bytes_of, arguments.sizes.split(","))):
        host = {}
        for point in points:
            _, _, lanes, memory, chosen = point
            if not seen[point]:
                continue
            fast, spent = (statistics.median(figure(turn[op, size]) for turn in seen[point]) for figure in (rate, cpu))
            if memory == "host" and not chosen:
                host[lanes] = fast
            ratio = f"{fast / host[lanes]:6.2f}" if lanes in host else f"{'?':>6}"
            print(f"{lanes:>5}  {size_name(size):>5}  {op:5}  {fast:6.2f}  {ratio}  {spent:8.3f}  "
                  f"{waits(seen[point][-1][op, size]):>33}  {label(point)}")
    for point, words in failed.items():
        print(f"FAILED: {point[2]} lanes, {label(point)}: {words}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
