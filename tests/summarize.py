#!/usr/bin/env python3
"""Prints one table of what every test stage did and exits 1 if anything failed.

Usage: summarize.py <log folder> <stage>...
       summarize.py --worth-another-try <STAGE.xml>
Reads what ./run leaves per stage: STAGE.xml (ctest's JUnit), STAGE.again.xml (the same of a second try of what
failed), STAGE.json (ctest --show-only, for the labels, which JUnit lacks before CMake 3.27), STAGE.results
("passed|failed|skipped NAME [reason]" lines), STAGE.failed (why the stage could not run), STAGE.seconds.
A ctest may be several cases: lines "passed|failed|skipped NAME N s [reason]" in its output, as tests/nixl/run.py prints them. Each
counts.
The second form exits 0 if at most MOST_AGAIN tests failed, and none of them by a sanitizer's word.
"""
import collections
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

Case = collections.namedtuple("Case", "group name outcome reason")
OUTCOMES = ("passed", "failed", "skipped")
MOST_AGAIN = 3


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


def cases_inside(case, group, outcome, reason):
    """The cases that a ctest names in its output, or itself."""
    lines = re.findall(r"^(passed|failed|skipped) +(\w+) +[\d.]+ s(?: +SKIP:? *(.*))?$", case.findtext("system-out") or "", re.M)
    cases = [Case(group, f"{case.get('name')}.{name}", what, why if what == "skipped" else reason if what == "failed" else "")
             for what, name, why in lines]
    if outcome == "failed" and not any(c.outcome == "failed" for c in cases) or not cases:
        cases.append(Case(group, case.get("name"), outcome, reason))  # ended before its last case could be told
    return cases


def junit_cases(path):
    labels = test_labels(path.parent / (path.name.split(".")[0] + ".json"))
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
        yield from cases_inside(case, group, outcome, reason)


def after_second_try(cases, path):
    """A test that passed alone counts as passed, with a reason that the summary shows."""
    passed = {c.name for c in junit_cases(path) if c.outcome == "passed"}
    for case in cases:
        if case.outcome == "failed" and case.name in passed:
            case = case._replace(outcome="passed", reason=f"failed ({case.reason}), then passed alone")
        yield case


def worth_another_try(path):
    failed = sum(c.outcome == "failed" for c in junit_cases(pathlib.Path(path)))
    found = [c for c in ElementTree.parse(path).iter("testcase")
             if c.find("failure") is not None or c.get("status") == "fail"
             if re.search(r"Sanitizer|runtime error:", c.findtext("system-out") or "")]
    return 0 < failed <= MOST_AGAIN and not found


def result_lines(path):
    for line in path.read_text().splitlines():
        outcome, name, reason = (line.split(" ", 2) + [""])[:3]
        yield Case(path.stem, name, outcome, reason)


def stage_cases(folder, stage):
    file = lambda suffix: folder / f"{stage}.{suffix}"
    cases = []
    if file("failed").exists():
        cases.append(Case("-", stage, "failed", file("failed").read_text().strip()))
    if file("xml").exists():
        first = junit_cases(file("xml"))
        again = file("again.xml")
        cases += after_second_try(first, again) if again.exists() else first
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
    if sys.argv[1] == "--worth-another-try":
        sys.exit(0 if worth_another_try(sys.argv[2]) else 1)
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
        notes += [(c.outcome, stage, c.name, c.reason) for c in cases if c.outcome != "passed" or c.reason]
    rows.append(("all", "", *(total[o] for o in OUTCOMES), ""))
    print("\n== summary")
    for outcome in ("skipped", "passed", "failed"):
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
