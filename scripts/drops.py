#!/usr/bin/env python3
"""docs/drops.md from datapath/include/tp_drop.def; --check fails if the committed page differs."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
source = (root / "datapath/include/tp_drop.def").read_text()
lines = re.findall(r'^TP_DROP\((\w+), (\w+), "([^"]*)", "([^"]*)"\)$', source, re.M)
if not lines or len(lines) != source.count("\nTP_DROP("):
    sys.exit("drops.py: a line of tp_drop.def is not understood")
page = """# Drop reasons

Every packet that the pipeline loses is counted under one of these names, per interface and direction: in
`turnpike drops`, and in the metric `turnpike_drops_total{reason="..."}`. This page is made from
`datapath/include/tp_drop.def` by `scripts/drops.py`.

| Reason | What happened | What to do |
|---|---|---|
"""
page += "".join(f"| `{name}` | {what} | {advice} |\n" for _, name, what, advice in lines)
target = root / "docs/drops.md"
if "--check" in sys.argv:
    if not target.exists() or target.read_text() != page:
        sys.exit("docs/drops.md is not what scripts/drops.py makes of tp_drop.def: run it")
else:
    target.write_text(page)
