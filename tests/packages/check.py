#!/usr/bin/python3
"""Packages as an operator has them, from a bare Debian 12: lintian, then install, configure, run, kill, upgrade, remove and purge,
with systemd as PID 1 in namespaces, and a user whose packets go on all the while.

usage: tests/packages/check.py FOLDER-OF-PACKAGES
"""

import glob
import json
import os
import re
import shutil
import tempfile

from machine import Machine, alone, edit, leave_the_network, say, sh, wait_for
from network import Course, Smf

CONFIG = "/etc/turnpike/turnpiked.toml"
UNIT = "turnpiked.service"
# Of `systemd-analyze security`, in tenths.
EXPOSED_AT_MOST = 25
KILL = ["systemctl", "kill", "--kill-who=main", "--signal=KILL", UNIT]
RESTART = ["systemctl", "restart", UNIT]
# Changed by programs of Debian, whatever is installed.
NOT_OURS = re.compile(r"/(var/(lib/(dpkg|apt|systemd)|log|cache)|etc/(passwd|group|g?shadow|subu?gid)-?$|(var/)?tmp|root|run)")


def field(package, name):
    """One of the control file."""
    return sh("dpkg-deb", "--field", package, name).strip()


def debian(packages, root):
    """A bare Debian 12 with what packages depend on, and nothing of them."""
    names = [field(package, "Package") for package in packages]
    alternatives = [one for package in packages for one in field(package, "Depends").split(",")]
    needed = {re.split(r"[ |(]", one.strip())[0] for one in alternatives} - set(names)
    include = ",".join(sorted(needed | {"systemd", "iproute2", "ethtool"}))
    sh("mmdebstrap", "--quiet", "--variant=apt", f"--include={include}", "bookworm", root)


def files(root):
    """All files and folders that are not of programs of Debian alone."""
    found = set()
    for folder, below, names in os.walk(root):
        inside = folder.removeprefix(root) or "/"
        if os.path.ismount(folder) and folder != root:
            continue
        found |= {os.path.join(inside, name) for name in below + names}
    return {name for name in found if not NOT_OURS.match(name)}


def renamed(package, release, folder, program=None):
    """The package once more, as a later release with another example of the configuration; and with that turnpiked."""
    version = field(package, "Version")
    with tempfile.TemporaryDirectory(dir=folder) as tree:
        sh("dpkg-deb", "--raw-extract", package, f"{tree}/it")
        edit(f"{tree}/it/DEBIAN/control", lambda text: text.replace(version, f"{version}+{release}"))
        example = f"{tree}/it/usr/share/turnpike/turnpiked.toml"
        if os.path.exists(example):
            edit(example, lambda text: f"# Of release {release}.\n{text}")
        if program:
            with open(f"{tree}/it/usr/bin/turnpiked", "w", encoding="ascii") as file:
                file.write(program)
        to = os.path.join(folder, os.path.basename(package).replace(version, f"{version}+{release}"))
        sh("dpkg-deb", "-Znone", "--root-owner-group", "--build", f"{tree}/it", to)
    return to


class Service:
    """turnpiked on the machine."""

    def __init__(self, machine):
        self.machine = machine

    def pid(self):
        """Main process; 0: none."""
        return int(self.machine("systemctl", "show", "--property=MainPID", "--value", UNIT).strip() or 0)

    def is_active(self):
        """Whether it has said that it is ready."""
        return self.machine("systemctl", "is-active", UNIT, check=False).strip() == "active"

    def ready_again(self, former):
        """Once another process than that one is."""
        wait_for("turnpiked is up again", lambda: self.pid() not in (0, former) and self.is_active())
        return self.pid()

    def journal(self):
        """Last words."""
        return self.machine("journalctl", "--unit", UNIT, "--no-pager", "--lines=40", check=False)


def install(machine, *packages):
    """As from a folder, without network."""
    folder = machine.path("/var/tmp/packages")
    os.makedirs(folder, exist_ok=True)
    for package in packages:
        shutil.copy(package, folder)
    names = [f"/var/tmp/packages/{os.path.basename(package)}" for package in packages]
    return machine("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *names)


def without_systemd(root, package):
    """As when an image is made: installed, upgraded, removed and purged, and nothing runs."""
    for one in [package, renamed(package, "image", "/mnt")]:
        shutil.copy(one, f"{root}/tmp/turnpike.deb")
        sh("chroot", root, "dpkg", "--install", "/tmp/turnpike.deb")
    sh("chroot", root, "turnpiked", "--version")
    for action in ["--remove", "--purge"]:
        sh("chroot", root, "dpkg", action, "turnpike")
    say("installed, upgraded and purged without systemd")


def check_installed(machine, service):
    """It waits for its operator, who finds all that there should be."""
    assert not service.is_active() and service.pid() == 0
    assert machine("systemctl", "is-enabled", UNIT, check=False).strip() == "disabled"
    assert "turnpike" in machine("id", "turnpike")
    release = machine("dpkg-query", "--show", "--showformat=${Version}", "turnpike").split("-")[0]
    for program in ["turnpiked", "turnpike"]:
        assert machine(program, "--version").startswith(f"{program} {release} (commit "), program
    assert "data paths xdp, kernel" in machine("turnpiked", "--version")
    # A user without rights reads the configuration's errors, and pages of the manual.
    said = machine("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "turnpiked", "check-config", CONFIG)
    assert said.startswith(f"{CONFIG}: ok"), said
    listed = machine("dpkg", "--listfiles", "turnpike").split("\n")
    for wanted in ["man8/turnpiked.8.gz", "man1/turnpike.1.gz", "man5/turnpiked.toml.5.gz", "completions/turnpike"]:
        assert any(line.endswith(wanted) for line in listed), wanted
    assert "no session has this TEID" in " ".join(machine("turnpike", "help", "unknown_teid").split())
    assert not machine("dpkg-query", "--show", "clang*", check=False).startswith("clang")


def check_security(machine):
    """As much of the sandbox as systemd can see."""
    said = machine("systemd-analyze", "security", "--no-pager", UNIT)
    print(*[line for line in said.split("\n") if not line.startswith("✓")], sep="\n", flush=True)
    exposed = re.search(r"Overall exposure level for \S+ (\d+)\.(\d)", said)
    assert int(exposed[1]) * 10 + int(exposed[2]) <= EXPOSED_AT_MOST


class Life:
    """A UPF in use, and what must not be noticed."""

    def __init__(self, machine, packages, folder):
        self.machine, self.service, self.folder = machine, Service(machine), folder
        self.packages = packages
        self.config = machine.path(CONFIG)
        self.releases = 0

    def start(self):
        """First start, by hand."""
        edit(self.config, lambda text: text.replace("[n4]", "[nonsense]\n[n4]", 1))
        self.machine("systemctl", "start", UNIT, check=False)
        shown = self.machine("systemctl", "show", "--property=ActiveState,NRestarts,ExecMainStatus", UNIT)
        assert set(shown.split()) == {"ActiveState=failed", "NRestarts=0", "ExecMainStatus=2"}, shown
        edit(self.config, lambda text: text.replace("[nonsense]\n", ""))
        say("not started, and not again, with a wrong configuration")

        edit(self.config, lambda text: text.replace('allow = ["10.100.0.0/24"]', 'allow = ["10.100.0.2/32"]'))
        self.machine("systemctl", "enable", "--now", UNIT)
        assert self.service.is_active(), self.service.journal()
        check_security(self.machine)
        mounts = self.machine("cat", "/proc/mounts")
        assert re.search(r"^tmpfs /run/turnpike tmpfs \S*huge=within_size", mounts, re.MULTILINE), mounts
        assert self.machine("stat", "--format=%U %a", "/run/turnpike-bpf").split() == ["turnpike", "700"]
        assert self.machine("stat", "--format=%U", f"/proc/{self.service.pid()}").strip() == "turnpike"
        self.smf = Smf()
        self.smf.associate()
        self.smf.establish()
        self.stamp = self.smf.heartbeat()
        self.course = Course()
        assert self.course.flows() and self.machine.has_xdp(), self.machine("turnpike", "status")
        say("started: packets pass")

    def unnoticed(self, what, *command):
        """Another process has taken over after the command, and neither SMF nor user can tell."""
        former = self.service.pid()
        said = self.machine(*command) if command else ""
        self.service.ready_again(former)
        self.goes_on()
        say(what)
        return said

    def goes_on(self):
        """The session is there, and its packets pass."""
        assert self.course.flows(), self.service.journal()
        assert self.smf.heartbeat() == self.stamp
        status = json.loads(self.machine("turnpike", "status", "--json"))
        assert status["sessions"]["used"] == 1, status["sessions"]

    def program(self):
        """Of the process that runs."""
        return self.machine("readlink", f"/proc/{self.service.pid()}/exe").strip()

    def renamed(self, *names, **options):
        """These of the release that is there."""
        return [renamed(self.packages[name], f"{self.releases}", self.folder, **options) for name in names]

    def install(self, *names):
        """These of the release that is there."""
        return install(self.machine, *self.renamed(*names))

    def upgrade(self, *names, **options):
        """To the next release; what apt said."""
        self.releases += 1
        return install(self.machine, *self.renamed(*names, **options))

    def upgrade_that_waits(self, because, **options):
        """The former process goes on, and apt says why."""
        former = self.service.pid()
        said = self.upgrade("turnpike", **options)
        assert f"the former turnpiked goes on: {because}" in said, said
        assert self.service.pid() == former
        self.goes_on()
        return said

    def upgrades(self):
        """A new program takes over, unless that costs something."""
        former = self.service.pid()
        self.upgrade("turnpike")
        self.service.ready_again(former)
        self.goes_on()
        assert "10.100.0.2/32" in self.machine.read(CONFIG)
        say("upgraded: taken over, with the administrator's configuration")

        refuses = "#!/bin/sh\necho n4.listen is no key of this release\nexit 2\n"
        said = self.upgrade_that_waits(f"the new one does not take {CONFIG}", program=refuses)
        assert "n4.listen is no key of this release" in said, said
        former = self.service.pid()
        self.upgrade("turnpike")
        self.service.ready_again(former)
        self.goes_on()
        say("upgraded to one that does not take the configuration: the former one went on, until the next release")

        edit(self.config, lambda text: text.replace('on_stop = "keep"', 'on_stop = "release"'))
        self.upgrade_that_waits(f"{CONFIG} has changed since it started")
        self.unnoticed("upgraded while a change waits for a restart: the former one went on", *RESTART)

        self.upgrade_that_waits("its sessions end with it")
        edit(self.config, lambda text: text.replace('on_stop = "release"', 'on_stop = "keep"'))
        self.upgrade_that_waits(f"{CONFIG} has changed since it started")
        self.unnoticed("upgraded where a stop releases sessions: the former one went on", *KILL)

    def reloads(self):
        """Changes come into force, and are read then: an upgrade may follow."""
        former = self.service.pid()
        edit(self.config, lambda text: text.replace("sessions = 80000", "sessions = 90000"))
        assert "take-over" in self.machine("turnpike", "config", "diff", CONFIG)
        self.machine("systemctl", "reload", UNIT)
        self.goes_on()
        assert self.service.pid() == former
        status = json.loads(self.machine("turnpike", "status", "--json"))
        assert status["sessions"]["capacity"] == 90000, status["sessions"]
        say("reloaded with more sessions in the same process: taken over")

        edit(self.config, lambda text: text.replace("sessions = 90000", "sessions = 1000"))
        said = self.machine("turnpike", "reload", check=False)
        assert "limits.sessions: more than that may be in use" in said, said
        self.machine("systemctl", "reload", UNIT, check=False)
        shown = self.machine("systemctl", "show", "--property=ReloadResult", "--value", UNIT)
        assert shown.strip() == "exit-code", shown
        assert "limits.sessions: more than that may be in use" in self.service.journal()
        self.goes_on()
        edit(self.config, lambda text: text.replace("sessions = 1000", "sessions = 90000"))
        self.machine("turnpike", "reload")
        say("reloaded with fewer: refused, with the reason")

    def socket(self):
        """systemd has N4: a request in the gap is answered, though nobody repeats it."""
        self.machine("systemctl", "stop", UNIT)
        self.machine("systemctl", "enable", "--now", "turnpiked.socket")
        assert self.smf.heartbeat() == self.stamp
        for _ in range(5):
            former = self.service.pid()
            self.machine(*KILL)
            assert self.smf.heartbeat() == self.stamp
            self.service.ready_again(former)
        edit(self.config, lambda text: text.replace("sessions = 90000", "sessions = 95000"))
        self.machine("systemctl", "reload", UNIT)
        self.goes_on()
        self.machine("systemctl", "disable", "--now", "turnpiked.socket")
        self.unnoticed("N4 is systemd's: each request in a gap was answered", *RESTART)

    def dpdk(self):
        """The program that has DPDK, and back."""
        former = self.service.pid()
        (package,) = self.renamed("turnpike-dpdk")
        shutil.copy(package, self.machine.path("/var/tmp/dpdk.deb"))
        self.machine("dpkg", "--unpack", "/var/tmp/dpdk.deb")
        self.unnoticed("turnpike-dpdk: it does not run before it is configured", *KILL)
        assert self.program() == "/usr/bin/turnpiked"
        former = self.service.pid()
        self.machine("dpkg", "--configure", "turnpike-dpdk")
        assert "dpdk)" in self.machine("turnpiked-dpdk", "--version")
        assert self.service.pid() == former
        self.unnoticed("turnpike-dpdk: it runs after a restart", *RESTART)
        assert self.program() == "/usr/bin/turnpiked-dpdk"
        former = self.service.pid()
        self.upgrade("turnpike", "turnpike-dpdk")
        self.service.ready_again(former)
        self.goes_on()
        assert self.program() == "/usr/bin/turnpiked-dpdk"
        say("turnpike-dpdk: upgraded with the other package")
        former = self.service.pid()
        self.machine("apt-get", "remove", "--yes", "--quiet", "turnpike-dpdk")
        self.service.ready_again(former)
        self.goes_on()
        assert self.program() == "/usr/bin/turnpiked"
        say("turnpike-dpdk removed: the other program has taken over")

    def lab(self):
        """The emulated network, beside the service."""
        self.install("turnpike-lab")
        said = self.machine("turnpike-lab", "scenario", "attach")
        assert "1 passed" in said, said
        self.machine("apt-get", "purge", "--yes", "--quiet", "turnpike-lab")
        say("turnpike-lab: a scenario passes")

    def arrived(self):
        """No packet was lost on the way."""
        sent, lost = self.course.end()
        assert lost == 0, f"{lost} of {sent} packets lost"
        say(f"{sent} packets each way, none lost")

    def devices(self):
        """The service has what DPDK needs: packets pass through devices, here those over sockets of packets, in the same sandbox."""
        self.install("turnpike-dpdk")
        self.machine("systemctl", "stop", UNIT)
        self.machine("turnpiked", "detach", CONFIG)
        self.machine.behind_taps(self.config)
        edit(self.config, lambda text: text.replace('bpffs = "/run/turnpike-bpf"', ""))
        self.machine("systemctl", "start", UNIT, check=False)
        assert self.service.is_active(), self.service.journal()
        self.smf.associate()
        self.smf.establish()
        self.course.begin()
        assert self.course.flows(), self.service.journal()
        self.course.end()
        self.machine("apt-get", "purge", "--yes", "--quiet", "turnpike-dpdk")
        say("turnpike-dpdk: packets pass through devices")

    def end(self):
        """Nothing is left of it, though somebody stands there."""
        self.machine("systemd-run", "--working-directory=/run/turnpike", "sleep", "1000")
        said = self.machine("apt-get", "remove", "--yes", "--quiet", "turnpike")
        assert self.service.pid() == 0, said + self.machine("systemctl", "status", UNIT, check=False) + self.service.journal()
        # The kernel frees links behind the back of who closes them.
        wait_for("no program is attached", lambda: not self.machine.has_xdp())
        mounts = self.machine("cat", "/proc/mounts")
        assert "turnpike" not in mounts, mounts
        assert "10.100.0.2/32" in self.machine.read(CONFIG)
        self.machine("apt-get", "purge", "--yes", "--quiet", "turnpike")
        left = self.machine("find", "/run", "/var/log", "/etc", "-name", "*turnpike*").split()
        assert not left, left
        say("removed and purged")


def check(folder):
    """All of it."""
    packages = {field(package, "Package"): package for package in glob.glob(f"{folder}/*.deb")}
    packages = {name: package for name, package in packages.items() if not name.endswith("-dbgsym")}
    assert set(packages) == {"turnpike", "turnpike-dpdk", "turnpike-lab"}, packages
    said = sh("lintian", "--allow-root", "--fail-on=error,warning,info", "--tag-display-limit=0", *glob.glob(f"{folder}/*.changes"))
    say(f"lintian: {said.strip() or 'nothing to say'}")

    # In this mount namespace alone.
    sh("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/mnt")
    root = "/mnt/root"
    debian(packages.values(), root)
    say("Debian 12, bare")
    leave_the_network()
    before = files(root)
    without_systemd(root, packages["turnpike"])
    machine = Machine(root)
    try:
        machine.cables()
        life = Life(machine, packages, "/mnt")
        install(machine, packages["turnpike"])
        check_installed(machine, life.service)
        say("installed")
        life.start()
        life.unnoticed("killed: it is back", *KILL)
        life.unnoticed("restarted", *RESTART)
        life.reloads()
        life.upgrades()
        life.socket()
        life.dpdk()
        life.lab()
        life.arrived()
        life.devices()
        life.end()
    finally:
        machine.end()
    left = files(root) - before
    assert not left, sorted(left)


if __name__ == "__main__":
    alone(check)
