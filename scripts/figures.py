#!/usr/bin/env python3
"""The tables of figures in README.md and benches/README.md, from the newest committed result of `make bench`
(benches/results/DATE*.json); --check fails if the committed pages differ."""
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
    ("the same over DPDK, one worker: uplink, {n} sessions", "dpdk-up-{n}"),
    ("the same over DPDK, one worker: downlink, {n} sessions", "dpdk-down-{n}"),
    ("carry uplink packets of 64 octets by one worker over DPDK", "dpdk-worker-up-64B-rate"),
    ("carry uplink packets of 64 octets by one worker over sockets of the kernel", "kernel-up-rate"),
    ("establish a session: CPU, with {n} there", "establish_cpu_{n}"),
    ("path switch: CPU, with {n} sessions", "modify_cpu_{n}"),
    ("path switch: request to answer, median", "modify_p50_window1_{n}"),
    ("decode an establishment of 317 octets", "pfcp_decode_establishment"),
    ("memory for each of {n} sessions", "memory_per_session"),
    ("start to first answer", "start_to_ready"),
    ("packets lost in exchanges of programs", "replacement_packets_lost"),
]
# Data paths side by side: what each is, its figures, and whether these are above the floor.
PATHS = [
    ("`xdp`", "xdp_{way}_64B_{n}", ("uplink", "downlink"), True),
    ("`dpdk`, run to completion", "dpdk-{way}-{n}", ("up", "down"), True),
    ("`dpdk`, pipeline: receive core and worker", "dpdk-pipeline-{way}-{n}", ("up", "down"), True),
    ("`kernel`, system calls included", "kernel-{way}-cpu", ("up", "down"), False),
]
# What the papers say that Turnpike unites, of other hardware: up and down, with how many sessions.
PUBLISHED = [
    ("DPDK UPF (thesis), QoS on, 99 000 sessions", "193", "243"),
    ("PEPC, 1 000 000 users", "200", "200"),
    ("sockets (thesis)", "16 700", "16 700"),
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
    cache = of.get("shared cache")
    return (
        f"{of['cpu']}, {of['cores']} cores{f', {cache} of cache that they share' if cache else ''}, kernel {of['kernel']}, {of['clang']}, commit {of['commit']}, medians of "
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


def side_by_side(report):
    """ns of CPU for a packet, all in, and in brackets what the floor of that path takes alone."""
    figures = {figure["name"]: figure for figure in report["figures"]}

    def cell(name, is_above):
        figure = figures.get(name)
        if figure is None:
            return ""
        whole = figure["value"] + figure["floor"] * is_above
        return f"{number(whole)} ({number(figure['floor'])})"

    most = report["conditions"]["sessions"]
    lines = [f"| ns for each packet | up, 1 000 sessions | down | up, {number(most)} | down |", "|---|---|---|---|---|"]
    for what, name, ways, is_above in PATHS:
        sizes = (1000, most) if "{n}" in name else (1000,)
        cells = [cell(name.format(way=way, n=n), is_above) for n in sizes for way in ways]
        lines.append(f"| {what} | {' | '.join(cells + [''] * (4 - len(cells)))} |")
    lines += [f"| *published, other hardware:* {what} | {up} | {down} | | |" for what, up, down in PUBLISHED]
    return "\n".join(lines) + "\n"


def page(path, text):
    """The file with this between its marks."""
    marks = re.compile(r"(<!-- figures: made by scripts/figures.py -->\n).*(<!-- end of figures -->\n)", re.S)
    whole, count = marks.subn(lambda found: found[1] + text + found[2], path.read_text())
    if count != 1:
        sys.exit(f"{path}: no place for figures")
    return whole


def main():
    newest = max((root / "benches/results").glob("????-??-??*.json"))
    report = json.loads(newest.read_text())
    said = conditions(report, newest.name)
    pages = {
        root / "README.md": said.format(place="benches/results/") + headlines(report),
        root / "benches/README.md": said.format(place="results/") + side_by_side(report) + "\n" + everything(report),
    }
    for path, text in pages.items():
        whole = page(path, text)
        if "--check" not in sys.argv:
            path.write_text(whole)
        elif path.read_text() != whole:
            sys.exit(f"{path.name} is not what scripts/figures.py makes of {newest.name}: run it")


main()
