#!/usr/bin/python3
"""turnpiked's registration with NRFs, judged by an NRF that shares no code with it: what it sends, when, and to whom, and that neither N4
nor users' packets hear of an NRF that is silent, slow, endless, huge or garbage.

usage: tests/nrf/check.py [--turnpiked PATH] [--turnpike PATH] [--jobs N] [PART...]
PART: one of PARTS below; all of them by default, so many at a time. Wants root, for namespaces of its own.
"""

import concurrent.futures
import functools
import json
import re
import signal
import subprocess
import tempfile
import uuid

# It says where upf is.
from bench import main, until

import nrf as lab
import schema
import upf
from nrf import NEVER_S, Nrf
from upf import sh

FIRST, SECOND, THIRD = "10.100.0.5", "10.100.0.6", "10.100.0.7"
PORT = 7777
SESSIONS = 100
# Anonymous memory may grow by so much while an NRF sends 100 MB or headers without end. An idle turnpiked in the dev profile moves by
# some 2 MB; a client that kept what it is sent would take ten times as much in the second that it takes to send it.
GROWTH_KB = 16 << 10
# Requests that one redirect may lead to.
HOPS = 20
SLICE = '[[nrf.slice]]\nsst = 1\nsd = "010203"\ndnns = ["internet"]\n'
PLAIN = 'plmns = ["00101"]\npriority = 7\ncapacity = 100\nlocality = "rack 7"\nfqdn = "upf1.example.org"\n'
# Answers to PUT and PATCH that are none.
BAD_ANSWERS = {
    "no JSON": {"status": 201, "body": b"}{ never ends"},
    "an empty answer": {"status": 201},
    "an array": {"status": 200, "body": b"[]"},
    "a profile of somebody else": {"status": 200, "body": b'{"nfInstanceId": "00000000-0000-4000-8000-000000000000", "nfType": "AMF", "nfStatus": "SUSPENDED"}'},
    "a deep answer": {"status": 200, "body": b"[" * 60_000},
    "deep within a profile": {"status": 200, "body": b'{"heartBeatTimer": 1, "customInfo": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001},
    "no number": {"status": 200, "body": b'{"heartBeatTimer": "soon"}'},
    "a heartbeat of 0 s": {"status": 200, "body": b'{"heartBeatTimer": 0}'},
    "a heartbeat of -1 s": {"status": 200, "body": b'{"heartBeatTimer": -1}'},
    "a heartbeat of 2^64 s": {"status": 200, "body": b'{"heartBeatTimer": 18446744073709551616}'},
    "a heartbeat of 1e300 s": {"status": 200, "body": b'{"heartBeatTimer": 1e300}'},
    "no UTF-8": {"status": 200, "body": b'{"heartBeatTimer": 1, "locality": "\xff\xfe"}'},
    "nothing to see": {"status": 304},
    "202": {"status": 202},
    "no place to go to": {"status": 307},
    "a place that is none": {"status": 308, "headers": {"location": "http://[::zz]:7777/\x7f"}},
    "a teapot": {"status": 418, "body": b"short and stout"},
    "a long reason": {"status": 400, "headers": {"content-type": "application/problem+json"}, "body": json.dumps({"detail": "\x1b[31mNRF\nis\r\ntold " * 2000}).encode()},
}
# Of the log, for one failure and what comes after it.
LINES = 8
REFUSED = {
    "servers": 'servers = []',
    "nrf.servers": 'servers = ["ftp://10.0.0.5"]',
    "servers[0]": 'servers = ["http://"]',
    "port": 'servers = ["http://10.0.0.5:99999"]',
    "query": 'servers = ["http://10.0.0.5/?a=b"]',
    "ca_file, with": 'servers = ["https://10.0.0.5"]',
    "instance_id": 'instance_id = "upf-1"',
    "version 4": 'instance_id = "6f1c3c1e-4a2b-5c55-9d7e-0a1b2c3d4e5f"',
    "fqdn": 'fqdn = "not a name"',
    "addresses": 'addresses = ["10.0.0.256"]',
    "plmns": 'plmns = ["0010"]',
    "plmns[0]": 'plmns = ["00a01"]',
    "priority": "priority = 65536",
    "capacity": "capacity = -1",
    "heartbeat_s": "heartbeat_s = 0",
    "key_file": 'certificate_file = "/etc/hostname"',
    "ca_file": 'ca_file = "/nowhere.pem"',
    "oauth2": 'oauth2 = "yes"',
    "heartbeats": "heartbeats = 1",
    "sst": "[[nrf.slice]]\nsst = 256",
    "sd": '[[nrf.slice]]\nsst = 1\nsd = "10203"',
    "dnns": '[[nrf.slice]]\nsst = 1\ndnns = [""]',
}


def servers(*nrfs, more=""):
    """The lines of [nrf] for these, asked each second."""
    return f"servers = {json.dumps([one.url() for one in nrfs])}\nheartbeat_s = 1\n{PLAIN}{more}{SLICE}"


def registered(nrf):
    """One NF, which beats."""
    nrf.wait(lambda: len(nrf.registered) == 1 and next(iter(nrf.registered.values()))["beats"] > 0, "a registration and a heartbeat")
    return next(iter(nrf.registered.values()))


def judge(_):
    """The lab NRF against a client that is neither ours nor its own: each way to fail is one, and the NRF serves again afterwards."""

    def ask(nrf, limit):
        url = f"{nrf.url()}{lab.INSTANCES}{schema.GOOD['nfInstanceId']}"
        command = ["curl", "-sS", "--max-time", str(limit), "--http2-prior-knowledge", "--user-agent", "UPF", "--output", "/dev/null", "--write-out", "%{http_code}"]
        return subprocess.run([*command, "-X", "PUT", "-H", "content-type: application/json", "-d", json.dumps(schema.GOOD), url], capture_output=True, text=True, check=False, timeout=NEVER_S)

    def one(kind):
        nrf = Nrf("127.0.0.1", 0)
        nrf.behave(kind)
        done = ask(nrf, 2)
        assert done.returncode, f"{kind}: curl took it for an answer: {done.stdout}"
        if kind in lab.WHEN_ASKED:
            nrf.wait(lambda: nrf.requests and nrf.requests[0].over.is_set(), kind)
            assert nrf.requests[0].cut, kind
        nrf.be_well()
        assert ask(nrf, NEVER_S).stdout in ("200", "201"), kind
        assert not nrf.complaints, nrf.complaints
        nrf.stop()

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(one, lab.AT_ONCE + lab.WHEN_ASKED))
    nrf = Nrf("127.0.0.1", 0)
    done = subprocess.run(["curl", "-sS", "-i", nrf.url()], capture_output=True, text=True, check=False, timeout=NEVER_S)
    assert " 505 " in done.stdout and nrf.strange, "HTTP/1.1 was served"
    nrf.stop()
    return f"{schema.self_test()} planted mistakes found, {len(lab.AT_ONCE + lab.WHEN_ASKED)} ways to fail"


def profile(bench):
    """The NFProfile, its heartbeats, load, and the end."""
    nrf = bench.nrf()
    # Asked for each second, told each second.
    nrf.heart_beat_s = None
    node = bench.node(servers(nrf))
    entry = registered(nrf)
    put = nrf.of("PUT")
    assert [one.status for one in put] == [201], nrf.told()
    body = put[0].json()
    assert uuid.UUID(body["nfInstanceId"]).version == 4
    for name, wanted in {
        "nfType": "UPF",
        "nfStatus": "REGISTERED",
        "heartBeatTimer": 1,
        "plmnList": [{"mcc": "001", "mnc": "01"}],
        "fqdn": "upf1.example.org",
        "ipv4Addresses": ["10.100.0.1"],
        "priority": 7,
        "capacity": 100,
        "locality": "rack 7",
    }.items():
        assert body.get(name) == wanted, f"{name}: {body.get(name)!r}, not {wanted!r}"
    assert {"sst": 1, "sd": "010203"} in body["sNssais"], body["sNssais"]
    [one] = body["upfInfo"]["sNssaiUpfInfoList"]
    assert one["sNssai"] == {"sst": 1, "sd": "010203"}
    assert [dnn["dnn"] for dnn in one["dnnUpfInfoList"]] == ["internet"], one
    interfaces = body["upfInfo"]["interfaceUpfInfoList"]
    assert {"10.3.0.1"} == {address for one in interfaces if one["interfaceType"] == "N3" for address in one.get("ipv4EndpointAddresses", [])}, interfaces
    since = nrf.mark()
    nrf.await_request("PATCH", since, 4)
    # A load that is one: half of all sessions.
    refused, _ = bench.smf(node).smf.establish(1, SESSIONS)
    assert not refused, refused[:5]
    loads = lambda: [item["value"] for one in nrf.of("PATCH") for item in one.json() if item["path"] == "/load"]
    nrf.wait(lambda: loads() and loads()[-1] > 0, "a load")
    assert not nrf.of("PUT", since)
    assert nrf.expired == 0
    # The end: while SMFs release, or before; but never afterwards.
    node.stop()
    assert nrf.of("DELETE") and not nrf.registered, nrf.told()
    assert entry["beats"] >= 4
    return f"{len(nrf.of('PATCH'))} heartbeats, load {loads()[-1]}, {nrf.connections} connections"


def defaults(bench):
    """As little as can be said; the same NF after a kill; kept at a stop where sessions are."""
    nrf = bench.nrf()
    node = bench.node(f'servers = ["{nrf.url()}"]\n[[nrf.slice]]\nsst = 1\n', on_stop="keep")
    registered(nrf)
    body = nrf.of("PUT")[0].json()
    assert body["ipv4Addresses"] == ["10.100.0.1"] and "plmnList" not in body and body["heartBeatTimer"] == 10, body
    assert [one["dnn"] for one in body["upfInfo"]["sNssaiUpfInfoList"][0]["dnnUpfInfoList"]] == ["internet"], body
    node.kill()
    since = nrf.mark()
    node.start()
    nrf.await_request("PUT", since)
    nrf.await_request("PATCH", since)
    assert len(nrf.registered) == 1, "another NF after a kill"
    since = nrf.mark()
    node.stop()
    assert not nrf.of("DELETE", since) and len(nrf.registered) == 1, "on_stop = keep, and gone"
    return ""


def intervals(bench):
    """heartBeatTimer of answers: of the registration, and later of a heartbeat."""
    nrf = bench.nrf()
    bench.node(f'servers = ["{nrf.url()}"]\nheartbeat_s = 3600\n{SLICE}')
    beats = nrf.await_request("PATCH", 0, 5)
    each_second = beats[4].at - beats[1].at
    nrf.heart_beat_s, nrf.patch_with_profile = 3, True
    since = nrf.mark()
    beats = nrf.await_request("PATCH", since, 5)
    # The first may have been waited for at the old interval.
    each_third = beats[4].at - beats[1].at
    assert each_third > each_second * 1.5, f"3 heartbeats in {each_third:.1f} s each 3 s, in {each_second:.1f} s each second"
    nrf.heart_beat_s = 1
    nrf.await_request("PATCH", nrf.mark(), 3)
    return f"3 heartbeats in {each_second:.1f} s, and in {each_third:.1f} s"


def keepers(bench):
    """NRFs that keep less than they are told, and answer with more."""
    nrf = bench.nrf()
    nrf.drops, nrf.adds, nrf.patch_with_profile = {"load", "loadTimeStamp", "heartBeatTimer", "locality"}, {"customInfo": {"oauth2": False}}, True
    bench.node(servers(nrf))
    nrf.wait(lambda: nrf.registered, "a registration")
    since = nrf.mark()
    # A patch that replaces what is not there is refused, and then whole profiles do as heartbeats.
    nrf.wait(lambda: sum(one.status in (200, 204) for one in nrf.requests[since:]) >= 4, "heartbeats")
    assert len(nrf.registered) == 1 and not nrf.expired
    nrf.complaints = [line for line in nrf.complaints if not line.endswith("replace /load: the registered profile has none")]
    return f"{sum(one.status == 400 for one in nrf.requests)} refused"


def forgotten(bench):
    """An NRF that has lost its registrations: registered anew."""
    nrf = bench.nrf()
    node = bench.node(servers(nrf))
    traffic = bench.smf(node)
    registered(nrf)
    for _ in range(3):
        since = nrf.mark()
        nrf.forget()
        nrf.await_request("PUT", since)
        registered(nrf)
        assert 404 in [one.status for one in nrf.of("PATCH", since)]
    # One that was started anew.
    nrf.stop()
    nrf.forget()
    traffic.goes_on()
    nrf.start()
    registered(nrf)
    traffic.goes_on()
    return ""


def order(bench):
    """The next NRF, in order; less and less often where none answers; not before an NRF says that it may be asked again."""
    first, second, third = bench.nrf(FIRST), bench.nrf(SECOND), bench.nrf(THIRD)
    first.stop()
    second.behave("answer", status=503)
    node = bench.node(servers(first, second, third))
    registered(third)
    assert second.of("PUT") and not first.requests
    assert second.of("PUT")[0].at < third.of("PUT")[0].at
    # The one that has it goes: the others again, from the first.
    first.start()
    second.be_well()
    third.stop()
    registered(first)
    assert not second.registered, "the second before the first"
    first.behave("answer", status=500)
    registered(second)
    # None of them.
    for one in [second, third]:
        one.behave("answer", status=500)
    third.start()
    since = [one.mark() for one in (first, second, third)]
    tries = lambda: sorted((one.at, number) for number, (nrf, mark) in enumerate(zip((first, second, third), since), 1) for one in nrf.of("PUT", mark))
    until(lambda: len(tries()) >= 12, "12 tries")
    asked = [number for _, number in tries()]
    begin = asked.index(1)
    assert asked[begin : begin + 9] == [1, 2, 3] * 3, f"asked in the order {asked}"
    rounds = [at for at, number in tries() if number == 1]
    gaps = [later - sooner for sooner, later in zip(rounds, rounds[1:])]
    assert gaps[-1] > gaps[0], f"no back-off: {[round(gap, 2) for gap in gaps]}"
    said = sum("nrf" in line.lower() for line in node.lines())
    for one in [first, second, third]:
        one.be_well()
    until(lambda: first.registered or second.registered or third.registered, "a registration after the back-off")
    node.kill()
    # One that wants to be left alone for a while.
    for status in [429, 503]:
        first.forget()
        first.behave("answer", status=status, headers={"retry-after": "4"})
        since = first.mark()
        node = bench.node(servers(first))
        first.await_request("PUT", since, 2)
        one, other = first.of("PUT", since)[:2]
        assert other.at - one.at >= 3.9, f"{status} with Retry-After 4, asked after {other.at - one.at:.1f} s"
        first.be_well()
        registered(first)
        node.kill()
    # Nobody can wait for this.
    first.forget()
    first.behave("answer", status=503, headers={"retry-after": "4000000000"}, times=1)
    second.forget()
    node = bench.node(servers(first, second))
    until(lambda: first.registered or second.registered, "a registration in spite of a Retry-After of 126 years")
    return f"rounds after {', '.join(f'{gap:.1f}' for gap in gaps)} s, {said} lines"


def patience(bench, method, cases):
    """Each status, each answer that is none, and each way to fail, to a registration or to a heartbeat: users and N4 do not hear of it,
    memory and the log stay small, and an NRF that is well again has the registration and heartbeats."""
    nrf = bench.nrf()
    worst, most, node = (0, ""), (0, ""), None
    for name, (kind, fields) in cases.items():
        what = f"{name}, {method}"
        if not node:
            node = bench.node(servers(nrf))
            traffic = bench.smf(node)
            nrf.await_request("PATCH", nrf.mark())
            traffic.goes_on()
        node.forget_peak()
        before, said = node.memory_kb("VmHWM"), len(node.lines())
        since, met = nrf.mark(), nrf.connections
        nrf.behave(kind, only=method, **fields)
        if method == "PUT":
            nrf.forget()
        if kind in lab.AT_ONCE:
            nrf.wait(lambda met=met: nrf.connections > met, f"a connection: {what}")
            traffic.goes_on()
            nrf.wait(lambda met=met: nrf.connections > met + 1, f"another connection: {what}")
        else:
            request = nrf.await_request(method, since, answered=False, what=what)[0]
            if kind in LONG:
                traffic.goes_on_while(request)
            nrf.wait(request.over.is_set, f"an end of {what}")
            # It is asked again, for what it has not answered as it should.
            nrf.wait(lambda at=nrf.mark(): nrf.mark() > at, f"another request after {what}")
        traffic.goes_on()
        nrf.be_well()
        nrf.drop_connections()
        nrf.wait(lambda: nrf.registered, f"a registration after {what}")
        nrf.wait(lambda at=nrf.mark(): sum(one.status in (200, 201, 204) for one in nrf.requests[at:]) >= 2, f"heartbeats after {what}")
        lines = node.lines()[said:]
        grown = node.memory_kb("VmHWM") - before
        worst, most = max(worst, (grown, what)), max(most, (len(lines), what))
        assert grown <= GROWTH_KB, f"{what}: {grown} kB more"
        assert len(lines) <= LINES, f"{what}: {len(lines)} lines of log:\n" + "\n".join(line[:300] for line in lines)
        assert max(map(len, lines), default=0) <= 1000, f"{what}: a line of {max(map(len, lines))} characters"
        assert not re.search(r"[\x00-\x08\x0b-\x1f]", "".join(lines)), f"{what}: control characters in the log"
        assert node.process.poll() is None and not [line for line in node.lines() if "panicked" in line]
        if method == "PATCH" and nrf.requests[-1].method == "PUT":
            # One that takes no patches gets the whole profile instead, from then on.
            node.stop()
            node = bench.without(node)
    if node:
        node.stop()
    return f"{len(cases)} cases, at most {worst[0]} kB more ({worst[1]}) and {most[0]} lines ({most[1]})"


def redirects(bench):
    """Followed to another NRF, and not for ever, nor to another scheme."""
    first, second = bench.nrf(FIRST), bench.nrf(SECOND)
    for status in [307, 308]:
        first.behave("redirect", status=status, to=second.url())
        node = bench.node(servers(first))
        registered(second)
        [one] = second.of("PUT")[-1:]
        assert not schema.profile_mistakes(one.json()) and not first.registered
        node.stop()
        assert not second.registered, "no DELETE there"
        second.forget()
    first.behave("redirect", to=None)
    node = bench.node(servers(first))
    since = first.mark()
    hops = lambda: [int(one.path.partition("?hop=")[2] or 0) for one in first.of("PUT", since)]
    first.wait(lambda: hops().count(0) >= 2, "two tries")
    most = max(hops())
    assert 0 < most <= HOPS, f"{most} redirects"
    node.kill()
    # From https to http: never.
    certificates = tempfile.mkdtemp()
    lab.make_authority(certificates, "ca")
    lab.make_certificate(certificates, "server", "ca", [f"IP:{THIRD}"])
    third = bench.nrf(THIRD, context=lab.tls(certificates, "server"))
    third.behave("redirect", to=second.url())
    met = second.connections
    node = bench.node(servers(third, more=f'ca_file = "{certificates}/ca.pem"\n'))
    third.await_request("PUT", 0, 2)
    assert second.connections == met, "from https to http"
    node.kill()
    first.behave("redirect", to="file:///etc/passwd?")
    since = first.mark()
    node = bench.node(servers(first))
    first.await_request("PUT", since, 2)
    first.be_well()
    registered(first)
    return f"{most} of an endless chain are followed"


def tokens(bench):
    """OAuth 2: asked for, sent, asked for anew before it ends, and after a 401."""
    nrf = bench.nrf()
    nrf.token_s = 5
    node = bench.node(servers(nrf, more="oauth2 = true\n"))
    registered(nrf)
    nrf.wait(lambda: len(nrf.tokens) >= 3, "three tokens")
    assert len(nrf.of("PUT")) == 1, nrf.told()
    early = nrf.refused_tokens
    # All at once worth nothing.
    since = nrf.mark()
    nrf.tokens.clear()
    nrf.wait(lambda: nrf.of("POST", since) and [one for one in nrf.of("PATCH", since) if one.status == 204], "another token after a 401")
    # A token endpoint that fails.
    for kind, fields in [("answer", {"status": 400, "body": b'{"error": "invalid_client"}'}), ("answer", {"status": 200, "body": b"{}"}), ("silent", {}), ("huge_body", {}),
                         ("answer", {"status": 200, "body": b'{"access_token": "a\\r\\nb: c", "token_type": "Bearer"}'}), ("answer", {"status": 200, "body": b'{"access_token": "mac", "token_type": "mac"}'})]:
        since = nrf.mark()
        nrf.behave(kind, only="POST", **fields)
        nrf.tokens.clear()
        posts = nrf.await_request("POST", since, 1, answered=False)
        nrf.wait(posts[0].over.is_set, f"an end of {kind}")
        nrf.await_request("POST", since, 2, answered=False, what=f"another try after {kind} {fields}")
        nrf.be_well()
        nrf.drop_connections()
        nrf.await_request("PATCH", nrf.mark())
        nrf.wait(lambda: nrf.registered, "a registration")
    assert not [line for line in node.lines() if any(token in line for token in nrf.tokens)], "a token in the log"
    node.stop()
    assert not nrf.registered
    # None is sent where none is wanted.
    assert all("authorization" in one.headers for one in nrf.of("PUT"))
    return f"{early} requests with a token that had ended"


def tokens_later(bench):
    """An NRF that gives tokens to those that are registered alone, and registers without one."""
    nrf = bench.nrf()
    nrf.token_s, nrf.tokens_for_registered = 5, True
    node = bench.node(servers(nrf, more="oauth2 = true\n"))
    registered(nrf)
    nrf.wait(lambda: len(nrf.tokens) >= 2, "two tokens")
    nrf.forget()
    nrf.wait(lambda: nrf.registered, "a registration anew")
    registered(nrf)
    node.stop()
    assert not nrf.registered, nrf.told()
    return f"{nrf.refused_tokens} requests without a token that counts"


def over_tls(bench):
    """https with ALPN, a certificate of a client where it is demanded; none that is not believed."""
    folder = tempfile.mkdtemp()
    lab.make_authority(folder, "ca")
    lab.make_authority(folder, "other")
    lab.make_certificate(folder, "server", "ca", [f"IP:{FIRST}", "DNS:nrf.example.org"])
    lab.make_certificate(folder, "elsewhere", "ca", ["IP:10.9.9.9", "DNS:elsewhere.example.org"])
    lab.make_certificate(folder, "stranger", "other", [f"IP:{FIRST}"])
    lab.make_certificate(folder, "upf", "ca", ["DNS:upf1.example.org"])
    lab.make_certificate(folder, "bad-upf", "other", ["DNS:upf1.example.org"])
    believed = f'ca_file = "{folder}/ca.pem"\n'
    ours = lambda name: f'certificate_file = "{folder}/{name}.pem"\nkey_file = "{folder}/{name}.key"\n'
    nrf = bench.nrf(context=lab.tls(folder, "server", "ca"))
    node = bench.node(servers(nrf, more=believed + ours("upf")))
    registered(nrf)
    node.stop()
    assert not nrf.registered and not nrf.strange, nrf.strange
    nrf.stop()
    for name, context, more in [
        ("a server of another name", lab.tls(folder, "elsewhere"), believed),
        ("a server of another authority", lab.tls(folder, "stranger"), believed),
        ("no certificate of the client", lab.tls(folder, "server", "ca"), believed),
        ("a certificate of another authority", lab.tls(folder, "server", "ca"), believed + ours("bad-upf")),
        ("a server of HTTP/1.1", lab.tls(folder, "server", protocols=["http/1.1"]), believed),
    ]:
        bad = bench.nrf(FIRST, context=context)
        good = bench.nrf(SECOND)
        node = bench.node(servers(bad, good, more=more))
        registered(good)
        assert bad.connections and not bad.requests, f"{name}: {bad.told()}"
        assert any("NRF" in line or "nrf" in line for line in node.lines()), f"{name}: nothing said"
        node.kill()
        for one in [bad, good]:
            one.stop()
    # A server that speaks no TLS at all, and one that says nothing.
    for kind in ["speaks_ssh", "says_nothing"]:
        bad, good = bench.nrf(FIRST, context=lab.tls(folder, "server")), bench.nrf(SECOND)
        bad.behave(kind)
        node = bench.node(servers(bad, good, more=believed))
        registered(good)
        node.kill()
        for one in [bad, good]:
            one.stop()
    return ""


def names(bench):
    """A server by name, one by IPv6, a name that nobody knows, a prefix."""
    nrf, sixth = bench.nrf(prefix="/edge/one"), bench.nrf("fd00:100::5")
    hosts = f"{bench.folder}/hosts"
    with open(hosts, "w", encoding="ascii") as file:
        file.write(f"127.0.0.1 localhost\n{FIRST} nrf.example.org\n")
    sh("mount", "--bind", hosts, "/etc/hosts")
    try:
        node = bench.node(f'servers = ["http://nowhere.example.org:{PORT}", "http://nrf.example.org:{PORT}/edge/one/"]\n{SLICE}')
        registered(nrf)
        assert nrf.of("PUT")[0].headers[":authority"] == f"nrf.example.org:{PORT}", nrf.of("PUT")[0].headers
        node.stop()
        assert not nrf.registered
        node = bench.node(servers(sixth))
        registered(sixth)
        node.stop()
        assert not sixth.registered
    finally:
        sh("umount", "/etc/hosts")
    return ""


def ends(bench):
    """However the NRF takes it, turnpiked ends."""
    nrf = bench.nrf()
    for kind, fields in [("answer", {"status": 404}), ("answer", {"status": 500}), ("silent", {}), ("trickle", {}), ("huge_body", {}), ("endless_headers", {}), ("closes", {}), ("redirect", {"to": None})]:
        node = bench.node(servers(nrf))
        registered(nrf)
        nrf.behave(kind, only="DELETE", **fields)
        node.stop()
        assert nrf.of("DELETE"), f"no DELETE: {nrf.told()}"
        nrf.be_well()
        nrf.forget()
    nrf.stop()
    node = bench.node(servers(nrf))
    node.stop()
    return ""


def reloads(bench):
    """[nrf] comes, changes and goes while the process and its sessions stay."""
    first, second = bench.nrf(FIRST), bench.nrf(SECOND)
    node = bench.node(None)
    traffic = bench.smf(node)
    pid = node.process.pid
    assert not first.connections
    node.configure(servers(first))
    node.reload()
    entry = registered(first)
    identity = entry["profile"]["nfInstanceId"]
    traffic.goes_on()
    # Nothing new: nothing to tell.
    since = first.mark()
    node.reload()
    first.await_request("PATCH", since, 2)
    assert not first.of("DELETE", since)
    for old, new, name, wanted in [
        ("capacity = 100", "capacity = 50", "capacity", 50),
        ('plmns = ["00101"]', 'plmns = ["00101", "999070"]', "plmnList", [{"mcc": "001", "mnc": "01"}, {"mcc": "999", "mnc": "070"}]),
        ("priority = 7\n", "", "priority", None),
    ]:
        text = servers(first).replace(old, new)
        assert text != servers(first)
        node.configure(text)
        node.reload()
        first.wait(lambda: first.registered and registered(first)["profile"].get(name) == wanted, f"{name} {wanted}")
        traffic.goes_on()
    assert list(first.registered) == [identity]
    # By a signal.
    node.configure(servers(first, more="").replace("rack 7", "rack 8"))
    node.process.send_signal(signal.SIGHUP)
    first.wait(lambda: registered(first)["profile"].get("locality") == "rack 8", "another locality")
    # Another server: it has the registration, and the former one has it no longer.
    node.configure(servers(second))
    node.reload()
    registered(second)
    first.wait(lambda: not first.registered, "a DELETE at the former server")
    # Both may keep what they know in one place.
    assert first.of("DELETE")[0].at < second.of("PUT")[0].at, "a DELETE after the other server had it"
    traffic.goes_on()
    # One that cannot be read changes nothing.
    node.configure(servers(second).replace("sst = 1", "sst = 300"))
    failed = subprocess.run([node.turnpike, "--api", f"http://{upf.API}", "--token-file", f"{node.folder}/token", "reload"], capture_output=True, text=True, check=False, timeout=NEVER_S)
    assert failed.returncode, failed.stdout
    second.await_request("PATCH", second.mark(), 2)
    # Another one while the NRF is silent.
    second.behave("silent")
    second.await_request("PATCH", second.mark(), answered=False)
    node.configure(servers(first))
    node.reload()
    registered(first)
    second.be_well()
    # None.
    node.configure(None)
    node.reload()
    first.wait(lambda: not first.registered, "a DELETE")
    since = first.mark()
    traffic.goes_on()
    assert node.process.poll() is None and node.process.pid == pid
    node.stop()
    assert first.mark() == since, first.told()
    return ""


def readiness(bench):
    """An interface that goes, and with it users' packets: SMFs are to choose another UPF until it is back."""
    nrf = bench.nrf()
    bench.node(servers(nrf))
    registered(nrf)
    told = lambda: next(iter(nrf.registered.values()))["profile"]["nfStatus"]
    for _ in range(2):
        sh("ip", "link", "del", "n6")
        nrf.wait(lambda: told() == "UNDISCOVERABLE", "UNDISCOVERABLE")
        since = nrf.mark()
        nrf.await_request("PATCH", since, 2)
        # Registered anew meanwhile, it does not say that it is well.
        nrf.forget()
        assert nrf.await_request("PUT", since)[0].json()["nfStatus"] != "REGISTERED"
        for line in ["link add n6 type veth peer name eth0 netns dn", f"addr add {upf.UPF_N6}/24 dev n6", "link set n6 up", f"-n dn addr add {upf.SERVER}/24 dev eth0", "-n dn link set eth0 up"]:
            sh("ip", *line.split())
        nrf.wait(lambda: told() == "REGISTERED", "REGISTERED")
    assert len(nrf.registered) == 1
    return ""


def refusals(bench):
    """Configurations that are refused, each by the name of its key."""
    node = bench.node(None, start=False)
    wrong = []
    for words, line in REFUSED.items():
        text = "" if line.startswith("servers") else 'servers = ["http://10.100.0.5:7777"]\n'
        node.configure(f"{text}{line}\n" + ("" if "slice" in line else SLICE))
        done = subprocess.run([node.program, "check-config", f"{node.folder}/turnpiked.toml"], capture_output=True, text=True, check=False, timeout=NEVER_S)
        key = re.match(r"(?:\[\[nrf.slice\]\]\n.*?)?(\w+) = [^\n]*\Z", line, re.S)[1]
        said = done.stdout + done.stderr
        if not done.returncode:
            wrong.append(f"taken: {line!r}")
        elif "nrf" not in said or not (key in said or words in said):
            wrong.append(f"{line!r}: {said}")
    assert not wrong, "\n".join(wrong)
    node.configure(servers(Nrf("127.0.0.1", 0)))
    done = subprocess.run([node.program, "check-config", f"{node.folder}/turnpiked.toml"], capture_output=True, text=True, check=False, timeout=NEVER_S)
    assert not done.returncode, done.stdout + done.stderr
    return f"{len(REFUSED)}"


STATUSES = {str(status): ("answer", {"status": status}) for status in [400, 401, 403, 404, 405, 409, 411, 413, 415, 429, 500, 501, 502, 503, 504]}
ANSWERS = {name: ("answer", fields) for name, fields in BAD_ANSWERS.items()}
LONG = ["says_nothing", "endless_settings_at_once", "silent", "half_a_frame", "trickle", "trickling_body", "endless_ping", "endless_settings"]
HANGS = {kind: (kind, {}) for kind in LONG}
BREAKS = {kind: (kind, {}) for kind in lab.AT_ONCE + lab.WHEN_ASKED if kind not in LONG}
# Longest first.
PARTS = {
    **{f"{how}_{what}": functools.partial(patience, method=how.upper(), cases=cases)
       for how in ["put", "patch"] for what, cases in {"hangs": HANGS, "breaks": BREAKS, "refused": STATUSES, "misread": ANSWERS}.items()},
    **{part.__name__: part for part in [order, tokens, tokens_later, intervals, reloads, over_tls, ends, redirects, forgotten, keepers, profile, readiness, defaults, names, judge, refusals]},
}


if __name__ == "__main__":
    main(__doc__, PARTS, [FIRST, SECOND, THIRD, "fd00:100::5"])
