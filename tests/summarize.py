#!/usr/bin/env python3
"""Prints one table of what every test stage did and exits 1 if anything failed.

Usage: summarize.py <log folder> <stage>...
Reads what ./run leaves per stage: STAGE.xml (ctest's JUnit), STAGE.json (ctest --show-only, for the
labels, which JUnit lacks before CMake 3.27), STAGE.results ("passed|failed|skipped
NAME [reason]" lines), STAGE.failed (why the stage could not run), STAGE.seconds.
"""
import collections
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

Case = collections.namedtuple("Case", "group name outcome reason")
OUTCOMES = ("passed", "failed", "skipped")


def skip_reason(case):
    """gtest prints "file:line: Skipped" and the reason below; scripts print "SKIP: reason"."""
    text = case.findtext("system-out") or ""
    match = re.search(r"^.*: Skipped\n+(.+)", text, re.M) or re.search(r"^SKIP:? *(.+)", text, re.M)
    skipped = case.find("skipped")
    fallback = skipped.get("message", "") if skipped is not None else "not run"
    return (match.group(1) if match else fallback).strip()


def test_labels(path):
    """Test name -> first label."""
    labels = {}
    for test in json.loads(path.read_text())["tests"] if path.exists() else []:
        for item in test.get("properties", []):
            if item["name"] == "LABELS":
                labels[test["name"]] = item["value"][0]
    return labels


def junit_cases(path):
    labels = test_labels(path.with_suffix(".json"))
    for case in ElementTree.parse(path).iter("testcase"):
        group = labels.get(case.get("name"), "?")
        status = case.get("status")
        if case.find("failure") is not None or status == "fail":
            failure = case.find("failure")
            outcome, reason = "failed", failure.get("message") if failure is not None else status
        elif case.find("skipped") is not None or status in ("notrun", "disabled"):
            outcome, reason = "skipped", skip_reason(case)
        else:
            outcome, reason = "passed", ""
        yield Case(group, case.get("name"), outcome, reason)


def result_lines(path):
    for line in path.read_text().splitlines():
        outcome, name, reason = (line.split(" ", 2) + [""])[:3]
        yield Case("fuzz", name, outcome, reason)


def stage_cases(folder, stage):
    file = lambda suffix: folder / f"{stage}.{suffix}"
    cases = []
    if file("failed").exists():
        cases.append(Case("-", stage, "failed", file("failed").read_text().strip()))
    if file("xml").exists():
        cases += junit_cases(file("xml"))
    if file("results").exists():
        cases += result_lines(file("results"))
    return cases or [Case("-", stage, "failed", "the stage left no results")]


def print_table(rows):
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [str(c).ljust(w) if i < 2 else str(c).rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        print("  " + "  ".join(cells))


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    rows = [("stage", "tests", *OUTCOMES, "seconds")]
    total, notes = collections.Counter(), []
    for stage in sys.argv[2:]:
        seconds = folder / f"{stage}.seconds"
        took = seconds.read_text().strip() if seconds.exists() else "?"
        cases = stage_cases(folder, stage)
        for group in dict.fromkeys(c.group for c in cases):
            counts = collections.Counter(c.outcome for c in cases if c.group == group)
            total.update(counts)
            rows.append((stage, group, *(counts[o] for o in OUTCOMES), took))
            took = ""
        notes += [(c.outcome, stage, c.name, c.reason) for c in cases if c.outcome != "passed"]
    rows.append(("all", "", *(total[o] for o in OUTCOMES), ""))
    print("\n== summary")
    for outcome in ("skipped", "failed"):
        # The same skip in three stages is one line.
        merged = collections.defaultdict(list)
        for kind, stage, name, reason in notes:
            if kind == outcome:
                merged[name, reason].append(stage)
        for (name, reason), stages in merged.items():
            print(f"  {outcome}: {name} ({', '.join(stages)}): {reason or 'no reason given'}")
    print_table(rows)
    sys.exit(1 if total["failed"] else 0)


if __name__ == "__main__":
    main()
