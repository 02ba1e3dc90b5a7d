#!/usr/bin/python3
"""Costs of consumers of events to a UPF: CPU time of its control thread and of all of it, and what SMFs wait, without a subscription and
with one to all UEs, which are silent or have a packet each in each period.

usage: benches/events.py [--turnpiked PATH] [--sessions N] [--seconds S] [--out RESULT.json]
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(1, str(ROOT / "tests/nupf"))

# It says where the others are.
from consumer import Consumer, ask, events
from bench import Bench, Node, inside_namespaces, say, until

import upf
from upf import build_network, ie, sh, u32

PORT, CONSUMER = 7780, "10.100.0.5"
# Of the subscription, in seconds.
PERIOD = 5


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turnpiked", type=os.path.abspath, default=str(ROOT / "target/release/turnpiked"))
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


class Server(Node):
    """turnpiked with as many sessions."""

    def metric(self, name):
        """Of its page."""
        request = urllib.request.Request(f"http://{upf.API}/metrics", headers={"Authorization": f"Bearer {upf.TOKEN}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return float(re.search(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.M)[1])


class Costs:
    """Between two moments."""

    def __init__(self, node, smf):
        self.node, self.smf = node, smf

    def now(self):
        """CPU time of the control thread for questions, and of the process."""
        return {"control": self.node.metric('turnpike_rest_seconds_total{of="control"}'), "process": self.node.cpu_s()}

    def over(self, seconds):
        """Of so long, in which an SMF asks every 2 ms."""
        before, waits, began = self.now(), [], time.monotonic()
        while time.monotonic() < began + seconds:
            sent = time.perf_counter()
            self.smf.answer(self.smf.send(1, ie(96, u32(3_900_000_000))))
            waits.append((time.perf_counter() - sent) * 1e6)
            time.sleep(0.002)
        took, after = time.monotonic() - began, self.now()
        cuts = statistics.quantiles(waits, n=1000)
        return {
            "control_percent": 100 * (after["control"] - before["control"]) / took,
            "process_percent": 100 * (after["process"] - before["process"]) / took,
            "memory_kb": self.node.memory_kb(),
            "heartbeat_p50_us": cuts[499],
            "heartbeat_p99_us": cuts[989],
            "heartbeat_max_us": max(waits),
        }


class Taker(Consumer):
    """It takes all that comes, unread."""

    def _judge(self, request):
        pass


class Items:
    """Of notifications that a consumer has taken, each counted once."""

    def __init__(self, consumer):
        self.consumer, self.seen, self.count = consumer, 0, 0

    def so_far(self):
        """Reports on one UE each."""
        while self.seen < len(self.consumer.requests) and self.consumer.requests[self.seen].status:
            self.count += self.consumer.requests[self.seen].body.count(b'"eventType"')
            self.seen += 1
        return self.count


def packets(radio, sessions):
    """A process that sends a packet to each user in each period, until it is killed."""
    process = os.fork()
    if process:
        return process
    users = [(socket.inet_ntoa(upf.ues(number)), 9000) for number in range(sessions)]
    while True:
        due = time.monotonic() + PERIOD
        for place, user in enumerate(users):
            radio.server.sendto(b"\0" * 100, user)
            # As fast as veths take them without loss.
            if place % 200 == 0:
                time.sleep(0.002)
        time.sleep(max(0, due - time.monotonic()))


def bench(options, folder):
    """Figures by state."""
    programs = Bench(options.turnpiked, None, folder)
    programs.section = "nupf"
    lines = f'listen = "{upf.N4}:{PORT}"\nallow = ["{CONSUMER}/32"]\nmin_period_s = 1\nmax_ues = {options.sessions}\n'
    node = Server(programs, f"{folder}/1", lines)
    with open(f"{node.folder}/turnpiked.toml", encoding="utf-8") as file:
        text = file.read()
    with open(f"{node.folder}/turnpiked.toml", "w", encoding="utf-8") as file:
        file.write(text.replace("sessions = 200\nentries = 1024", f"sessions = {options.sessions}\nentries = {3 * options.sessions}"))
    node.start()
    smf = upf.Smf("smf1.example")
    assert smf.associate() == upf.ACCEPTED
    refused, _ = smf.establish(0, options.sessions)
    assert not refused, refused[:5]
    say(f"{options.sessions} sessions")
    consumer = Taker(CONSUMER, 9000)
    costs, found = Costs(node, smf), {}
    found["no subscription"] = costs.over(options.seconds)
    url = f"http://{upf.N4}:{PORT}/nupf-ee/v1/ee-subscriptions"
    answer = ask("POST", url, {"subscription": consumer.subscription("all", period=PERIOD, eventList=events())}, source=CONSUMER)
    assert answer.status == 201, answer
    until(lambda: node.get("status")["nupf"]["ues"] == options.sessions, "all UEs")
    found["all UEs, silent"] = costs.over(options.seconds)
    assert not consumer.requests
    sender = packets(programs.radio, options.sessions)
    items = Items(consumer)
    consumer.wait(lambda: items.so_far() >= options.sessions, "a period")
    since = items.so_far()
    found["all UEs, a packet each"] = costs.over(options.seconds)
    # Here the SMF waits for the interpreter, which notifications take from it.
    for name in [name for name in found["all UEs, a packet each"] if name.startswith("heartbeat")]:
        del found["all UEs, a packet each"][name]
    found["all UEs, a packet each"]["items_per_s"] = (items.so_far() - since) / options.seconds
    os.kill(sender, signal.SIGKILL)
    node.stop()
    return found


def conditions(options):
    """Of these figures."""
    with open("/proc/cpuinfo", encoding="ascii") as cpus:
        model = next(line.split(":", 1)[1].strip() for line in cpus if line.startswith("model name"))
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True, capture_output=True, check=True).stdout.strip()
    said = {"date": datetime.date.today().isoformat(), "commit": commit, "cpu": model, "cpus": os.cpu_count(), "kernel": platform.release()}
    return {**said, "sessions": options.sessions, "seconds": options.seconds, "period_s": PERIOD, "load_before": os.getloadavg()[0]}


def main():
    options = arguments()
    of = conditions(options)
    inside_namespaces()
    with tempfile.TemporaryDirectory() as folder:
        build_network()
        sh("ip", "addr", "add", f"{CONSUMER}/32", "dev", "lo")
        found = bench(options, folder)
    for state, figures in found.items():
        print(f"figure {state}: " + ", ".join(f"{name} {value:.1f}" for name, value in figures.items()), flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"conditions": of, "figures": found}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
