#!/usr/bin/env python3
"""docs/data-path.md names functions and the files they are in: fails when one no longer is there."""
import sys

from count_data_path import ROOT, length, rows

named = [(function, file) for _, _, _, function, file in rows((ROOT / "docs/data-path.md").read_text())]
missing = [f"{function} in {file}" for function, file in named if length(function, ROOT / file) is None]
if not named or missing:
    sys.exit("docs/data-path.md names what is not there: " + (", ".join(missing) or "no rows found"))
print(f"{len(named)} functions of docs/data-path.md exist")
