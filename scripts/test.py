#!/usr/bin/env python3
"""Build every test once and run each as a process of its own, within a limit.

What runs is in a PID namespace and a mount namespace with a /run of its own: when this script ends, however it ends,
the kernel takes down every process, named network namespace, link, program and file in /run or $TMPDIR that a test
has made. Two of these scripts at once do not meet. --check shows that.

Prints what failed, with its output, the slowest tests, and the most memory that was in use; fails also if that was too
much.
"""

import argparse
import ctypes
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

# These run many processes themselves, or want the machine: one after the other, when all others are over.
ALONE = {("lab", "scenarios")}
# All data paths: the default build is linted.
FEATURES = ["--features", "slowpath/dpdk,turnpiked/dpdk"]
LIMIT_S = 300
LIMIT_ALONE_S = 4200
MEMORY_MB = 6144
# In which what a test has started ends by itself when the test is over.
AFTERWARDS_S = 60
# Lines that are told again of each test that failed.
TELLING_LINES = 12
MARK = "TURNPIKE_TEST_RUN"
PR_SET_PDEATHSIG = 1


def build(filters):
    """Executables with tests: package, target, path, folder of the package."""
    cargo = os.environ.get("CARGO", "cargo")
    # Programs that tests start, and tests, in one build: apart, programs would have features of their own, without those
    # that tests add, and half of what they depend on would be compiled again.
    command = [cargo, "build", "--locked", "--workspace", "--bins", "--tests", *FEATURES]
    command += ["--message-format", "json-render-diagnostics"]
    cargo = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if cargo.returncode:
        sys.exit(cargo.returncode)
    programs = []
    for line in cargo.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message.get("executable"):
            folder = os.path.dirname(message["manifest_path"])
            program = (os.path.basename(folder), message["target"]["name"], message["executable"], folder)
            if not filters or any(word in "::".join(program[:2]) for word in filters):
                programs.append(program)
    return programs


def tests_of(program):
    """Names of the tests that an executable has."""
    listed = subprocess.run(
        [program[2], "--list", "--format", "terse"], stdout=subprocess.PIPE, check=True, text=True, cwd=program[3]
    )
    return [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test")]


def processes_with(wanted):
    """Those with this in their environment: of a test, and all that they have started."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                if wanted in environ.read().split(b"\0"):
                    yield int(pid)
        except OSError:
            pass  # gone meanwhile


def about(pid):
    """What a process is, and what it waits for."""
    said = []
    for what in ["cmdline", "wchan", "syscall", "stack"]:
        try:
            with open(f"/proc/{pid}/{what}", "rb") as file:
                text = file.read(600).replace(b"\0", b" ").decode(errors="replace")
                said.append(" | ".join(text.splitlines()[:12]))
        except OSError:
            pass
    return f"{pid}: " + "; ".join(said)


def end(mark, patience_s):
    """Kill what is left of a test after a while; what processes that were."""
    deadline = time.monotonic() + patience_s
    # One look decides: a process that begins to run another program has no environment for a moment.
    while (left := list(processes_with(f"{MARK}={mark}".encode()))) and time.monotonic() < deadline:
        time.sleep(0.02)
    said = [about(pid) for pid in left]
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return said


def telling(text):
    """What a failed test says of why, from all that it printed: told again at the end, where whoever sees nothing else sees it."""
    lines = text.splitlines()
    begins = [n for n, line in enumerate(lines) if line.startswith("FAIL ") or " panicked at " in line]
    chosen = sorted({n + more for n in begins for more in range(3) if n + more < len(lines)})
    return [lines[n][:400] for n in chosen[:TELLING_LINES]]


class Run:
    """All tests, and what became of them."""

    def __init__(self):
        self.lock = threading.Lock()
        self.took, self.failed = [], []

    def one(self, mark, program, name, limit_s):
        """Run a test to its end or its limit."""
        title = f"{program[0]}/{program[1]} {name}"
        environment = dict(os.environ, CARGO_MANIFEST_DIR=program[3], **{MARK: mark})
        began = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [program[2], name, "--exact", "--show-output"],
                cwd=program[3],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            why = None
            try:
                if process.wait(limit_s):
                    why = "failed"
            except subprocess.TimeoutExpired:
                why = f"not over after {limit_s} s"
            left = end(mark, 0 if why else AFTERWARDS_S)
            process.wait()
            if left and why is None:
                why = "left processes behind:\n  " + "\n  ".join(left)
            seconds = time.monotonic() - began
            output.seek(0)
            text = output.read().decode(errors="replace")
        with self.lock:
            self.took.append((seconds, title))
            if why:
                self.failed.append((title, telling(text)))
                print(f"FAIL {title}: {why}\n{text}", flush=True)
            elif program[:2] in ALONE:
                print(f"ok   {title} ({seconds:.0f} s)\n{text}", flush=True)

    def side_by_side(self, tests, jobs):
        """Run these, `jobs` at a time."""
        waiting = queue.SimpleQueue()
        for test in tests:
            waiting.put(test)

        def work():
            while True:
                try:
                    test = waiting.get_nowait()
                except queue.Empty:
                    return
                self.one(*test)

        threads = [threading.Thread(target=work) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def memory_in_use_mb():
    """Of the whole machine."""
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        kib = {line.split(":")[0]: int(line.split()[1]) for line in meminfo}
    return (kib["MemTotal"] - kib["MemAvailable"]) / 1024


class Memory(threading.Thread):
    """The most memory that was in use beyond what was in the beginning."""

    def __init__(self):
        super().__init__(daemon=True)
        self.first, self.most = memory_in_use_mb(), 0.0

    def run(self):
        while True:
            self.most = max(self.most, memory_in_use_mb() - self.first)
            time.sleep(0.5)


def left_behind():
    """What all tests together have left, that each should have removed."""
    names = [f"/run/netns/{name}" for name in os.listdir("/run/netns")] if os.path.isdir("/run/netns") else []
    for folder in [os.environ["TMPDIR"], "/run/turnpike-lab"]:
        names += [f"{folder}/{name}" for name in os.listdir(folder)] if os.path.isdir(folder) else []
    return names


def inside(programs, jobs, limit_s):
    """Run the tests, in namespaces of their own."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    os.mkdir("/run/tmp")
    os.environ["TMPDIR"] = tempfile.tempdir = "/run/tmp"
    memory = Memory()
    memory.start()
    numbers = iter(range(1, 1 << 30))
    together, alone = [], []
    for program in programs:
        is_alone = program[:2] in ALONE
        for name in tests_of(program):
            test = (f"{MARK}-{os.getpid()}-{next(numbers)}", program, name, LIMIT_ALONE_S if is_alone else limit_s)
            (alone if is_alone else together).append(test)
    run = Run()
    run.side_by_side(together, jobs)
    run.side_by_side(alone, 1)
    left = left_behind()
    print("\nthe slowest:")
    for seconds, title in sorted(run.took, reverse=True)[:20]:
        print(f"{seconds:7.1f} s  {title}")
    print(f"\nat most {memory.most:.0f} MB of memory more than before; {MEMORY_MB} are allowed")
    for name in left:
        print(f"LEFT BEHIND {name}")
    print(f"{len(run.took) - len(run.failed)} tests passed, {len(run.failed)} failed")
    for title, lines in run.failed:
        print(f"FAILED {title}")
        for line in lines:
            print(f"    {line}")
    if not run.took:
        sys.exit("no test is called that")
    sys.exit(bool(run.failed or left or memory.most > MEMORY_MB))


def contained(programs, *options):
    """Start the tests of these programs in namespaces of their own."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir="target", delete=False) as listed:
        json.dump(programs, listed)
    # The shell reaps what tests leave to it, as the first process of a namespace must.
    command = ["setpriv", "--pdeathsig", "KILL"]
    command += ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
    command += ["bash", "-c", '"$@"; exit $?', "tests", sys.executable, __file__, "--inside", listed.name, *options]
    return command


# Stands in for an executable with tests, of which one makes all that a test can leave behind, and does not end.
LITTER = """#!/bin/bash
[ "$1" != --list ] || { echo "litters: test"; exit; }
ip netns add litter
ip link add $LINK type veth peer name inside netns litter
setsid sleep 600 &
touch "$TMPDIR/litter"
[ ! -e /sys/class/net/$LINK ] || echo begun > "$BEGUN"
sleep 600
"""


def await_that(what, holds):
    """Wait for an event; the bound only says "never"."""
    deadline = time.monotonic() + 60
    while not holds():
        if time.monotonic() > deadline:
            sys.exit(f"check: {what}: not within 60 s")
        time.sleep(0.05)


def check():
    """A test that litters and hangs is ended, named and cleaned up after; so it is when the whole run is killed, while
    another one goes on beside it."""
    os.makedirs("target", exist_ok=True)
    folder = tempfile.mkdtemp(dir="target")
    program = os.path.abspath(f"{folder}/litter")
    with open(program, "w", encoding="ascii") as script:
        script.write(LITTER)
    os.chmod(program, 0o755)
    links = [f"tpl{os.getpid()}x{n}" for n in range(2)]
    begun = [os.path.abspath(f"{folder}/begun{n}") for n in range(2)]
    runs = []
    for n, limit_s in enumerate([600, 5]):
        environment = dict(os.environ, LINK=links[n], BEGUN=begun[n])
        command = contained([("check", "litter", program, folder)], "--limit", str(limit_s))
        runs.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    for file in begun:
        await_that("both begin", lambda file=file: os.path.exists(file))
    runs[0].kill()
    runs[0].wait()
    output, _ = runs[1].communicate()
    for link in links:
        await_that(f"{link} is gone", lambda link=link: not os.path.exists(f"/sys/class/net/{link}"))
    for link in links:
        environ = f"LINK={link}".encode()
        await_that("no process is left", lambda environ=environ: not any(processes_with(environ)))
    shutil.rmtree(folder)
    wanted = ["check/litter litters: not over after 5 s", "LEFT BEHIND /run/netns/litter", "1 failed"]
    missing = [words for words in wanted if words not in output]
    if missing or runs[1].returncode == 0:
        sys.exit(f"check: without {missing}, {runs[1].returncode}\n{output}")
    print("a test that litters is ended and named, and nothing of it is left, also when the run is killed")


def main():
    # Whoever started this is gone: so is this.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("filters", nargs="*", help="only of packages and targets like this, such as slowpath::golden")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests at a time (default: one for each CPU)")
    parser.add_argument("--check", action="store_true", help="show that nothing is left behind, then end")
    parser.add_argument("--limit", type=int, default=LIMIT_S, help=argparse.SUPPRESS)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        with open(arguments.inside, encoding="utf-8") as listed:
            programs = [tuple(program) for program in json.load(listed)]
        os.unlink(arguments.inside)
        inside(programs, arguments.jobs, arguments.limit)
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    if os.geteuid():
        sys.exit("tests make network namespaces and load XDP programs: run as root")
    if arguments.check:
        sys.exit(check())
    command = contained(build(arguments.filters), "--jobs", str(arguments.jobs))
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
