#!/usr/bin/python3
"""An NRF (Nnrf_NFManagement of TS 29.510) for tests: it records each request, judges it, and misbehaves as it is told.

usage: tests/nrf/nrf.py ADDRESS:PORT [--heart-beat S]     alone: shows what is asked, until it is interrupted

HTTP/2 in clear text, by prior knowledge alone, or over TLS with ALPN; python3-h2 takes frames apart. Registrations end when heartbeats
cease. Requests are judged by schema.py and by TS 29.500; `complaints` has each mistake.
"""

import argparse
import copy
import dataclasses
import json
import os
import re
import secrets
import select
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.parse

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions

import schema

NEVER_S = 60
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
INSTANCES = "/nnrf-nfm/v1/nf-instances/"
TOKENS = "/oauth2/token"
# Frame types and flags, RFC 9113.
DATA, HEADERS, SETTINGS, PING, CONTINUATION = 0, 1, 4, 6, 9
# A literal header field without indexing: a name of one octet and a value of 100.
FIELD = b"\x00\x01x\x64" + b"a" * 100
HUGE = 100 << 20
# How a server may fail as soon as it is connected to, and once it is asked.
AT_ONCE = ["hangs_up", "speaks_ssh", "says_nothing", "endless_settings_at_once"]
WHEN_ASKED = [
    "silent",
    "half_a_frame",
    "trickle",
    "trickling_body",
    "huge_body",
    "body_beyond_the_window",
    "endless_headers",
    "big_header",
    "endless_1xx",
    "endless_ping",
    "endless_settings",
    "garbage",
    "closes",
    "resets",
    "goes_away",
]


class Gone(Exception):
    """The client has left, or the test ends."""


@dataclasses.dataclass
class Request:
    """One, as it came; `sent` counts octets of its answer, `over` is set when the answer is out or the client has left."""

    method: str
    path: str
    headers: dict
    body: bytes
    at: float
    connection: int
    complaints: list = dataclasses.field(default_factory=list)
    status: int = 0
    sent: int = 0
    cut: bool = False
    over: threading.Event = dataclasses.field(default_factory=threading.Event)

    def json(self):
        """The body."""
        return json.loads(self.body)


@dataclasses.dataclass
class Rule:
    """For requests of a method, or all, so many times, or ever: the answer is another."""

    kind: str
    only: str | None = None
    times: int | None = None
    fields: dict = dataclasses.field(default_factory=dict)


def frame(kind, flags, stream, payload=b""):
    """One of HTTP/2."""
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def problem(status, cause="", detail=""):
    """ProblemDetails (TS 29.571, 5.2.4.1)."""
    return json.dumps({"status": status, "title": "as the test wants it", "cause": cause, "detail": detail}).encode()


def openssl(folder, *arguments):
    """One call of it."""
    done = subprocess.run(["openssl", *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=NEVER_S, check=False)
    assert done.returncode == 0, f"openssl {' '.join(arguments)}:\n{done.stdout}"


def make_authority(folder, name):
    """NAME.pem and NAME.key, which sign others."""
    openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")


def make_certificate(folder, name, authority, alternatives, days=2):
    """NAME.pem and NAME.key of these names, such as DNS:nrf.example, signed by the authority."""
    with open(f"{folder}/{name}.ext", "w", encoding="ascii") as file:
        file.write(f"subjectAltName={','.join(alternatives)}\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n")
    openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", str(days), "-extfile", f"{name}.ext", "-out", f"{name}.pem")


def tls(folder, name, clients_of=None, protocols=("h2",)):
    """A server's context; with clients_of, only clients with a certificate of that authority are let in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/{name}.pem", f"{folder}/{name}.key")
    context.set_alpn_protocols(list(protocols))
    if clients_of:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(f"{folder}/{clients_of}.pem")
    return context


class Nrf:
    """One NRF. What a test changes takes effect with the next request."""

    def __init__(self, address, port, context=None, prefix=""):
        self.address, self.port, self.context, self.prefix = address, port, context, prefix
        # Seconds that answers give in heartBeatTimer; None: as the NF asked.
        self.heart_beat_s = None
        # Seconds that a heartbeat may be late until the registration ends.
        self.margin_s = NEVER_S
        # PATCH is answered 200 with the profile, not 204.
        self.patch_with_profile = False
        # Attributes of profiles that it does not keep, as some NRFs do; and others of its own that it answers with.
        self.drops, self.adds = set(), {}
        # Seconds that tokens live; None: none is needed.
        self.token_s = None
        # Tokens are for those that are registered, and a registration needs none (free5GC).
        self.tokens_for_registered = False
        self.registered = {}
        self.expired = 0
        self.requests = []
        self.complaints = []
        # First octets of connections that are not HTTP/2, and failures of TLS.
        self.strange = []
        self.connections = 0
        self.tokens = {}
        self.refused_tokens = 0
        self.changed = threading.Condition()
        self._rules = []
        self._listener = self._acceptor = None
        self._sockets = set()
        self.start()

    def url(self):
        """For nrf.servers."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'https' if self.context else 'http'}://{host}:{self.port}{self.prefix}"

    # As the test wants it.

    def start(self):
        """Listen, again."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((self.address, self.port))
        self.port = self._listener.getsockname()[1]
        self._listener.listen(64)
        self._acceptor = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._acceptor.start()

    def stop(self):
        """Nobody listens, and all connections end."""
        listener, self._listener = self._listener, None
        if listener:
            # close() alone would leave accept() waiting.
            listener.shutdown(socket.SHUT_RDWR)
            self._acceptor.join(NEVER_S)
            listener.close()
        self.drop_connections()

    def drop_connections(self):
        """Without a word."""
        with self.changed:
            there = list(self._sockets)
        for one in there:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def behave(self, kind, only=None, times=None, **fields):
        """From now on: one of AT_ONCE or WHEN_ASKED; `answer` with status, body, headers; `redirect` with to, status; `bears_on` answers
        and then closes, `leaves_politely` with GOAWAY."""
        with self.changed:
            self._rules = [Rule(kind, only, times, fields)]
        if kind in AT_ONCE:
            self.drop_connections()

    def then(self, kind, only=None, times=None, **fields):
        """After what was said before, where that has an end."""
        with self.changed:
            self._rules.append(Rule(kind, only, times, fields))

    def be_well(self):
        """As an NRF should."""
        with self.changed:
            self._rules = []
            self.changed.notify_all()

    def forget(self):
        """All registrations."""
        with self.changed:
            self.registered.clear()

    # For the test to wait for.

    def wait(self, holds, what, seconds=NEVER_S):
        """Until holds() does, which is looked at with each event."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while not holds():
                left = deadline - time.monotonic()
                assert left > 0, f"waited for {what}; asked were {self.told()[-12:]}, strange {self.strange[-3:]}"
                self.changed.wait(min(left, 0.5))

    def told(self):
        """Requests in short."""
        return [f"{one.method} {one.path.rpartition('/')[2][:12]} {one.status or ('cut' if one.cut else '-')}" for one in self.requests]

    def of(self, method, since=0):
        """Requests of a method from that one on."""
        return [one for one in self.requests[since:] if one.method == method]

    def mark(self):
        """Number of the next request."""
        return len(self.requests)

    def await_request(self, method, since, count=1, answered=True, what=None):
        """So many of a method after the mark, answered or not; they."""
        found = lambda: [one for one in self.of(method, since) if one.status or not answered]
        self.wait(lambda: len(found()) >= count, what or f"{count} {method}")
        return found()

    # Connections.

    def _accept(self, listener):
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with self.changed:
                self.connections += 1
                number = self.connections
            threading.Thread(target=self._connection, args=(peer, number), daemon=True).start()

    def _connection(self, peer, number):
        peer.settimeout(NEVER_S)
        with self.changed:
            self._sockets.add(peer)
        raw = peer
        try:
            rule = self._rule_at_once()
            if rule:
                Talk(self, peer, number).fail_at_once(rule.kind)
                return
            if self.context:
                try:
                    peer = self.context.wrap_socket(peer, server_side=True)
                except OSError as error:
                    self._note(f"TLS: {getattr(error, 'reason', None) or error}")
                    return
                if peer.selected_alpn_protocol() != "h2":
                    self._note(f"TLS without h2 in ALPN: {peer.selected_alpn_protocol()}")
                    return
            begin = self._first_octets(peer)
            if begin is None:
                return
            Talk(self, peer, number).serve(begin)
        except (OSError, Gone, h2.exceptions.ProtocolError) as error:
            if isinstance(error, h2.exceptions.ProtocolError):
                self._note(f"HTTP/2: {error!r}")
        finally:
            with self.changed:
                self._sockets.discard(raw)
                self.changed.notify_all()
            for one in [peer, raw]:
                try:
                    one.close()
                except OSError:
                    pass

    def _note(self, what):
        with self.changed:
            self.strange.append(what)
            self.changed.notify_all()

    def _first_octets(self, peer):
        """The preface; else the connection is noted, answered in its own language, and over."""
        begin = b""
        while len(begin) < len(PREFACE) and PREFACE.startswith(begin):
            more = peer.recv(65536)
            if not more:
                return None
            begin += more
        if begin.startswith(PREFACE):
            return begin
        self._note(f"not HTTP/2: {begin[:60]!r}")
        peer.sendall(b"HTTP/1.1 505 HTTP Version Not Supported\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        return None

    def _rule_at_once(self):
        with self.changed:
            return next((rule for rule in self._rules[:1] if rule.kind in AT_ONCE), None)

    def rule_for(self, request):
        """Rule that the request falls under; None: the right answer."""
        with self.changed:
            for rule in self._rules[:1]:
                if rule.only not in (None, request.method):
                    return None
                if rule.times is not None:
                    rule.times -= 1
                    if rule.times <= 0:
                        self._rules.pop(0)
                return rule
        return None

    # Requests.

    def take(self, request):
        """Judge and record it."""
        self._judge(request)
        with self.changed:
            self.requests.append(request)
            self.complaints += [f"{request.method} {request.path}: {line}" for line in request.complaints]
            self.changed.notify_all()

    def answered(self, request):
        """It has been, or was given up."""
        request.over.set()
        with self.changed:
            self.changed.notify_all()

    def _judge(self, request):
        say = request.complaints.append
        path, headers = request.path.partition("?hop=")[0], request.headers
        if not headers.get("user-agent", "").startswith("UPF"):
            say(f"user-agent {headers.get('user-agent')!r} does not begin with the type of NF (TS 29.500, 5.2.2.2)")
        if request.body and headers.get("content-length") not in (None, str(len(request.body))):
            say(f"content-length {headers['content-length']} of {len(request.body)} octets")
        kind = headers.get("content-type", "").partition(";")[0].strip()
        if path == self.prefix + TOKENS:
            if (request.method, kind) != ("POST", "application/x-www-form-urlencoded"):
                say(f"{request.method} of {kind!r} to {TOKENS}")
            request.complaints += schema.token_mistakes(self._form(request))
            return
        if not path.startswith(self.prefix + INSTANCES):
            say(f"no path of {self.prefix + INSTANCES}")
            return
        identity = path.removeprefix(self.prefix + INSTANCES)
        request.complaints += [f"in the path{line}" for line in schema.mistakes("NfInstanceId", identity)]
        if request.method == "DELETE":
            if request.body:
                say("a body")
            return
        wanted = {"PUT": "application/json", "PATCH": "application/json-patch+json"}.get(request.method)
        if wanted is None:
            say("no method of this resource that a UPF would use")
            return
        if kind != wanted:
            say(f"content-type {kind!r}, not {wanted}")
        if "application/json" not in headers.get("accept", "*/*") and "*/*" not in headers.get("accept", "*/*"):
            say(f"accept {headers['accept']!r} without application/json")
        try:
            body = request.json()
        except ValueError as error:
            say(f"no JSON: {error}")
            return
        if request.method == "PUT":
            request.complaints += schema.profile_mistakes(body)
            if isinstance(body, dict) and body.get("nfInstanceId") != identity:
                say(f"nfInstanceId {body.get('nfInstanceId')!r} of another path")
        elif identity in self.registered:
            request.complaints += schema.patch_mistakes(body, self.registered[identity]["profile"])

    @staticmethod
    def _form(request):
        text = request.body.decode("utf-8", "replace")
        return dict(urllib.parse.parse_qsl(text, keep_blank_values=True))

    def right_answer(self, request):
        """Status, headers and body."""
        if request.path == self.prefix + TOKENS:
            return self._token(request)
        free = self.tokens_for_registered and request.method == "PUT"
        if self.token_s is not None and not free and not self._may(request):
            self.refused_tokens += 1
            return 401, {"www-authenticate": 'Bearer error="invalid_token"', "content-type": "application/problem+json"}, problem(401)
        if request.complaints and request.method in ("PUT", "PATCH"):
            return 400, {"content-type": "application/problem+json"}, problem(400, "MANDATORY_IE_INCORRECT", request.complaints[0])
        identity = request.path.partition("?")[0].rpartition("/")[2]
        with self.changed:
            self._expire()
            entry = self.registered.get(identity)
            if request.method == "PUT":
                return self._register(request, identity, entry)
            if entry is None:
                return 404, {"content-type": "application/problem+json"}, problem(404, "RESOURCE_URI_STRUCTURE_NOT_FOUND")
            if request.method == "DELETE":
                del self.registered[identity]
                return 204, {}, b""
            for item in request.json():
                if item["op"] == "remove":
                    entry["profile"].pop(item["path"][1:], None)
                else:
                    entry["profile"][item["path"][1:]] = item["value"]
            entry["seen"] = time.monotonic()
            entry["beats"] += 1
            if not self.patch_with_profile:
                return 204, {}, b""
            return 200, {"content-type": "application/json"}, json.dumps(self._told(entry["profile"])).encode()

    def _register(self, request, identity, entry):
        profile = {name: value for name, value in request.json().items() if name not in self.drops}
        made = self.registered[identity] = {"profile": profile, "seen": time.monotonic(), "beats": 0}
        made["heart_beat_s"] = self._told(profile).get("heartBeatTimer", 10)
        headers = {"content-type": "application/json"}
        if entry is None:
            headers["location"] = f"{self.url()}{INSTANCES}{identity}"
        return (200 if entry else 201), headers, json.dumps(self._told(profile)).encode()

    def _told(self, profile):
        """The profile as the NRF answers it."""
        profile = copy.deepcopy({**profile, **self.adds})
        if self.heart_beat_s is not None:
            profile["heartBeatTimer"] = self.heart_beat_s
        return profile

    def _expire(self):
        now = time.monotonic()
        for identity, entry in list(self.registered.items()):
            if now - entry["seen"] > entry["heart_beat_s"] + self.margin_s:
                del self.registered[identity]
                self.expired += 1

    def _token(self, request):
        if request.complaints:
            body = {"error": "invalid_request", "error_description": request.complaints[0]}
            return 400, {"content-type": "application/json", "cache-control": "no-store"}, json.dumps(body).encode()
        if self.tokens_for_registered and self._form(request)["nfInstanceId"] not in self.registered:
            return 400, {"content-type": "application/json"}, json.dumps({"error": "invalid_client"}).encode()
        token = f"{secrets.token_urlsafe(24)}.{secrets.token_urlsafe(60)}.{secrets.token_urlsafe(24)}"
        life = self.token_s if self.token_s is not None else 3600
        self.tokens[token] = time.monotonic() + life
        body = {"access_token": token, "token_type": "Bearer", "expires_in": life, "scope": self._form(request).get("scope", "")}
        return 200, {"content-type": "application/json", "cache-control": "no-store"}, json.dumps(body).encode()

    def _may(self, request):
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return scheme == "Bearer" and self.tokens.get(token, 0) > time.monotonic()


class Talk:
    """One connection."""

    def __init__(self, nrf, peer, number):
        self.nrf, self.peer, self.number = nrf, peer, number
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.asked = {}
        self.gone = set()

    def serve(self, begin):
        """Until either side ends it."""
        self.h2.initiate_connection()
        self._flush()
        self._received(begin)
        while True:
            octets = self.peer.recv(65536)
            if not octets:
                self._all_cut()
                return
            self._received(octets)

    def _all_cut(self):
        for request in self.asked.values():
            self._cut(request)
        self.asked.clear()

    def _cut(self, request):
        if not request.status:
            request.cut = True
        self.nrf.answered(request)

    def _flush(self):
        octets = self.h2.data_to_send()
        if octets:
            self.peer.sendall(octets)

    def _received(self, octets):
        """Frames; requests that are whole are answered."""
        whole = []
        for event in self.h2.receive_data(octets):
            if isinstance(event, h2.events.RequestReceived):
                fields = {}
                for name, value in event.headers:
                    fields[name] = f"{fields[name]}, {value}" if name in fields else value
                self.asked[event.stream_id] = Request(fields.pop(":method"), fields.pop(":path"), fields, b"", time.monotonic(), self.number)
            elif isinstance(event, h2.events.DataReceived):
                if event.stream_id in self.asked:
                    self.asked[event.stream_id].body += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                whole.append(event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                self.gone.add(event.stream_id)
                if event.stream_id in self.asked:
                    self._cut(self.asked.pop(event.stream_id))
            elif isinstance(event, h2.events.ConnectionTerminated):
                self._all_cut()
                raise Gone
        self._flush()
        for stream in whole:
            if stream in self.asked:
                self.nrf.take(self.asked[stream])
                self._answer(stream, self.asked[stream])

    def _answer(self, stream, request):
        rule = self.nrf.rule_for(request)
        kind = rule.kind if rule else None
        if kind in WHEN_ASKED:
            try:
                getattr(self, f"_{kind}")(stream, request)
            except (OSError, Gone, h2.exceptions.ProtocolError):
                self._cut(request)
                self._all_cut()
                raise Gone from None
            return
        if kind == "answer":
            status, headers, body = rule.fields["status"], rule.fields.get("headers", {}), rule.fields.get("body", b"")
        elif kind == "redirect":
            path, _, hop = request.path.removeprefix(self.nrf.prefix).partition("?hop=")
            # To itself: each answer leads one further.
            to = f"{rule.fields['to']}{path}" if rule.fields["to"] else f"{self.nrf.url()}{path}?hop={int(hop or 0) + 1}"
            status, headers, body = rule.fields.get("status", 307), {"location": to}, b""
        else:
            status, headers, body = self.nrf.right_answer(request)
        self._send(stream, request, status, headers, body)
        if kind == "bears_on":
            raise Gone
        if kind == "leaves_politely":
            self.h2.close_connection()
            self._flush()
            raise Gone

    def _send(self, stream, request, status, headers, body):
        fields = [(":status", str(status)), ("server", "test"), *headers.items()]
        if body:
            fields.append(("content-length", str(len(body))))
        # Before the client can know of it, and so ask for more.
        request.status = status
        try:
            self.h2.send_headers(stream, fields, end_stream=not body)
            self._flush()
            self._body(stream, request, lambda at: body[at : at + 16384], len(body))
        finally:
            self.asked.pop(stream, None)
            self.nrf.answered(request)

    def _body(self, stream, request, part, length):
        """As far as the client lets it."""
        while request.sent < length:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size) if stream not in self.gone else -1
            if room < 0:
                return
            if room == 0:
                self._listen(None)
                continue
            octets = part(request.sent)[:room]
            request.sent += len(octets)
            self.h2.send_data(stream, octets, end_stream=request.sent >= length)
            self._flush()
            self._listen(0)

    def _listen(self, seconds):
        """Take what has come, or wait for it so long; None: for ever."""
        self.peer.settimeout(NEVER_S if seconds is None else max(seconds, 0.0001))
        try:
            octets = self.peer.recv(65536)
        except (TimeoutError, ssl.SSLWantReadError):
            return
        finally:
            self.peer.settimeout(NEVER_S)
        if not octets:
            raise Gone
        self._received(octets)

    def _until_left(self, stream, seconds=None, send=None):
        """The client has left the stream, or the connection; with send, that goes out each time."""
        while stream not in self.gone:
            if send:
                self.peer.sendall(send)
            self._listen(seconds)

    def fail_at_once(self, kind):
        """As soon as it is connected to."""
        if kind == "hangs_up":
            return
        if kind == "speaks_ssh":
            self.peer.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n" * 20)
        while True:
            if kind == "endless_settings_at_once":
                self.peer.sendall(frame(SETTINGS, 0, 0) * 100)
                self.peer.settimeout(0.005)
            try:
                if not self.peer.recv(65536):
                    return
            except TimeoutError:
                pass

    # One for each of WHEN_ASKED.

    def _silent(self, stream, _):
        self._until_left(stream)

    def _half_a_frame(self, stream, _):
        self.peer.sendall(frame(HEADERS, 4, stream, b"\x88" * 20)[:5])
        self._until_left(stream)

    def _trickle(self, stream, request):
        status, headers, _ = self.nrf.right_answer(request)
        self.h2.send_headers(stream, [(":status", str(status)), *headers.items()])
        for octet in self.h2.data_to_send():
            self.peer.sendall(bytes([octet]))
            request.sent += 1
            # Nothing else may be sent before the frame is whole.
            if not select.select([self.peer], [], [], 1)[0]:
                continue
            octets = self.peer.recv(65536)
            left = (h2.events.StreamReset, h2.events.ConnectionTerminated)
            if not octets or any(isinstance(event, left) for event in self.h2.receive_data(octets)):
                raise Gone

    def _trickling_body(self, stream, request):
        status, headers, body = self.nrf.right_answer(request)
        self.h2.send_headers(stream, [(":status", str(status)), *headers.items()])
        self._flush()
        for octet in body + b" " * NEVER_S:
            if stream in self.gone:
                return
            self.h2.send_data(stream, bytes([octet]))
            self._flush()
            request.sent += 1
            self._listen(1)

    def _huge_body(self, stream, request):
        self.h2.send_headers(stream, [(":status", "201"), ("content-type", "application/json"), ("location", self.nrf.url() + request.path)])
        self._flush()
        self._body(stream, request, lambda at: b'{"nfType": "UPF"' if at == 0 else b" " * 16384, HUGE)

    def _body_beyond_the_window(self, stream, request):
        self.h2.send_headers(stream, [(":status", "201"), ("content-type", "application/json")])
        self._flush()
        while request.sent < HUGE and stream not in self.gone:
            self.peer.sendall(frame(DATA, 0, stream, b" " * 16384))
            request.sent += 16384
            self._listen(0)

    def _endless_headers(self, stream, request):
        self.peer.sendall(frame(HEADERS, 0, stream, b"\x88" + FIELD * 100))
        while request.sent < HUGE:
            self.peer.sendall(frame(CONTINUATION, 0, stream, FIELD * 150))
            request.sent += 150 * len(FIELD)
            self._listen(0)
        self._until_left(stream)

    def _big_header(self, stream, request):
        self.peer.sendall(frame(HEADERS, 0, stream, b"\x88" + FIELD * 100))
        for _ in range(99):
            self.peer.sendall(frame(CONTINUATION, 0, stream, FIELD * 100))
        self.peer.sendall(frame(CONTINUATION, 4, stream, FIELD))
        request.sent = 10_000 * len(FIELD)
        self._until_left(stream)

    def _endless_1xx(self, stream, request):
        # 103 with an empty list of links; each is a whole header block.
        early = frame(HEADERS, 4, stream, b"\x08\x03103")
        while stream not in self.gone:
            self.peer.sendall(early * 50)
            request.sent += 50 * len(early)
            self._listen(0.005)

    def _endless_ping(self, stream, _):
        self._until_left(stream, 0.005, frame(PING, 0, 0, b"\0" * 8) * 100)

    def _endless_settings(self, stream, _):
        self._until_left(stream, 0.005, frame(SETTINGS, 0, 0) * 100)

    def _garbage(self, _stream, _request):
        self.peer.sendall(os.urandom(65536))
        raise Gone

    def _closes(self, _stream, _request):
        raise Gone

    def _resets(self, stream, request):
        self.h2.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
        self._flush()
        self._cut(request)
        self.asked.pop(stream, None)

    def _goes_away(self, stream, _):
        self.h2.close_connection(last_stream_id=max(0, stream - 2))
        self._flush()
        raise Gone


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("listen")
    parser.add_argument("--heart-beat", type=int)
    arguments = parser.parse_args()
    address, port = re.fullmatch(r"\[?([^\]]+)\]?:(\d+)", arguments.listen).groups()
    nrf = Nrf(address, int(port))
    nrf.heart_beat_s = arguments.heart_beat
    print(nrf.url(), flush=True)
    shown = 0
    while True:
        time.sleep(0.2)
        for request in nrf.requests[shown:]:
            shown += 1
            print(request.method, request.path, request.status, request.headers, request.body.decode("utf-8", "replace"), *request.complaints, sep="\n    ", flush=True)


if __name__ == "__main__":
    main()
