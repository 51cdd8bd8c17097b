#!/usr/bin/env python3
"""WRITE and READ over loopback in many short runs: beside each other, and beside raw TCP.

  read_write.py TCPX [--runs 20] [--lanes 2] [--size 1M,4M,16M,64M] [--duration 400ms] [--raw]

On a shared machine one run says little: threads land on other cores, neighbours come and go, and whatever a run measures
first is 4 to 7 % slower than what it measures next. So every other run begins with the other operation, and the ratio is
that of the medians over all runs. --raw: raw TCP takes turns with ours in every run, and the table has the median of
the runs' ratios to it. --lanes may be a list.
"""
import argparse
import json
import statistics
import subprocess
import sys


def one_run(arguments, lanes, order):
    """{(bytes, op): (GB/s, times raw or None)}"""
    command = [arguments.tcpx, "bench", "--loopback", "--op", order, "--size", arguments.size, "--lanes", lanes,
               "--duration", arguments.duration, "--baseline", "raw" if arguments.raw else "none", "--json"]
    document = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    return {(record["bytes"], record["op"]): (record["gb_per_s"]["median"], record.get("ratio_to_raw"))
            for record in document["records"]}


def middle(values):
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def print_table(arguments, lanes, seen):
    print(f"GB/s (10^9), medians of {arguments.runs} runs, lanes {lanes}, lowest and highest run in brackets")
    raw_heads = f"  {'WRITE x raw':>20}  {'READ x raw':>20}" if arguments.raw else ""
    print(f"{'bytes':>10}  {'WRITE':>20}  {'READ':>20}  READ/WRITE{raw_heads}")
    for size in sorted({size for size, _ in seen}):
        write, read = seen[size, "write"], seen[size, "read"]
        ratio = statistics.median(rate for rate, _ in read) / statistics.median(rate for rate, _ in write)
        cells = [middle([rate for rate, _ in runs]) for runs in (write, read)]
        line = f"{size:>10}  {cells[0]:>20}  {cells[1]:>20}  {ratio:>10.3f}"
        if arguments.raw:
            line += "".join(f"  {middle([times for _, times in runs]):>20}" for runs in (write, read))
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tcpx")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--lanes", default="2")
    parser.add_argument("--size", default="1M,4M,16M,64M")
    parser.add_argument("--duration", default="400ms")
    parser.add_argument("--raw", action="store_true")
    arguments = parser.parse_args()
    every = arguments.lanes.split(",")
    seen = {lanes: {} for lanes in every}
    for run in range(arguments.runs):
        for lanes in every:
            for key, figures in one_run(arguments, lanes, ("write,read", "read,write")[run % 2]).items():
                seen[lanes].setdefault(key, []).append(figures)
        print(f"\r{run + 1} of {arguments.runs} runs", end="", file=sys.stderr)
    print(file=sys.stderr)
    for lanes in every:
        print_table(arguments, lanes, seen[lanes])


if __name__ == "__main__":
    main()
