#!/usr/bin/python3
"""Costs of a container to a UPF: TCP, round trips, requests and the start, of turnpiked in a container of podman and beside it, in turn,
on each data path. The same program, of the package in the image, in the same namespaces of the lab; inside with the rights that
the README gives it.

usage: benches/container.py FOLDER-OF-PACKAGES [--lab LAB] [--runs N] [--datapaths xdp,kernel,dpdk] [--out RESULT.json]
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(1, str(ROOT / "tests/packages"))

from image import FORGOTTEN, Podman, a_host
from machine import remove_tree, say, sh, wait_for

MARK = "TURNPIKE_BENCH_INSIDE"
# Of one run of the lab.
NEVER_S = 300
# Stands in for turnpiked in the lab, which starts it in the UPF's network and mount namespaces, with a folder for what outlives a start.
WRAPPER = """#!/bin/sh
network=/run/netns/$(ip netns identify $$)
exec nsenter --mount=/proc/{pid}/ns/mnt --net=/proc/{pid}/ns/net {podman} --network=ns:$network \\
    --volume="$2:/etc/turnpike/turnpiked.toml:ro" {image} --config /etc/turnpike/turnpiked.toml
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=pathlib.Path)
    parser.add_argument("--lab", type=pathlib.Path, default=ROOT / "target/release/lab")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--datapaths", default="xdp,kernel,dpdk")
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


def measure(lab, datapath, turnpiked):
    """Figures of one run, with their units."""
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        command = [str(lab), "--datapath", datapath, "bench", "--whole-only", "--out", result.name]
        sh(*command, env={**os.environ, "TURNPIKED": str(turnpiked)}, timeout=NEVER_S)
        return {figure["name"]: (figure["value"], figure["unit"]) for figure in json.load(result)["figures"]}


def figures_of(runs):
    """Medians inside and outside, their ratio, and what single runs had."""
    for name, (_, unit) in runs["outside"][0].items():
        values = {where: [run[name][0] for run in all] for where, all in runs.items()}
        median = {where: statistics.median(all) for where, all in values.items()}
        ratio = median["inside"] / median["outside"] if median["outside"] else float("nan")
        yield {"name": name, "unit": unit, **median, "ratio": ratio, "runs": values}


def script(name, text):
    """A program."""
    program = pathlib.Path("/mnt", name)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return program


def wrapper(podman, datapath):
    """A program that runs turnpiked in a container."""
    started = ["--rm", "--device=/dev/net/tun"]
    if datapath == "dpdk":
        # The lab's devices, net_af_packet, lock more memory than users may; those of network cards do not.
        started += ["--user=0", "--cap-add=IPC_LOCK"]
    words = podman.command(*podman.starting(started, state=FORGOTTEN))
    return script("inside", WRAPPER.format(pid=os.getpid(), podman=shlex.join(words), image=podman.image))


def bench(options):
    """Inside and outside in turn, so that what else the machine does meets both."""
    a_host()
    podman = Podman(network=None)
    podman.load(str(options.packages / "turnpike-dpdk.oci.tar"))
    program = f"{podman('image', 'mount', podman.image).strip()}/usr/bin/turnpiked-dpdk"
    # In a session of its own, as in a container and under systemd: the scheduler (sched_autogroup) gives each its share of the CPUs.
    outside = script("outside", f'#!/bin/sh\nexec setsid {program} "$@"\n')
    found = {}
    try:
        for datapath in options.datapaths.split(","):
            inside = wrapper(podman, datapath)
            runs = {"outside": [], "inside": []}
            for number in range(options.runs):
                for where, program in [("outside", outside), ("inside", inside)]:
                    runs[where].append(measure(options.lab, datapath, program))
                say(f"{datapath}: run {number + 1} of {options.runs}")
            found[datapath] = list(figures_of(runs))
            for figure in found[datapath]:
                print("figure {} {name} outside {outside:.1f} inside {inside:.1f} {unit} ratio {ratio:.3f}".format(datapath, **figure), flush=True)
    finally:
        podman("rm", "--all", "--force", check=False)
        podman("image", "unmount", "--all", check=False)
        wait_for("control groups of containers are empty", lambda: remove_tree(podman.cgroup))
    return found


def conditions(options):
    """Of these figures."""
    with open("/proc/cpuinfo", encoding="ascii") as cpus:
        model = next(line.split(":", 1)[1].strip() for line in cpus if line.startswith("model name"))
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True, capture_output=True, check=True).stdout.strip()
    said = {"date": datetime.date.today().isoformat(), "commit": commit, "cpu": model, "cpus": os.cpu_count(), "kernel": platform.release()}
    return {**said, "podman": sh("podman", "--version").strip(), "runs": options.runs, "load_before": os.getloadavg()[0]}


def main():
    options = arguments()
    if MARK not in os.environ:
        spaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--uts"]
        again = ["unshare", *spaces, sys.executable, *sys.argv]
        sys.exit(subprocess.run(again, env={**os.environ, MARK: "1"}, check=False).returncode)
    # Before it is under a load of its own.
    of = conditions(options)
    result = {"conditions": of, "datapaths": bench(options)}
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
