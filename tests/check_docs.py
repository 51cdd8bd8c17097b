#!/usr/bin/env python3
"""docs/data-path.md names functions and the files they are in: fails when one no longer is there."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
rows = re.findall(r"^\|[^|]*\|\s*`([^`]+)`\s*\|\s*`([^`]+)`\s*\|",
                  (root / "docs/data-path.md").read_text(), re.M)


def is_there(function, path):
    if not path.is_file():
        return False
    text = path.read_text()
    if re.search(rf"\b{re.escape(function)}\(", text):
        return True
    # Inside its class, in a header.
    owner, _, name = function.rpartition("::")
    return path.suffix == ".h" and all(
        re.search(pattern, text, re.M) for pattern in (rf"^(?:class|struct) {owner}\b", rf"^ +.*\b{name}\("))


missing = [f"{function} in {file}" for function, file in rows if not is_there(function, root / file)]
if not rows or missing:
    sys.exit("docs/data-path.md names what is not there: " + (", ".join(missing) or "no rows found"))
print(f"{len(rows)} functions of docs/data-path.md exist")
