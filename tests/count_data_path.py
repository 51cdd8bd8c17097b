#!/usr/bin/env python3
"""Counts docs/data-path.md: the lines and files of the functions in its tables, and the crossings
between objects before the first sendmsg.

A row is | step | function | file | who |. Dots before a step say how deep it is called from the row
above that has one fewer. A step that begins with "asked:" is a question: it answers, and the byte
does not go on there. Sections under "# Beside the way" are not counted.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\|\s*([.\s]*)([^|]*?)\s*\|\s*`([^`]+)`\s*\|\s*`([^`]+)`\s*\|")


def rows(text):
    """Yields (counted, depth, step, function, file)."""
    counted = True
    for line in text.splitlines():
        if line.startswith("# Beside"):
            counted = False
        if match := ROW.match(line):
            dots, step, function, file = match.groups()
            yield counted, dots.count("."), step, function, file


def length(function, path):
    """Lines of a function, from its name to its closing brace; None: it is not there."""
    if not path.is_file():
        return None
    lines = path.read_text().splitlines()
    # In a header it is called by its own name, and may stand inside its class.
    name = function.rpartition("::")[2] if path.suffix == ".h" else function
    begin = re.compile(rf"^( *)(?!return\b|//)[\w:<>,&*\s\[\]]*\b{re.escape(name)}\(")
    for first, line in enumerate(lines):
        match = begin.match(line)
        if not match or function == name and match.group(1):
            continue
        for last in range(first, len(lines)):
            text = lines[last]
            if text.endswith(";") and "{" not in "".join(lines[first:last + 1]):
                break  # only declared
            if text == match.group(1) + "}" or text.endswith("}") and last - first < 2:
                return last - first + 1
    return None


def owner(function):
    return function.rpartition("::")[0]


def main():
    total = {False: [0, set(), 0], True: [0, set(), 0]}  # by "asked:": lines, files, functions
    handed_on = asked = 0
    callers, before_sendmsg = [], True
    for counted, depth, step, function, file in rows((ROOT / "docs/data-path.md").read_text()):
        if not counted:
            continue
        is_asked = step.startswith("asked:")
        lines = length(function, ROOT / file)
        if lines is None:
            sys.exit(f"{function} is not in {file}")
        sums = total[is_asked]
        sums[0] += lines
        sums[1].add(file)
        sums[2] += 1
        callers = callers[:depth] + [owner(function)]
        if before_sendmsg and depth > 0 and callers[depth] != callers[depth - 1]:
            asked += is_asked
            handed_on += not is_asked
        before_sendmsg = before_sendmsg and "`sendmsg`" not in step
        if "-v" in sys.argv:
            print(f"{lines:4} {'  ' * depth}{function}  {file}")
    for name, is_asked in (("the way", False), ("asked on it", True)):
        lines, files, functions = total[is_asked]
        print(f"{name}: {lines} lines in {functions} functions of {len(files)} files")
    print(f"before the first sendmsg: handed on {handed_on} times, {asked} questions to others")


if __name__ == "__main__":
    main()
