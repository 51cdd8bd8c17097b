#!/usr/bin/env python3
"""Two builds of tcpx beside each other over loopback, by turns: new / old at every point.

  ab.py OLD NEW [--runs 8] [--size 4K,64K,1M,16M,256M] [--lanes 1,2,4] [--pieces 1] [--duration 200ms] [--least 0.97]

OLD and NEW are `tcpx` commands. One run of one build says little on a shared machine, so short runs take turns and every
other pair begins with the other build and the other operation. The ratio is that of the medians over all runs; in brackets
the lowest and highest run of each. Exits with 1 if a point lies below --least.
"""
import argparse
import json
import statistics
import subprocess
import sys


def one_run(tcpx, arguments, lanes, pieces, order):
    """{(bytes, op): (GB/s, median us, p99 us)}"""
    command = [tcpx, "bench", "--loopback", "--op", order, "--size", arguments.size, "--lanes", lanes, "--pieces", pieces,
               "--duration", arguments.duration, "--rounds", "3", "--baseline", "none", "--json"]
    document = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                         timeout=600).stdout)
    return {(record["bytes"], record["op"]): (record["gb_per_s"]["median"], record["latency_us"]["p50"],
                                              record["latency_us"]["p99"])
            for record in document["records"]}


def figures(runs, column):
    values = [run[column] for run in runs]
    return statistics.median(values), f"{statistics.median(values):.4g} [{min(values):.3g}, {max(values):.3g}]"


def print_table(title, seen, least):
    """Prints a row per point; returns how many lie below `least`."""
    print(title)
    print(f"{'op':>5} {'bytes':>10}  {'GB/s old':>22}  {'GB/s new':>22}  new/old  {'us old':>8} {'us new':>8}  {'p99 old':>8} "
          f"{'p99 new':>8}")
    low = 0
    for size, op in sorted(seen):
        old, new = seen[size, op]["old"], seen[size, op]["new"]
        (rate_old, cell_old), (rate_new, cell_new) = figures(old, 0), figures(new, 0)
        ratio = rate_new / rate_old
        low += ratio < least
        times = [figures(runs, column)[0] for column in (1, 2) for runs in (old, new)]
        print(f"{op:>5} {size:>10}  {cell_old:>22}  {cell_new:>22}  {ratio:>7.3f}  {times[0]:>8.4g} {times[1]:>8.4g}  "
              f"{times[2]:>8.4g} {times[3]:>8.4g}{'  LOW' if ratio < least else ''}", flush=True)
    return low


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--runs", type=int, default=8, help="of each build")
    parser.add_argument("--size", default="4K,64K,1M,16M,256M")
    parser.add_argument("--lanes", default="1,2,4")
    parser.add_argument("--pieces", default="1")
    parser.add_argument("--duration", default="200ms")
    parser.add_argument("--least", type=float, default=0.97)
    arguments = parser.parse_args()
    points = [(lanes, pieces) for lanes in arguments.lanes.split(",") for pieces in arguments.pieces.split(",")]
    builds = {"old": arguments.old, "new": arguments.new}
    seen = {point: {} for point in points}
    for run in range(arguments.runs):
        for point in points:
            for name in sorted(builds, reverse=run % 2 == 0):
                order = ("write,read", "read,write")[run // 2 % 2]
                for key, row in one_run(builds[name], arguments, *point, order).items():
                    seen[point].setdefault(key, {"old": [], "new": []})[name].append(row)
        print(f"\r{run + 1} of {arguments.runs} runs", end="", file=sys.stderr)
    print(file=sys.stderr)
    low = 0
    for lanes, pieces in points:
        low += print_table(f"lanes {lanes}, {pieces} piece(s); medians of {arguments.runs} runs of each", seen[lanes, pieces],
                           arguments.least)
    print(f"{low} point(s) below {arguments.least}")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
