#!/usr/bin/env python3
"""The tables of figures in README.md and benches/README.md, from the newest committed result of `make bench`
(benches/results/DATE-xdp.json); --check fails if the committed pages differ."""
import json
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
# What README tells, and as what; {n}: of the most sessions that were measured.
HEADLINES = [
    ("forward an uplink packet of 1 000 sessions in random order, above the floor", "xdp_uplink_64B_1000"),
    ("forward a downlink packet of 1 000 sessions, likewise", "xdp_downlink_64B_1000"),
    ("forward an uplink packet of {n} sessions, likewise", "xdp_uplink_64B_{n}"),
    ("forward a downlink packet of {n} sessions, likewise", "xdp_downlink_64B_{n}"),
    ("establish a session: CPU, with {n} there", "establish_cpu_{n}"),
    ("path switch: CPU, with {n} sessions", "modify_cpu_{n}"),
    ("path switch: request to answer, median", "modify_p50_window1_{n}"),
    ("decode an establishment of 317 octets", "pfcp_decode_establishment"),
    ("memory for each of {n} sessions", "memory_per_session"),
    ("start to first answer", "start_to_ready"),
    ("packets lost in exchanges of programs", "replacement_packets_lost"),
]


def number(value):
    """Three digits that say something; counts in full."""
    if value == int(value):
        return f"{int(value):,}".replace(",", " ")
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else number(round(value))


def row(what, figure):
    floor = figure["floor"]
    return f"| {what} | {number(figure['value'])} {figure['unit']} | {'' if floor is None else number(floor)} |\n"


def conditions(report, name):
    of = report["conditions"]
    return (
        f"{of['cpu']}, {of['cores']} cores, kernel {of['kernel']}, {of['clang']}, commit {of['commit']}, medians of "
        f"{of['runs']} runs ([{name}]({{place}}{name})).\n\n"
    )


def headlines(report):
    figures = {figure["name"]: figure for figure in report["figures"]}
    most = report["conditions"]["sessions"]
    rows = [(what.format(n=number(most)), figures.get(name.format(n=most))) for what, name in HEADLINES]
    lacking = [what for what, figure in rows if figure is None]
    if lacking:
        sys.exit(f"figures.py: the result lacks {lacking}")
    return "| To | Figure | Floor |\n|---|---|---|\n" + "".join(row(*one) for one in rows)


def everything(report):
    rows = (row(f"`{figure['name']}`", figure) for figure in report["figures"])
    return "| Figure | Value | Floor |\n|---|---|---|\n" + "".join(rows)


def page(path, text):
    """The file with this between its marks."""
    marks = re.compile(r"(<!-- figures: made by scripts/figures.py -->\n).*(<!-- end of figures -->\n)", re.S)
    whole, count = marks.subn(lambda found: found[1] + text + found[2], path.read_text())
    if count != 1:
        sys.exit(f"{path}: no place for figures")
    return whole


def main():
    newest = max((root / "benches/results").glob("????-??-??-xdp.json"))
    report = json.loads(newest.read_text())
    said = conditions(report, newest.name)
    pages = {
        root / "README.md": said.format(place="benches/results/") + headlines(report),
        root / "benches/README.md": said.format(place="results/") + everything(report),
    }
    for path, text in pages.items():
        whole = page(path, text)
        if "--check" not in sys.argv:
            path.write_text(whole)
        elif path.read_text() != whole:
            sys.exit(f"{path.name} is not what scripts/figures.py makes of {newest.name}: run it")


main()
