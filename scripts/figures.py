#!/usr/bin/env python3
"""The tables of figures in README.md, benches/README.md and docs/howto/sizing.md, and the chart docs/pictures/packets.svg, from the newest
committed result of `make bench` (benches/results/DATE*.json); --check fails if the committed ones differ."""
import html
import json
import pathlib
import re
import sys
import textwrap

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
# eUPF, as we have measured it: benches/README.md says how. Up and down, harness included, as the floor is in ours.
EUPF = {"commit": "a8d774a", 1000: (150, 145), 100_000: (611, 605)}
# Groups of the chart, by sessions.
FEW, MANY = "1 000 sessions", "100 000 and more"
INK = {"ours": "#1b6ca8", "elsewhere": "#8a6d3b", "published": "#8c8c8c"}


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


def all_in(report):
    """ns of CPU for a packet, floor included, by path and sessions: up and down."""
    figures = {figure["name"]: figure for figure in report["figures"]}
    most, found = report["conditions"]["sessions"], {}
    for what, name, ways, is_above in PATHS:
        for n in (1000, most):
            of = [figures.get(name.format(way=way, n=n)) for way in ways]
            if None not in of and ("{n}" in name or n == 1000):
                found[what, n] = [figure["value"] + figure["floor"] * is_above for figure in of]
    return found


def sizing(report):
    """For docs/howto/sizing.md: what a CPU carries, and what a session takes."""
    figures = {figure["name"]: figure["value"] for figure in report["figures"]}
    most = report["conditions"]["sessions"]
    lines = ["| A CPU carries, million packets a second at most | up, 1 000 sessions | down | " + f"up, {number(most)} | down |", "|---|---|---|---|---|"]
    found = all_in(report)
    for what, _, _, _ in PATHS:
        cells = [f"{1000 / ns:.1f}" for n in (1000, most) for ns in found.get((what, n), ())]
        lines.append(f"| {what} | {' | '.join(cells + [''] * (4 - len(cells)))} |")
    rates = [f"{figures[f'dpdk-worker-{way}-64B-rate'] / 1e6:.1f}" for way in ("up", "down")]
    lines += [f"| *measured:* one worker of `dpdk` between rings, 64 octets | {' | '.join(rates)} | | |", ""]
    lines += ["| | |", "|---|---|"]
    for what, name, unit in [
        ("memory for each session, all of turnpiked", "memory_per_session", "octets"),
        ("… of that beyond what it takes without a session", "memory_per_session_above_idle", "octets"),
        ("memory without a session, tables for as many", "idle_memory", "MB"),
        ("CPU for an establishment", f"establish_cpu_{most}", "us"),
        ("CPU for a path switch", f"modify_cpu_{most}", "us"),
        ("CPU for a deletion", f"delete_cpu_{most}", "us"),
    ]:
        lines.append(f"| {what}, {number(most)} sessions | {number(figures[name])} {unit} |")
    return "\n".join(lines) + "\n"


def chart(report, name):
    """Bars of ns for each packet: ours from this result, eUPF's from another machine, and what the papers say."""
    of, found = report["conditions"], all_in(report)
    most = of["sessions"]
    rows = {FEW: [], MANY: []}
    for what, path, _, _ in PATHS[:2]:
        label = f"Turnpike, {path.split('-')[0].split('_')[0].upper()}"
        rows[FEW].append((label, found[what, 1000], "ours"))
        rows[MANY].append((f"{label}, {number(most)}", found[what, most], "ours"))
    rows[FEW].append((f"eUPF {EUPF['commit']}, another machine", EUPF[1000], "elsewhere"))
    rows[MANY].append((f"eUPF {EUPF['commit']}, another machine, 100 000", EUPF[100_000], "elsewhere"))
    # Sockets would leave no room for the others.
    for what, up, down in PUBLISHED[:2]:
        rows[MANY].append((f"{what}: published", (float(up), float(down)), "published"))
    notes = (
        f"Ours: benches/results/{name}, {of['cpu']}, {of['cores']} cores, kernel {of['kernel']}, commit {of['commit']}; 64-octet packets of users in "
        "random order, MBR, floor included; XDP: the attached program, without a driver; DPDK: one worker between rings. eUPF: by the same method, "
        "users in rotation, without MBR, on another virtual machine of 2 CPUs (benches/README.md). Published: one core of other hardware. "
        "Linux' own forwarding: not measured. Compare what is of one colour. Made by scripts/figures.py."
    )
    left, scale, width = 350, 0.78, 900
    body, y = [], 52
    for title, bars in rows.items():
        body.append(f'<text x="12" y="{y}" font-weight="bold">{title}</text>')
        y += 10
        for label, (up, down), kind in bars:
            body.append(f'<text x="{left - 10}" y="{y + 16}" text-anchor="end">{html.escape(label)}</text>')
            for ns, shift, shade in ((up, 0, 1), (down, 12, 0.6)):
                body.append(f'<rect x="{left}" y="{y + shift}" width="{ns * scale:.0f}" height="10" fill="{INK[kind]}" fill-opacity="{shade}"/>')
                body.append(f'<text x="{left + ns * scale + 5:.0f}" y="{y + shift + 9}" font-size="10">{number(round(ns))}</text>')
            y += 34
        y += 26
    for note in textwrap.wrap(notes, 150):
        body.append(f'<text x="12" y="{y}" font-size="11" fill="#555">{html.escape(note)}</text>')
        y += 15
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}" font-family="sans-serif" font-size="12" fill="#222">'
    title = "Nanoseconds of CPU for each packet: uplink above, downlink below (pale)"
    return "\n".join([head, f'<title>{title}</title>', '<rect width="100%" height="100%" fill="#fff"/>', f'<text x="12" y="24" font-size="16" font-weight="bold">{title}</text>', *body, "</svg>", ""])


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
        root / "docs/howto/sizing.md": said.format(place="../../benches/results/") + sizing(report),
    }
    made = {path: page(path, text) for path, text in pages.items()}
    picture = root / "docs/pictures/packets.svg"
    if not picture.exists():
        picture.write_text("")
    made[picture] = chart(report, newest.name)
    for path, whole in made.items():
        if "--check" not in sys.argv:
            path.write_text(whole)
        elif path.read_text() != whole:
            sys.exit(f"{path.name} is not what scripts/figures.py makes of {newest.name}: run it")


main()
