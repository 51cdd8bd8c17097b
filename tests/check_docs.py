#!/usr/bin/env python3
"""docs/data-path.md names functions and the files they are in: fails when one no longer is there."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
rows = re.findall(r"^\|[^|]*\|\s*`([^`]+)`\s*\|\s*`([^`]+)`\s*\|",
                  (root / "docs/data-path.md").read_text(), re.M)
missing = []
for function, file in rows:
    path = root / file
    if not path.is_file() or not re.search(rf"\b{re.escape(function)}\(", path.read_text()):
        missing.append(f"{function} in {file}")
if not rows or missing:
    sys.exit("docs/data-path.md names what is not there: " + (", ".join(missing) or "no rows found"))
print(f"{len(rows)} functions of docs/data-path.md exist")
