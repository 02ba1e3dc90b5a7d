"""Machines in namespaces: a network with cables to it, and on it a Debian, with a root made by mmdebstrap and systemd as PID 1."""

import ctypes
import glob
import os
import re
import signal
import subprocess
import sys
import time

CLONE_NEWNET = 0x40000000
# Only say "never".
NEVER_S = 120
COMMAND_NEVER_S = 900
# Of a control group whose test was killed.
LEFT_S = 3600

BOOT = r"""
set -e
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
# The kernel's settings are the host's, but for those of networks.
for tree in sys sys/net; do
	mount --bind "$root/proc/$tree" "$root/proc/$tree"
done
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/net" "$root/dev/pts" "$root/dev/shm"
for device in null zero full random urandom tty net/tun; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
touch "$root/dev/console"
mount --bind "$root/var/log/console" "$root/dev/console"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
cd "$root"
pivot_root . mnt
umount -l /mnt
exec env -i container=turnpike PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd systemd.unit=multi-user.target
"""


def sh(*command, check=True, **options):
    """Run it; its standard output. What it says is in the error if it fails."""
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.STDOUT)
    options.setdefault("timeout", COMMAND_NEVER_S)
    done = subprocess.run(command, text=True, check=False, **options)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def wait_for(said, condition):
    """Until it holds; what it returned."""
    deadline = time.monotonic() + NEVER_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {NEVER_S} s: {said}"
        time.sleep(0.02)
    return value


def alone(check):
    """Runs it in namespaces of its own: however it ends, the kernel takes down what it has started and mounted."""
    mark = "TURNPIKE_PACKAGES_INSIDE"
    if mark in os.environ:
        check(os.path.abspath(sys.argv[1]))
        return
    spaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--uts"]
    again = ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, sys.executable, *sys.argv]
    sys.exit(subprocess.run(again, env={**os.environ, mark: "1"}, check=False).returncode)


BEGAN = time.monotonic()


def say(what):
    """A step that is over."""
    print(f"{time.monotonic() - BEGAN:6.1f} s  {what}", flush=True)


def edit(path, change):
    """Have a file's text changed."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    changed = change(text)
    assert changed != text, path
    with open(path, "w", encoding="utf-8") as file:
        file.write(changed)


def leave_the_network():
    """This process, and what it starts from now on, in a network namespace of its own."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    sh("ip", "link", "set", "lo", "up")


def cgroup2():
    """Where the unified hierarchy is mounted."""
    with open("/proc/mounts", encoding="ascii") as mounts:
        for line in mounts:
            _, where, kind, *_ = line.split()
            if kind == "cgroup2":
                return where
    raise AssertionError("no cgroup2 is mounted, which systemd needs")


def remove_tree(cgroup):
    """Remove a control group and those below, where they are empty; whether it is gone."""
    for folder, _, _ in os.walk(cgroup, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            pass
    return not os.path.exists(cgroup)


def own_cgroup():
    """A control group for what this test starts; those of killed ones go."""
    cgroups = f"{cgroup2()}/turnpike-packages-"
    for left in glob.glob(f"{cgroups}*"):
        if time.time() - os.stat(left).st_mtime > LEFT_S:
            remove_tree(left)
    own = cgroups + os.readlink("/proc/self/ns/pid")[5:-1]
    os.makedirs(own, exist_ok=True)
    return own


class Network:
    """A network namespace with cables to this one."""

    def __init__(self):
        spaces = ["unshare", "--net", "--kill-child", "--fork"]
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *spaces, "sleep", "infinity"])
        self.pid = int(wait_for("a process in the network", self._child))
        self("ip", "link", "set", "lo", "up")

    def _child(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as children:
            return children.read().strip()

    def __call__(self, *command, **options):
        return sh("nsenter", f"--target={self.pid}", "--net", *command, **options)

    def cable(self, inside, address, outside, peer):
        """A cable from its interface to one of this namespace; the outer end receives as a host's does."""
        sh("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", str(self.pid))
        self("ip", "address", "add", address, "dev", inside)
        self("ip", "link", "set", inside, "up")
        sh("ip", "address", "add", peer, "dev", outside)
        sh("ip", "link", "set", outside, "up")
        sh("ethtool", "-K", outside, "gro", "on", "tx", "off")

    def cables(self):
        """Those of the UPF of network.py."""
        self.cable("n4", "10.100.0.1/24", "smf", "10.100.0.2/24")
        self.cable("n3", "10.3.0.1/24", "gnb", "10.3.0.2/24")
        self.cable("n6", "10.6.0.1/24", "dn", "10.6.0.2/24")
        sh("ip", "route", "add", "10.60.0.0/16", "via", "10.6.0.1")

    def behind_taps(self, config):
        """Interfaces of the data path become devices of DPDK, over sockets of packets, with a tap of the interface's name in front; the
        configuration says so."""
        for number, (name, address) in enumerate([("n3", "10.3.0.1/24"), ("n6", "10.6.0.1/24")]):
            wire = f"e{name}"
            commands = f"""
                ip link set {name} down && ip link set {name} name {wire} && ip address flush dev {wire}
                cd /proc/sys/net
                echo 0 >ipv4/conf/{wire}/forwarding && echo 1 >ipv4/conf/{wire}/rp_filter
                echo 8 >ipv4/conf/{wire}/arp_ignore && echo 1 >ipv6/conf/{wire}/disable_ipv6
                ethtool -K {wire} gro off
                ip link set {wire} up
                ip tuntap add {name} mode tap && ip link set {name} up && ip address add {address} dev {name}"""
            self("sh", "-ec", commands)
            device = f'name = "{name}"\ndevice = "net_af_packet{number},iface={wire}"'
            edit(config, lambda text, name=name, device=device: text.replace(f'name = "{name}"', device, 1))
        edit(config, lambda text: re.sub('^kind = "(xdp|kernel)"$', 'kind = "dpdk"', text, flags=re.MULTILINE))
        edit(config, lambda text: text.replace("eal = []", 'eal = ["--no-huge", "-m", "256"]'))

    def has_xdp(self, interface="n3"):
        """Whether programs are attached."""
        return "xdp" in self("ip", "link", "show", "dev", interface)


class Machine(Network):
    """One that runs."""

    def __init__(self, root):
        self.root = root
        os.makedirs(f"{root}/var/log", exist_ok=True)
        open(f"{root}/var/log/console", "w", encoding="ascii").close()
        self.cgroup = own_cgroup()
        enter = f'echo $$ >{self.cgroup}/cgroup.procs && exec unshare "$@"'
        spaces = ["--pid", "--fork", "--kill-child", "--mount", "--net", "--ipc", "--uts", "--cgroup"]
        self.process = subprocess.Popen(["bash", "-c", enter, "-", *spaces, "bash", "-c", BOOT, "-", root])
        self.pid = int(wait_for("PID 1", self._child))
        try:
            # Until then it has the host's root.
            wait_for("PID 1 is systemd", lambda: self._name() == "systemd")
            wait_for("systemd is up", lambda: "multi-user.target" in self.state())
        except BaseException:
            self.end()
            raise

    def _name(self):
        with open(f"/proc/{self.pid}/comm", encoding="ascii") as name:
            return name.read().strip()

    def state(self):
        """Targets that are reached."""
        return self("systemctl", "list-units", "--state=active", "--type=target", "--no-legend", "--plain", check=False)

    def __call__(self, *command, **options):
        spaces = [f"--target={self.pid}", "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup"]
        environment = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"]
        return sh("nsenter", *spaces, "env", "-i", *environment, *command, **options)

    def path(self, name):
        """A file of the root."""
        return os.path.join(self.root, name.lstrip("/"))

    def read(self, name):
        """Its text."""
        return self("cat", name)

    def end(self):
        """Nothing of it is left but its root."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        wait_for("its cgroups are empty", lambda: remove_tree(self.cgroup))
