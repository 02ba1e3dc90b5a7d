"""A real turnpiked on XDP in namespaces, an SMF that sends what it likes, a gNB and a server."""

import ctypes
import json
import math
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request

CLONE_NEWNET = 0x40000000
SO_RCVBUFFORCE = 33
NEVER_S = 120
TOKEN = "a-token-of-the-page-test"
API = "127.0.0.1:8806"
# No loopback address, so that limits for clients hold.
FAR_API = "10.8.0.1:8806"
N4, UPF_N3, UPF_N6, GNB, SERVER = "10.100.0.1", "10.3.0.1", "10.6.0.1", "10.3.0.2", "10.6.0.2"
ACCEPTED = 1

CONFIG = """
[node]
id = "10.100.0.1"
[n4]
listen = "10.100.0.1:8805"
[datapath]
kind = "xdp"
[[interface]]
name = "n3"
role = "n3"
addresses = ["10.3.0.1"]
[[interface]]
name = "n6"
role = "n6"
capacity_kbps = 1000000
[[network_instance]]
name = "internet"
interface = "n6"
pools = ["10.60.0.0/15"]
[limits]
sessions = 120000
entries = 240000
[gtpu]
echo_interval_s = 1
error_indications_per_s = 0
[state]
dir = "{folder}/state"
on_stop = "keep"
[api]
listen = "0.0.0.0:8806"
token_file = "{folder}/token"
client_requests_per_s = 8
"""


def sh(*command):
    """Run it; an error tells what it said."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=NEVER_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}"
    return done.stdout


def build_network():
    """Cables from here, which is the UPF's namespace, to the gNB and the server."""
    lines = ["link set lo up", f"addr add {N4}/32 dev lo", "addr add 10.100.0.2/32 dev lo", "addr add 10.100.0.3/32 dev lo", "addr add 10.8.0.1/32 dev lo"]
    for ns, name, own, far in [("ran", "n3", UPF_N3, GNB), ("dn", "n6", UPF_N6, SERVER)]:
        sh("ip", "netns", "add", ns)
        lines += [f"link add {name} type veth peer name eth0 netns {ns}", f"addr add {own}/24 dev {name}", f"link set {name} up"]
        for line in [f"addr add {far}/24 dev eth0", "link set eth0 up", f"route add default via {own}"]:
            lines.append(f"-n {ns} {line}")
    for line in lines:
        sh("ip", *line.split())
    for ns in ["ran", "dn"]:
        sh("ip", "netns", "exec", ns, "ethtool", "-K", "eth0", "gro", "on", "tx", "off")


def socket_in(ns, address):
    """A UDP socket of a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{ns}", "rb") as there, open("/proc/thread-self/ns/net", "rb") as here:
        assert libc.setns(there.fileno(), CLONE_NEWNET) == 0
        try:
            it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            it.bind(address)
        finally:
            assert libc.setns(here.fileno(), CLONE_NEWNET) == 0
    return it


class Upf:
    """turnpiked."""

    def __init__(self, program, folder):
        self.program, self.folder, self.process = program, folder, None
        os.makedirs(f"{folder}/state", exist_ok=True)
        with open(f"{folder}/token", "w", encoding="ascii") as file:
            file.write(TOKEN + "\n")
        os.chmod(f"{folder}/token", 0o600)
        with open(f"{folder}/turnpiked.toml", "w", encoding="ascii") as file:
            file.write(CONFIG.replace("{folder}", folder))

    def start(self):
        """Until it is ready."""
        environment = dict(os.environ, RUNTIME_DIRECTORY=self.folder)
        command = [self.program, "--config", f"{self.folder}/turnpiked.toml"]
        with open(f"{self.folder}/turnpiked.log", "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + NEVER_S
        while not self._is_ready():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    @staticmethod
    def _is_ready():
        try:
            with urllib.request.urlopen(f"http://{API}/readyz", timeout=5):
                return True
        except OSError:
            return False

    def stop(self):
        """As systemd does it."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(NEVER_S) == 0, self.log()

    def log(self):
        """The end of what it said."""
        with open(f"{self.folder}/turnpiked.log", encoding="utf-8", errors="replace") as file:
            return file.read()[-4000:]

    def get(self, path):
        """An answer of REST."""
        request = urllib.request.Request(f"http://{API}/api/v1/{path}", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=NEVER_S) as answer:
            return json.load(answer)

    def cpu_s(self):
        """CPU time that it has taken."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ie(kind, *parts):
    """An IE of octets or of IEs."""
    value = b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)
    return struct.pack("!HH", kind, len(value)) + value


def u8(value):
    """One octet."""
    return struct.pack("!B", value)


def u32(value):
    """Four octets."""
    return struct.pack("!I", value)


def name(text):
    """As DNS has it: one label for what lies between dots."""
    labels = [label.encode() for label in text.split(".")]
    return b"".join(u8(len(label)) + label for label in labels)


def ues(number):
    """Address of a UE."""
    return u32((10 << 24 | 60 << 16) + 2 + number)


class Smf:
    """One that is called as it likes, and answers heartbeats."""

    def __init__(self, node_id, address="10.100.0.2"):
        self.node = ie(60, b"\x02", name(node_id))
        self.address = socket.inet_aton(address)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((address, 8805))
        self.socket.connect((N4, 8805))
        self.lock = threading.Lock()
        self.sequence = 0
        self.answers = {}
        self.came = threading.Condition()
        self.over = False
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self):
        """It falls silent."""
        self.over = True
        # A thread that waits in it would keep the address.
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _listen(self):
        while not self.over:
            try:
                message = self.socket.recv(65535)
            except OSError:
                continue
            if not message:
                continue
            begin = 12 if message[0] & 1 else 4
            sequence = int.from_bytes(message[begin : begin + 3], "big")
            if message[1] == 1:
                self.socket.send(self._message(2, sequence, ie(96, u32(3_900_000_000))))
                continue
            with self.came:
                self.answers[sequence] = message
                self.came.notify_all()

    @staticmethod
    def _message(kind, sequence, *ies, seid=None):
        body = sequence.to_bytes(3, "big") + b"\0" + b"".join(ies)
        if seid is not None:
            body = struct.pack("!Q", seid) + body
        return u8(0x20 | (seid is not None)) + u8(kind) + struct.pack("!H", len(body)) + body

    def send(self, kind, *ies, seid=None):
        """A request; its number."""
        with self.lock:
            self.sequence += 1
            number = self.sequence
        self.socket.send(self._message(kind, number, *ies, seid=seid))
        return number

    def answer(self, number):
        """Cause of the answer to a request, and the answer."""
        with self.came:
            assert self.came.wait_for(lambda: number in self.answers, NEVER_S), f"no answer to {number}"
            message = self.answers.pop(number)
        at = 16 if message[0] & 1 else 8
        while at < len(message):
            kind, length = struct.unpack_from("!HH", message, at)
            if kind == 19:
                return message[at + 4], message
            at += 4 + length
        return None, message

    def associate(self):
        """An association; the cause."""
        return self.answer(self.send(5, self.node, ie(96, u32(3_900_000_000))))[0]

    def provision(self, application, flow):
        """An application with a flow; the cause."""
        contents = ie(61, b"\x01\0", struct.pack("!H", len(flow.encode())), flow)
        return self.answer(self.send(3, ie(58, ie(24, application), ie(59, contents))))[0]

    def request(self, number, instance="internet"):
        """A Session Establishment Request's IEs."""
        pdi_up = ie(2, ie(20, b"\0"), ie(21, b"\x05"), ie(22, instance))
        pdi_down = ie(2, ie(20, b"\1"), ie(22, instance), ie(93, b"\x06", ues(number)))
        ids = ie(109, u32(1)) + ie(81, u32(1))
        far = lambda n, *parts: ie(3, ie(108, u32(n)), ie(44, b"\2"), ie(4, *parts))
        tunnel = ie(84, b"\1\0", u32(0x2000_0001 + number), socket.inet_aton(GNB))
        mbr = (100_000).to_bytes(5, "big")
        return [
            self.node,
            ie(57, b"\2", struct.pack("!Q", 1 + number), self.address),
            ie(1, ie(56, b"\0\1"), ie(29, u32(100)), pdi_up, ie(95, b"\0"), ie(108, u32(1)), ids),
            ie(1, ie(56, b"\0\2"), ie(29, u32(100)), pdi_down, ie(108, u32(2)), ids),
            far(1, ie(42, b"\1"), ie(22, instance)),
            far(2, ie(42, b"\0"), tunnel),
            ie(7, ie(109, u32(1)), ie(25, b"\0"), ie(26, mbr, mbr), ie(124, b"\x09")),
            ie(6, ie(81, u32(1)), ie(62, b"\2"), ie(37, b"\2\0\0"), ie(31, b"\1", struct.pack("!Q", 1 << 40))),
        ]

    def establish(self, first, count, instance="internet", window=64):
        """So many sessions; the causes of what was not accepted, and the TEID of the last."""
        waiting, refused, teid = [], [], None
        for number in range(first, first + count):
            waiting.append(self.send(50, *self.request(number, instance), seid=0))
            if len(waiting) == window or number == first + count - 1:
                for one in waiting:
                    cause, message = self.answer(one)
                    if cause != ACCEPTED:
                        refused.append(cause)
                    # F-TEID with an IPv4 address alone: flags, TEID, address.
                    at = message.find(struct.pack("!HHB", 21, 9, 1))
                    teid = int.from_bytes(message[at + 5 : at + 9], "big") if at > 0 else teid
                waiting.clear()
        return refused, teid


class Radio:
    """A gNB that answers Echo Requests, and the server, which sends all back."""

    def __init__(self):
        self.gnb, self.server = socket_in("ran", (GNB, 2152)), socket_in("dn", (SERVER, 9000))
        for one in [self.gnb, self.server]:
            # 90 packets are what they keep else, while this interpreter does something else.
            one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
        self.teid, self.rate, self.lost_too = None, lambda _: 0, False
        # Of a user's packets: sent, and come back.
        self.sent, self.back = 0, 0
        for run in [self._serve, self._send]:
            threading.Thread(target=run, daemon=True).start()

    def _serve(self):
        while True:
            for ready in select.select([self.gnb, self.server], [], [])[0]:
                message, sender = ready.recvfrom(2048)
                if ready is self.server:
                    ready.sendto(message, sender)
                elif message[1] == 1:
                    ready.sendto(b"\x32\x02\0\x06\0\0\0\0" + message[8:10] + b"\0\0" + b"\x0e\x07", sender)
                else:
                    self.back += 1

    @staticmethod
    def packet(source, octets):
        """A user's UDP packet."""
        payload = bytes(octets)
        udp = struct.pack("!HHHH", 9000, 9000, 8 + octets, 0) + payload
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, source, socket.inet_aton(SERVER))
        total = sum(struct.unpack("!10H", head))
        total = (total & 0xFFFF) + (total >> 16)
        total = (total & 0xFFFF) + (total >> 16)
        return head[:10] + struct.pack("!H", ~total & 0xFFFF) + head[12:] + udp

    def _send(self):
        began = due = time.monotonic()
        plain = self.packet(ues(0), 1000)
        number = 0
        while True:
            rate = self.rate(time.monotonic() - began)
            if not rate or self.teid is None:
                time.sleep(0.05)
                due = time.monotonic()
                continue
            number += 1
            # Of a TEID that nobody has, now and then.
            teid = 0x7FFFFFFF if self.lost_too and number % 50 == 0 else self.teid
            # QFI 9 in a PDU Session Container.
            tunnel = struct.pack("!BBHIHBB", 0x34, 255, len(plain) + 8, teid, 0, 0, 0x85) + b"\1\x10\x09\0"
            self.sent += teid == self.teid
            self.gnb.sendto(tunnel + plain, (UPF_N3, 2152))
            due += 1 / rate
            time.sleep(max(0, due - time.monotonic()))


def tide(seconds):
    """Packets per second of a day in a quarter of an hour."""
    return 600 + 500 * math.sin(seconds / 120) + 120 * math.sin(seconds / 17)
