"""Parts of tests, each with a turnpiked, an SMF and a user of its own, in namespaces of its own; several at a time."""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(1, f"{ROOT}/tests/page")

import upf
from nrf import NEVER_S, Nrf
from upf import Radio, Smf, Upf, build_network, ie, sh, u32

MARK = "TURNPIKE_PARTS_INSIDE"
BEGAN = time.monotonic()
CONFIG = upf.CONFIG.replace("sessions = 120000\nentries = 240000", "sessions = 200\nentries = 1024").replace('on_stop = "keep"', 'on_stop = "{on_stop}"')


def say(what):
    """A step that is over."""
    print(f"{time.monotonic() - BEGAN:6.1f} s  {what}", flush=True)


def inside_namespaces():
    """Run again in namespaces of its own: however it ends, the kernel takes down what it has started and made."""
    if MARK in os.environ:
        sh("mount", "-t", "tmpfs", "tmpfs", "/run")
        os.makedirs("/run/tmp")
        tempfile.tempdir = os.environ["TMPDIR"] = "/run/tmp"
        return
    spaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--ipc"]
    again = ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "bash", "-c", '"$@"; exit $?', "nrf", sys.executable, *sys.argv]
    sys.exit(subprocess.run(again, env={**os.environ, MARK: "1"}, check=False).returncode)


def until(holds, what, seconds=NEVER_S):
    """Of something that nobody tells of."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)


class Node(Upf):
    """turnpiked with a section more, such as [nrf]."""

    def __init__(self, programs, folder, lines, on_stop="release"):
        os.makedirs(folder)
        super().__init__(programs.turnpiked, folder)
        self.turnpike, self.on_stop, self.section = programs.turnpike, on_stop, programs.section
        self.configure(lines)

    def configure(self, lines):
        """Other lines of that section; None: it is not there."""
        text = CONFIG.replace("{folder}", self.folder).replace("{on_stop}", self.on_stop)
        with open(f"{self.folder}/turnpiked.toml", "w", encoding="utf-8") as file:
            file.write(text if lines is None else f"{text}\n[{self.section}]\n{lines}")

    def reload(self):
        """By the command line, until it says that it is done."""
        return sh(self.turnpike, "--api", f"http://{upf.API}", "--token-file", f"{self.folder}/token", "reload")

    def lines(self):
        """All that it said."""
        if not self.process:
            return []
        with open(f"{self.folder}/turnpiked.log", encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()

    def memory_kb(self, field="RssAnon"):
        """Of /proc."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(re.search(rf"^{field}:\s+(\d+) kB", file.read(), re.M)[1])

    def forget_peak(self):
        """VmHWM begins anew."""
        with open(f"/proc/{self.process.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")

    def kill(self):
        """Without a word."""
        self.process.kill()
        self.process.wait(NEVER_S)


class Traffic:
    """An SMF that asks, and a user who sends."""

    def __init__(self, node, radio):
        self.node, self.smf, self.radio = node, Smf("smf1.example"), radio
        assert self.smf.associate() == upf.ACCEPTED
        refused, radio.teid = self.smf.establish(0, 1)
        assert not refused, refused
        radio.rate = lambda _: 50

    def end(self):
        """Of both; the address is free for the next SMF."""
        self.radio.rate = lambda _: 0
        self.smf.close()

    def goes_on(self):
        """N4 answers a heartbeat; packets come back that were sent after now. Both within NEVER_S."""
        self.smf.answer(self.smf.send(1, ie(96, u32(3_900_000_000))))
        until(lambda back=self.radio.back + 3: self.radio.back >= back, f"packets\n{self.node.log()}")

    def goes_on_while(self, request):
        """The same, before the client gives up what the NRF has not answered."""
        self.goes_on()
        assert not request.over.is_set(), f"N4 or packets waited for an NRF: {request.method} was over before"


class Bench:
    """Programs, a folder and what was complained of."""

    section = "nrf"

    def __init__(self, turnpiked, turnpike, folder):
        self.turnpiked, self.turnpike, self.folder, self.count = turnpiked, turnpike, folder, 0
        self.nrfs, self.nodes, self.traffic, self.radio = [], [], None, Radio()

    def nrf(self, address="10.100.0.5", port=7777, of=Nrf, **more):
        """One that ends with the part, and must have had nothing to complain of."""
        self.nrfs.append(of(address, port, **more))
        self.nrfs[-1].heart_beat_s = 1
        return self.nrfs[-1]

    def node(self, nrf, start=True, **more):
        """A turnpiked that ends with the part."""
        self.count += 1
        self.nodes.append(Node(self, f"{self.folder}/{self.count}", nrf, **more))
        if start:
            self.nodes[-1].start()
        return self.nodes[-1]

    def without(self, node):
        """It has ended, and so has its SMF; None."""
        self.nodes.remove(node)
        self.traffic.end()
        self.traffic = None

    def smf(self, node):
        """An SMF and a user of it, until the part ends."""
        self.traffic = Traffic(node, self.radio)
        return self.traffic

    def end(self, failed):
        """Of the part."""
        if self.traffic:
            self.traffic.end()
            self.traffic = None
        for node in self.nodes:
            if failed:
                print(f"--- {node.folder}\n" + "\n".join(line[:400] for line in node.lines()[-60:]), file=sys.stderr)
            if node.process and node.process.poll() is None:
                node.kill()
        complaints = [line for nrf in self.nrfs for line in nrf.complaints]
        told = [line for nrf in self.nrfs for line in [f"--- {nrf.url()}", *nrf.told()[-20:], *nrf.strange[-5:]]]
        for nrf in self.nrfs:
            nrf.stop()
        self.nrfs, self.nodes = [], []
        if failed:
            print("\n".join(told + complaints[:20]), file=sys.stderr)
            return
        assert not complaints, "\n".join(sorted(set(complaints))[:20])


def run_part(name, part, bench):
    """One; whether it failed."""
    try:
        told = part(bench)
        failed = False
    except Exception as error:
        failed, told = True, f"FAILED: {error!r}"[:3000]
        if not isinstance(error, (AssertionError, OSError, subprocess.SubprocessError)):
            traceback.print_exc()
    try:
        bench.end(failed)
    except AssertionError as error:
        failed, told = True, f"FAILED: there are complaints\n{error}"
    say(f"{name}: {told}" if told else name)
    return failed


def all_parts(arguments, names):
    """Each in a process and namespaces of its own, several at a time: they wait more than they work. The names of those that failed."""

    def one(name):
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, sys.argv[0], "--turnpiked", arguments.turnpiked, "--turnpike", arguments.turnpike, name]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        print(done.stdout, end="", flush=True)
        return None if done.returncode == 0 else name

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        return [name for name in pool.map(one, names) if name]


def main(what, parts, addresses, of=Bench):
    """Run the parts that the command line asks for. addresses: of the loopback, for what the parts start."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turnpiked", default=f"{ROOT}/target/debug/turnpiked", type=os.path.abspath)
    parser.add_argument("--turnpike", type=os.path.abspath)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(parts))
    arguments = parser.parse_args()
    arguments.turnpike = arguments.turnpike or f"{os.path.dirname(arguments.turnpiked)}/turnpike"
    unknown = set(arguments.parts) - set(parts)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}")
    for program in [arguments.turnpiked, arguments.turnpike]:
        if not os.access(program, os.X_OK):
            parser.error(f"{program}: no program")
    names = arguments.parts or list(parts)
    if len(names) > 1:
        failed = all_parts(arguments, names)
        say(f"{len(names) - len(failed)} passed, {len(failed)} failed" + (f": {', '.join(failed)}" if failed else ""))
        sys.exit(1 if failed else 0)
    inside_namespaces()
    with tempfile.TemporaryDirectory() as folder:
        build_network()
        for one in addresses:
            sh("ip", "addr", "add", *(f"{one}/128 dev lo nodad" if ":" in one else f"{one}/32 dev lo").split())
        sys.exit(1 if run_part(names[0], parts[names[0]], of(arguments.turnpiked, arguments.turnpike, folder)) else 0)
