#!/usr/bin/env python3
"""READ beside WRITE over loopback, in many short runs.

  read_write.py TCPX [--runs 20] [--lanes 2] [--size 1M,4M,16M,64M] [--duration 400ms]

On a shared machine one run says little: threads land on other cores, neighbours come and go, and whatever a run measures
first is 4 to 7 % slower than what it measures next. So every other run begins with the other operation, and the ratio is
that of the medians over all runs.
"""
import argparse
import json
import statistics
import subprocess
import sys


def one_run(arguments, order):
    command = [arguments.tcpx, "bench", "--loopback", "--op", order, "--size", arguments.size, "--lanes", str(arguments.lanes),
               "--duration", arguments.duration, "--baseline", "none", "--json"]
    document = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    return {(record["bytes"], record["op"]): record["gb_per_s"]["median"] for record in document["records"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tcpx")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--size", default="1M,4M,16M,64M")
    parser.add_argument("--duration", default="400ms")
    arguments = parser.parse_args()
    seen = {}
    for run in range(arguments.runs):
        for key, rate in one_run(arguments, ("write,read", "read,write")[run % 2]).items():
            seen.setdefault(key, []).append(rate)
        print(f"\r{run + 1} of {arguments.runs} runs", end="", file=sys.stderr)
    print(file=sys.stderr)
    print(f"GB/s (10^9), medians of {arguments.runs} runs, {arguments.lanes} lanes, lowest and highest run in brackets")
    print(f"{'bytes':>10}  {'WRITE':>20}  {'READ':>20}  READ/WRITE")
    for size in sorted({size for size, _ in seen}):
        cells = []
        for op in ("write", "read"):
            rates = seen[size, op]
            cells.append(f"{statistics.median(rates):.2f} [{min(rates):.1f}, {max(rates):.1f}]")
        ratio = statistics.median(seen[size, "read"]) / statistics.median(seen[size, "write"])
        print(f"{size:>10}  {cells[0]:>20}  {cells[1]:>20}  {ratio:.3f}")


if __name__ == "__main__":
    main()
