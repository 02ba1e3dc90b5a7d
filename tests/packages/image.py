#!/usr/bin/python3
"""The image as an operator has it: podman loads it, runs it as a user without privileges beside an SMF, a gNB and a server, kills and
restarts it, and a user's packets go on all the while.

usage: tests/packages/image.py FOLDER-OF-PACKAGES
"""

import errno
import json
import os
import re
import resource

from machine import Network, alone, edit, leave_the_network, own_cgroup, remove_tree, say, sh, wait_for
from network import Course, Smf

CONFIG = "/etc/turnpike/turnpiked.toml"
CAPABILITIES = {"NET_ADMIN": 12, "NET_RAW": 13, "PERFMON": 38, "BPF": 39}
# Of the process; scripts/image.sh.
USER = 8805
NAME = "upf"
# Folders for sessions that outlive a container, and for those that do not.
KEPT = ["--volume=/mnt/run:/run/turnpike", "--volume=/mnt/bpf:/run/turnpike-bpf"]
FORGOTTEN = ["--tmpfs=/run/turnpike:mode=1777"]
# Of a layer, unpacked.
OCTETS_AT_MOST = 60_000_000
SECCOMP = os.path.join(os.path.dirname(__file__), "../../deploy/container/seccomp.jq")


def a_host():
    """As podman would like it, in this mount namespace alone: one hierarchy of control groups, and nothing of the machine's containers."""
    sh("umount", "--recursive", "--lazy", "/sys/fs/cgroup")
    sh("mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")
    for folder in ["/mnt", "/run", "/dev/shm"]:
        sh("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
    for folder in ["/mnt/run", "/mnt/bpf"]:
        os.mkdir(folder)
    options = f"mode=0700,uid={USER},gid={USER},nosuid,nodev,noexec,huge=within_size"
    sh("mount", "-t", "tmpfs", "-o", options, "tmpfs", "/mnt/run")
    sh("mount", "-t", "bpf", "bpf", "/mnt/bpf")
    os.chown("/mnt/bpf", USER, USER)
    os.chmod("/mnt/bpf", 0o700)


class Podman:
    """Containers in the network of a UPF."""

    def __init__(self, network):
        self.network = network
        self.cgroup = own_cgroup()
        self.config = "/mnt/turnpiked.toml"
        self.seccomp = "/mnt/seccomp.json"
        with open(self.seccomp, "w", encoding="ascii") as file:
            file.write(sh("jq", "--from-file", SECCOMP, "/usr/share/containers/seccomp.json"))

    def command(self, *arguments):
        """Words of a command."""
        storage = ["--root=/mnt/storage", "--runroot=/run/storage", "--storage-driver=vfs", "--events-backend=none"]
        engine = ["--runtime=runc", "--cgroup-manager=cgroupfs", "--tmpdir=/run/libpod"]
        return ["podman", *storage, *engine, *arguments]

    def __call__(self, *arguments, **options):
        return sh(*self.command(*arguments), **options)

    def without_bpf(self):
        """A seccomp profile that forbids bpf(2), as those of engines do."""
        with open(self.seccomp, encoding="ascii") as file:
            profile = json.load(file)
        for rule in profile["syscalls"]:
            rule["names"] = [name for name in rule["names"] if name != "bpf"]
        profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
        profile["syscalls"].append({"names": ["bpf"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM})
        with open("/mnt/without.json", "w", encoding="ascii") as file:
            json.dump(profile, file)
        return "/mnt/without.json"

    def load(self, archive):
        """An image, and the configuration in it; octets of its files."""
        self.image = self("load", "--quiet", "--input", archive).split()[-1]
        root = self("image", "mount", self.image).strip()
        sh("cp", f"{root}/usr/share/turnpike/turnpiked.toml", self.config)
        octets = sum(file.stat(follow_symlinks=False).st_size for file in walk(root))
        self("image", "unmount", self.image)
        return octets

    def starting(self, options=(), capabilities=CAPABILITIES, state=KEPT, seccomp=None):
        """Words of a command that starts a container, but for its network, its configuration and all from the image on."""
        # Without the privilege to raise limits, podman's own would not be accepted.
        limits = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
        limits = [f"--ulimit={name}={limit}:{limit}" for name in limits for limit in [resource.getrlimit(limits[name])[1]]]
        rights = ["--read-only", f"--security-opt=seccomp={seccomp or self.seccomp}", "--cap-drop=all", *[f"--cap-add={name}" for name in capabilities]]
        return ["run", "--pids-limit=0", f"--cgroup-parent=/{os.path.basename(self.cgroup)}", *limits, *rights, *state, *options]

    def run(self, *arguments, check=True, **how):
        """One more container; what it said."""
        network = f"--network=ns:/proc/{self.network.pid}/ns/net"
        volume = f"--volume={self.config}:{CONFIG}:ro"
        return self(*self.starting(**how), network, volume, self.image, *arguments, check=check)

    def inspect(self, template):
        """Of the UPF."""
        return self("inspect", "--format", template, NAME).strip()

    def pid(self):
        """Of its process; 0: none."""
        return int(self.inspect("{{.State.Pid}}"))

    def status(self):
        """As the UPF says."""
        return json.loads(self("exec", NAME, "turnpike", "status", "--json"))

    def is_ready(self):
        """Whether it serves."""
        answer = self.network("curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "127.0.0.1:8806/readyz", check=False)
        return answer == "200"

    def wait(self, former=0):
        """Until another process than that one serves."""
        try:
            wait_for("turnpiked is up", lambda: self.pid() not in (0, former) and self.is_ready())
        except AssertionError as error:
            raise AssertionError(self("logs", "--tail=20", NAME)) from error

    def start(self, *options, **how):
        """The UPF."""
        self.run(options=["--detach", f"--name={NAME}", "--restart=always", *options], **how)
        self.wait()


def walk(folder):
    """Its files."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from walk(entry.path)
        yield entry


def check_rights(pid):
    """The process has the four capabilities, and nothing else of root's."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        said = dict(line.split(":", 1) for line in file)
    assert set(said["Uid"].split()) == set(said["Gid"].split()) == {str(USER)}, said["Uid"]
    wanted = sum(1 << number for number in CAPABILITIES.values())
    for kind in ["CapEff", "CapPrm", "CapBnd"]:
        assert int(said[kind], 16) == wanted, f"{kind} {said[kind]}"
    assert said["Seccomp"].strip() == "2"


def xdp(network, podman):
    """A user's packets while containers come and go."""
    edit(podman.config, lambda text: text.replace('allow = ["10.100.0.0/24"]', 'allow = ["10.100.0.2/32"]'))
    podman.start()
    check_rights(podman.pid())
    smf = Smf()
    smf.associate()
    smf.establish()
    stamp = smf.heartbeat()
    course = Course()

    def goes_on(what):
        assert course.flows(), podman("logs", NAME)
        assert smf.heartbeat() == stamp
        status = podman.status()
        assert status["sessions"]["used"] == 1, status["sessions"]
        say(what)

    assert network.has_xdp()
    goes_on("started: packets pass")
    former = podman.pid()
    os.kill(former, 9)
    podman.wait(former)
    goes_on("killed: it is back")
    reloads(podman, 90000)
    goes_on("reloaded in the same process")
    former = podman.pid()
    podman("restart", NAME)
    podman.wait(former)
    goes_on("restarted")
    podman("rm", "--force", NAME)
    podman.start("--security-opt=no-new-privileges")
    goes_on("replaced by another container, without new privileges")
    reloads(podman, 95000)
    goes_on("and reloaded there")
    sent, lost = course.end()
    assert lost == 0, f"{lost} of {sent} packets lost"
    say(f"{sent} packets each way, none lost")
    podman("rm", "--force", NAME)
    assert "removed" in podman.run("detach", CONFIG)
    wait_for("no program is attached", lambda: not network.has_xdp())
    return smf, course


def reloads(podman, sessions):
    """With so many sessions at most, in the same process."""
    former = podman.pid()
    edit(podman.config, lambda text: re.sub(r"^sessions = .*", f"sessions = {sessions}", text, flags=re.MULTILINE))
    said = podman("exec", NAME, "turnpike", "reload")
    assert "in force" in said, said
    assert podman.pid() == former
    assert podman.status()["sessions"]["capacity"] == sessions


def another(podman, smf, course, kind):
    """Packets pass through another data path, too."""
    with open(podman.config, encoding="utf-8") as file:
        assert f'\nkind = "{kind}"\n' in file.read()
    podman.start("--device=/dev/net/tun", state=FORGOTTEN)
    smf.associate()
    smf.establish()
    course.begin()
    assert course.flows(), podman("logs", NAME)
    course.end()
    podman("rm", "--force", NAME)
    say(f"{kind}: packets pass")


def images(folder, network, podman):
    """Each image; that with DPDK, if there is one."""
    octets = podman.load(f"{folder}/turnpike.oci.tar")
    assert octets <= OCTETS_AT_MOST, octets
    say(f"{podman.image}: {octets / 1e6:.0f} MB unpacked")
    assert "data paths xdp, kernel" in podman.run("--version")
    assert f"{CONFIG}: ok" in podman.run("check-config", CONFIG)
    assert "operation not permitted" in podman.run("--version", capabilities=[], check=False).lower()
    said = podman.run("--config", CONFIG, seccomp=podman.without_bpf(), check=False)
    assert "a seccomp profile that allows it" in said, said
    smf, course = xdp(network, podman)

    without_state = r'^(dir = "/run/turnpike"|bpffs = .*|on_stop = .*)$'
    edit(podman.config, lambda text: re.sub(without_state, "", text, flags=re.MULTILINE).replace('kind = "xdp"', 'kind = "kernel"'))
    network("sysctl", "--quiet", "--write", "net.ipv4.conf.n6.forwarding=1", "net.ipv6.conf.all.forwarding=1")
    another(podman, smf, course, "kernel")

    with_dpdk = f"{folder}/turnpike-dpdk.oci.tar"
    if os.path.exists(with_dpdk):
        octets = podman.load(with_dpdk)
        say(f"{podman.image}: {octets / 1e6:.0f} MB unpacked")
        edit(podman.config, lambda text: re.sub(without_state, "", text, flags=re.MULTILINE))
        network.behind_taps(podman.config)
        another(podman, smf, course, "dpdk")


def check(folder):
    """All of it, and no control group is left."""
    a_host()
    leave_the_network()
    network = Network()
    network.cables()
    podman = Podman(network)
    try:
        images(folder, network, podman)
    finally:
        podman("rm", "--all", "--force", check=False)
        wait_for("control groups of containers are empty", lambda: remove_tree(podman.cgroup))


if __name__ == "__main__":
    alone(check)
