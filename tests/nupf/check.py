#!/usr/bin/python3
"""turnpiked's events for consumers (Nupf_EventExposure), judged by consumers that share no code with it: what they may ask for, what they are
told, when, and that neither N4 nor users' packets hear of a consumer that is silent, slow, endless, huge or garbage.

usage: tests/nupf/check.py [--turnpiked PATH] [--turnpike PATH] [--jobs N] [PART...]
PART: one of PARTS below; all of them by default, so many at a time. Wants root, for namespaces of its own.
"""

import concurrent.futures
import datetime
import json
import os
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time

# They say where the others are.
from consumer import Answer, Consumer, ask, events, lab
from bench import Bench, main, until

import upf
from upf import ie, sh, u8

FIRST, SECOND, THIRD = "10.100.0.5", "10.100.0.6", "10.100.0.7"
# Not of those that may ask.
STRANGER = "10.8.0.9"
PORT, TLS_PORT = 7780, 7781
ROOT = f"http://{upf.N4}:{PORT}"
SUBSCRIPTIONS = "/nupf-ee/v1/ee-subscriptions"
NOBODY = f"{ROOT}{SUBSCRIPTIONS}/3f1c7a52-0c52-4f0e-9a39-3a0f6a3f5d11"
PATCH = "application/json-patch+json"
# The user whose packets there are, and another one.
UE, OTHER = "10.60.0.2", "10.60.0.3"
# Octets of one of these packets.
OCTETS = 1028
# Growth of anonymous memory; see tests/nrf.
GROWTH_KB = 16 << 10
# Of the log, for one consumer and what comes after it.
LINES = 8
NEVER_S = lab.NEVER_S


def lines(more="", allow='["10.100.0.0/24"]', listen=f"{upf.N4}:{PORT}"):
    """Of [nupf]: reports each second."""
    return f'listen = "{listen}"\nallow = {allow}\nmin_period_s = 1\n{more}'


class Exposed(Bench):
    """With consumers."""

    section = "nupf"

    def consumer(self, address=FIRST, port=9000, **more):
        """One that ends with the part."""
        return self.nrf(address, port, of=Consumer, **more)


def subscribe(subscription, source=FIRST, root=ROOT, **more):
    """The URI of what has been accepted, and the answer."""
    answer = ask("POST", f"{root}{SUBSCRIPTIONS}", {"subscription": subscription}, source=source, **more)
    assert answer.status == 201, answer
    created = answer.json()
    assert created["subscription"] == subscription, created
    location = answer.headers["location"]
    assert location == created["subscriptionId"] and location.startswith(f"{root}{SUBSCRIPTIONS}/"), answer.headers
    return location, created


def refused(subscription, source=FIRST):
    """The answer that it gets."""
    answer = ask("POST", f"{ROOT}{SUBSCRIPTIONS}", {"subscription": subscription}, source=source)
    assert answer.status >= 400, answer
    return answer


def change(location, *operations, source=FIRST):
    """Status of a PATCH, or the answer of one that is refused."""
    answer = ask("PATCH", location, [dict(zip(("op", "path", "value"), one)) for one in operations], PATCH, source)
    return 204 if answer.status == 204 else answer


def instant(text):
    """Of a DateTime."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def shown(node):
    """Its part of `turnpike status`, once it is there."""
    until(lambda: "nupf" in node.get("status"), "[nupf]")
    return node.get("status")["nupf"]


def await_quiet(radio):
    """No packet is under way any more; how many have come back. Where all are to, it does not depend on when their thread runs."""
    radio.rate = lambda _: 0
    time.sleep(0.2)  # the one that is being sent
    seen, since = radio.back, time.monotonic()
    while radio.back != radio.sent and time.monotonic() < since + 2:
        if radio.back != seen:
            seen, since = radio.back, time.monotonic()
        time.sleep(0.05)
    return radio.back


def volumes(bench):
    """A user's packets, to the octet, period by period; and at its end."""
    consumer = bench.consumer()
    node = bench.node(lines())
    traffic = bench.smf(node)
    until(lambda: bench.radio.back > 20, "packets")
    before = await_quiet(bench.radio)
    location, created = subscribe(consumer.subscription("one", UE, eventList=events(immediateFlag=True)))
    [first] = created["reportList"]
    volume = first["userDataUsageMeasurements"][0]["volumeMeasurement"]
    assert (volume["dlNbOfPackets"], volume["ulVolume"]) == (before, f"{before * OCTETS} B"), (first, before)
    assert "startTime" not in first and first["ueIpv4Addr"] == UE, first
    began = bench.radio.back
    bench.radio.rate = lambda _: 200
    consumer.wait(lambda: len(consumer.items("one")) >= 4, "four periods")
    passed = await_quiet(bench.radio) - began
    consumer.wait(lambda: consumer.volumes("one")[1][1] >= passed, f"{passed} packets downlink; told {consumer.volumes('one')}")
    assert consumer.volumes("one") == [[passed * OCTETS, passed]] * 2, (consumer.volumes("one"), passed, began, bench.radio.sent, bench.radio.back)
    items = consumer.items("one")
    for former, item in zip(items, items[1:]):
        assert item["startTime"] == former["timeStamp"], (former, item)
    # None before its time, one each second; how late one is says more of the machine.
    since_first = [(instant(item["timeStamp"]) - instant(items[0]["startTime"])).total_seconds() for item in items]
    assert all(seconds > 0.9 * (place + 1) for place, seconds in enumerate(since_first)), since_first
    assert items[0]["dnn"] == "internet" and items[0]["eventType"] == "USER_DATA_USAGE_MEASURES", items[0]
    for item in items:
        measured = item["userDataUsageMeasurements"][0]
        octets = int(measured["volumeMeasurement"]["ulVolume"].removesuffix(" B"))
        bps = int(measured["throughputMeasurement"]["ulThroughput"].removesuffix(" bps"))
        length = (instant(item["timeStamp"]) - instant(item["startTime"])).total_seconds()
        assert abs(bps - octets * 8 / length) <= max(0.01 * bps, 8), item
    # The end of the session is the end of it.
    traffic.smf.answer(traffic.smf.send(54, seid=int(node.get("sessions")["sessions"][0]["seid"], 16)))
    consumer.wait(lambda: not shown(node)["subscriptions"], "the end of it")
    assert ask("DELETE", location, source=FIRST).cause() == "SUBSCRIPTION_NOT_FOUND"
    assert refused(consumer.subscription("two", UE)).cause() == "CONTEXT_NOT_FOUND"
    return f"{len(items)} reports, {passed} packets each way"


def targets(bench):
    """Any UE, a DNN, a share of all; one report, so many reports, until a time; throughput and its peaks."""
    consumer = bench.consumer()
    node = bench.node(lines())
    traffic = bench.smf(node)
    refused_, _ = traffic.smf.establish(1, 100)
    assert not refused_, refused_
    consumer_of = lambda correlation, **more: subscribe(consumer.subscription(correlation, **more))
    mode = lambda **more: {"trigger": "PERIODIC", "repPeriod": 1, **more}
    consumer_of("any")
    consumer_of("dnn", anyUe=None, dnn="Internet")
    consumer_of("elsewhere", dnn="ims")
    consumer_of("once", ue=UE, eventReportingMode={"trigger": "ONE_TIME"})
    consumer_of("thrice", ue=UE, eventReportingMode=mode(maxReports=3))
    expiry = datetime.datetime.now(datetime.timezone(datetime.timedelta(hours=2))) + datetime.timedelta(seconds=2.5)
    consumer_of("until", ue=UE, eventReportingMode=mode(expiry=expiry.isoformat()))
    consumer_of("share", eventReportingMode=mode(sampRatio=20))
    consumer_of("trends", ue=UE, eventList=events("USER_DATA_USAGE_TRENDS"), eventReportingMode=mode(repPeriod=4), supi="imsi-001010000000001")
    consumer_of("v", ue=UE, eventList=events(measurementTypes=["VOLUME_MEASUREMENT"], granularityOfMeasurement="PER_SESSION"))
    consumer_of("t", ue=OTHER, eventList=events(measurementTypes=["THROUGHPUT_MEASUREMENT"]))
    count = lambda correlation: len(consumer.items(correlation))
    consumer.wait(lambda: count("trends") >= 2 and count("any") >= 5 and count("dnn") >= 5 and count("t") >= 2, "reports")
    assert {item["ueIpv4Addr"] for item in consumer.items("any") + consumer.items("dnn")} == {UE}, "silent ones are told of"
    assert not count("elsewhere")
    assert (count("once"), count("thrice")) == (1, 3)
    assert count("until") in (2, 3) and instant(consumer.items("until")[-1]["timeStamp"]) <= expiry + datetime.timedelta(seconds=2)
    assert all(body["achievedSampRatio"] == 20 for body in consumer.notifications("share"))
    trend = consumer.items("trends")[1]
    rates = trend["userDataUsageMeasurements"][0]["throughputStatisticsMeasurement"]
    mean, peak = (int(rates[name].removesuffix(" bps")) for name in ["ulAverageThroughput", "ulPeakThroughput"])
    # 50 packets a second, as near as a busy machine sends them.
    assert 0.5 * 50 * OCTETS * 8 < mean <= peak < 3 * 50 * OCTETS * 8, trend
    assert trend["supi"] == "imsi-001010000000001" and "gpsi" not in trend
    assert all(set(item["userDataUsageMeasurements"][0]) == {"volumeMeasurement"} for item in consumer.items("v"))
    assert all(set(item["userDataUsageMeasurements"][0]) == {"throughputMeasurement"} for item in consumer.items("t"))
    assert {item["ueIpv4Addr"] for item in consumer.items("t")} == {OTHER}
    # Three have ended, and are no more.
    until(lambda: shown(node)["subscriptions"] == 7, "the end of three")
    assert shown(node)["dropped"] == 0
    metrics = subprocess.run(["curl", "-sS", "-H", f"Authorization: Bearer {upf.TOKEN}", f"http://{upf.API}/metrics"], capture_output=True, text=True, check=True, timeout=NEVER_S).stdout
    assert "\nturnpike_nupf_subscriptions 7\n" in metrics and "\nturnpike_nupf_served 1\n" in metrics
    said = sh(node.turnpike, "--api", f"http://{upf.API}", "--token-file", f"{node.folder}/token", "status")
    assert f"events at {ROOT}: 7 subscriptions" in said, said
    return f"{len(consumer.requests)} notifications"


def changes(bench):
    """PATCH, as RFC 6902 has it, and DELETE; what is refused changes nothing."""
    consumer = bench.consumer()
    node = bench.node(lines())
    bench.smf(node)
    assert not bench.traffic.smf.establish(1, 1)[0]
    location, _ = subscribe(consumer.subscription("one", UE, period=600))
    assert change(location, ("test", "/subscription/notifyCorrelationId", "one"), ("replace", "/subscription/eventReportingMode/repPeriod", 1)) == 204
    consumer.wait(lambda: len(consumer.items("one")) >= 2, "reports each second")
    # The same from within, and another UE.
    assert change(location, ("replace", "/notifyCorrelationId", "two"), ("replace", "/ueIpAddress/ipv4Addr", OTHER)) == 204
    consumer.wait(lambda: len(consumer.items("two")) >= 2, "reports of another")
    assert {item["ueIpv4Addr"] for item in consumer.items("two")} == {OTHER}
    for cause, param, *operations in [
        ("MODIFICATION_NOT_ALLOWED", None, ("test", "/notifyCorrelationId", "three"), ("replace", "/notifyCorrelationId", "four")),
        ("MODIFICATION_NOT_ALLOWED", None, ("replace", "/notThere", 1)),
        ("MODIFICATION_NOT_ALLOWED", None, *[("copy", f"/x{i}") for i in range(1)]),
        ("MANDATORY_IE_MISSING", "/subscription/nfId", ("remove", "/nfId")),
        ("MANDATORY_IE_INCORRECT", "/subscription/eventReportingMode/trigger", ("replace", "/eventReportingMode/trigger", "THRESHOLD")),
        ("OPTIONAL_IE_INCORRECT", "/subscription/eventReportingMode/repPeriod", ("replace", "/eventReportingMode/repPeriod", 0)),
        ("CONTEXT_NOT_FOUND", None, ("replace", "/ueIpAddress/ipv4Addr", "10.60.1.77")),
        ("MANDATORY_IE_INCORRECT", "/subscription/eventNotifyUri", ("replace", "/eventNotifyUri", f"http://{STRANGER}/")),
        ("INVALID_MSG_FORMAT", None, ("grow", "/nfId", 1)),
        ("INVALID_MSG_FORMAT", None),
        ("INVALID_MSG_FORMAT", None, *[("replace", "/notifyCorrelationId", "x")] * 65),
    ]:
        answer = change(location, *operations)
        if any(one[0] == "copy" for one in operations):
            assert answer.status == 400, answer
            continue
        assert answer.cause() == cause and answer.params() == ([param] if param else []), (operations[:2], answer)
    # A document that doubles with each operation.
    doubling = [{"op": "copy", "from": "", "path": f"/x{i}"} for i in range(60)]
    assert ask("PATCH", location, doubling, PATCH, FIRST).cause() == "MODIFICATION_NOT_ALLOWED"
    assert ask("PATCH", location, b"[" * 16_000, PATCH, FIRST).cause() == "INVALID_MSG_FORMAT"
    since = len(consumer.items("two"))
    consumer.wait(lambda: len(consumer.items("two")) > since, "what was before the refusals")
    # Another consumer that knows its name may end it: names cannot be guessed.
    assert ask("DELETE", location, source=SECOND).status == 204
    for method, body in [("DELETE", None), ("PATCH", [{"op": "remove", "path": "/dnn"}])]:
        assert ask(method, location, body, PATCH, FIRST).cause() == "SUBSCRIPTION_NOT_FOUND"
    assert shown(node)["subscriptions"] == 0
    # A report that is under way ends with its subscription.
    consumer.behave("silent")
    slow, _ = subscribe(consumer.subscription("slow", UE))
    consumer.wait(lambda: consumer.requests and consumer.requests[-1].status == 0, "a report that is not answered")
    assert ask("DELETE", slow, source=FIRST).status == 204
    consumer.wait(consumer.requests[-1].over.is_set, "its end", 3)
    consumer.be_well()
    quiet = consumer.mark()
    time.sleep(2.5)
    assert consumer.mark() == quiet, "told of what has ended"
    return ""


def refusals(bench):
    """Requests that are none, and events that are not told of: by cause and attribute."""
    consumer = bench.consumer()
    node = bench.node(lines())
    bench.smf(node)
    good = consumer.subscription("one", UE)
    mode = lambda **more: {"eventReportingMode": {"trigger": "PERIODIC", "repPeriod": 1, **more}}
    missing, mandatory, optional = "MANDATORY_IE_MISSING", "MANDATORY_IE_INCORRECT", "OPTIONAL_IE_INCORRECT"
    wrong = 0
    for cause, param, more in [
        *[(missing, name, {name: None}) for name in ["eventList", "eventNotifyUri", "notifyCorrelationId", "eventReportingMode", "nfId", "ueIpAddress"]],
        (mandatory, "eventList/0/type", {"eventList": events("QOS_MONITORING")}),
        (mandatory, "eventList/0/type", {"eventList": events("TSC_MNGT_INFO")}),
        (optional, "eventList/0/granularityOfMeasurement", {"eventList": events(granularityOfMeasurement="PER_FLOW")}),
        (optional, "eventList/0/appIds", {"eventList": events(appIds=["web"])}),
        (optional, "eventList/0/measurementTypes", {"eventList": events(measurementTypes=["APPLICATION_RELATED_INFO"])}),
        (mandatory, "eventNotifyUri", {"eventNotifyUri": "/told"}),
        (mandatory, "eventNotifyUri", {"eventNotifyUri": f"http://{STRANGER}:9000/told"}),
        (mandatory, "eventNotifyUri", {"eventNotifyUri": "http://127.0.0.1:8806/api/v1/reload"}),
        (mandatory, "eventNotifyUri", {"eventNotifyUri": "https://10.100.0.5/told"}),
        (mandatory, "nfId", {"nfId": "amf"}),
        (mandatory, "eventReportingMode/trigger", {"eventReportingMode": {"trigger": "SOMETIMES"}}),
        (missing, "eventReportingMode/repPeriod", {"eventReportingMode": {"trigger": "PERIODIC"}}),
        (optional, "eventReportingMode/expiry", mode(expiry="2020-01-01T00:00:00Z")),
        (optional, "eventReportingMode/notifFlag", mode(notifFlag="DEACTIVATE")),
        (optional, "snssai", {"snssai": {"sst": 3}}),
        (optional, "supi", {"ueIpAddress": None, "supi": "imsi-001010000000001"}),
    ]:
        answer = refused({name: value for name, value in {**good, **more}.items() if value is not None})
        assert (answer.status, answer.cause(), answer.params()) == (400, cause, [f"/subscription/{param}"]), (more, answer)
        wrong += 1
    url = f"{ROOT}{SUBSCRIPTIONS}"
    body = {"subscription": good}
    for status, cause, answer in [
        (400, "INVALID_MSG_FORMAT", ask("POST", url, b"{", source=FIRST)),
        (400, "INVALID_MSG_FORMAT", ask("POST", url, b"\xff\xfe", source=FIRST)),
        (400, "INVALID_MSG_FORMAT", ask("POST", url, b"[" * 16_000, source=FIRST)),
        (400, "INVALID_MSG_FORMAT", ask("POST", url, {"subscription": {**good, "x": json.loads("[" * 100 + "]" * 100)}}, source=FIRST)),
        (400, missing, ask("POST", url, {}, source=FIRST)),
        (400, missing, ask("POST", url, [1], source=FIRST)),
        (400, mandatory, ask("POST", url, {"subscription": 7}, source=FIRST)),
        (413, None, ask("POST", url, b" " * 20_000, source=FIRST)),
        (413, None, ask("POST", url, b" " * 1_000_000, source=FIRST)),
        (415, None, ask("POST", url, body, "text/plain", FIRST)),
        (415, None, ask("PATCH", NOBODY, [], "application/json", FIRST)),
        (404, "SUBSCRIPTION_NOT_FOUND", ask("DELETE", NOBODY, source=FIRST)),
        (404, "SUBSCRIPTION_NOT_FOUND", ask("DELETE", f"{url}/one", source=FIRST)),
        (404, "RESOURCE_URI_STRUCTURE_NOT_FOUND", ask("POST", f"{ROOT}/nupf-ee/v2/ee-subscriptions", body, source=FIRST)),
        (404, "RESOURCE_URI_STRUCTURE_NOT_FOUND", ask("GET", f"{ROOT}/", source=FIRST)),
        (405, None, ask("GET", url, source=FIRST)),
        (405, None, ask("PUT", NOBODY, body, source=FIRST)),
    ]:
        assert (answer.status, answer.cause()) == (status, cause), answer
        wrong += 1
    assert ask("GET", url, source=FIRST).headers["allow"] == "POST"
    answer = ask("POST", url, {**body, "supportedFeatures": "f"}, source=FIRST)
    assert answer.status == 201 and answer.json()["supportedFeatures"] == "0", answer
    # HTTP/1.1 is none of it.
    done = subprocess.run(["curl", "-sS", "--http1.1", "--interface", FIRST, url], capture_output=True, text=True, check=False, timeout=NEVER_S)
    assert done.returncode, done.stdout
    for line, reason in {'listen = "10.100.0.1"': "listen", 'listen = "10.100.0.1:7780"\nallow = []': "allow", lines("min_period_s = 0").replace("min_period_s = 1\n", ""): "min_period_s", lines('ca_file = "/nowhere"'): "ca_file"}.items():
        node.configure(line)
        done = subprocess.run([node.program, "check-config", f"{node.folder}/turnpiked.toml"], capture_output=True, text=True, check=False, timeout=NEVER_S)
        assert done.returncode and f"nupf.{reason}" in done.stdout + done.stderr, (line, done.stdout + done.stderr)
        wrong += 1
    return f"{wrong}"


def bounds(bench):
    """Of each consumer, of all, of UEs; who may ask, and where notifications go."""
    consumer = bench.consumer()
    node = bench.node(lines("max_subscriptions = 5\nconsumer_subscriptions = 3\nmax_ues = 60\n"))
    traffic = bench.smf(node)
    assert not traffic.smf.establish(1, 99)[0]
    for number in range(3):
        subscribe(consumer.subscription(str(number), UE))
    full = refused(consumer.subscription("more", UE))
    assert (full.status, full.cause()) == (500, "INSUFFICIENT_RESOURCES") and "consumer_subscriptions" in full.json()["detail"], full
    location, _ = subscribe(consumer.subscription("3", UE), SECOND)
    subscribe(consumer.subscription("any"), SECOND)
    full = refused(consumer.subscription("more", UE), THIRD)
    assert full.cause() == "INSUFFICIENT_RESOURCES" and "max_subscriptions" in full.json()["detail"], full
    # 100 UEs, and room for 60; those that are named have theirs.
    consumer.wait(lambda: consumer.notifications("any"), "those that there is room for")
    until(lambda: shown(node)["left_out"] == 40, "40 that there is no room for")
    assert shown(node)["ues"] == 64, shown(node)
    assert all(body["achievedSampRatio"] == 60 for body in consumer.notifications("any")), consumer.notifications("any")
    assert ask("DELETE", location, source=SECOND).status == 204
    subscribe(consumer.subscription("more", OTHER), THIRD)
    try:
        ask("DELETE", NOBODY, source=STRANGER)
        raise AssertionError("a stranger was served")
    except ConnectionError:
        pass
    # A way that leads elsewhere is not gone.
    stranger = bench.consumer(STRANGER)
    consumer.behave("redirect", to=stranger.url())
    until(lambda: str(shown(node).get("last_error")).endswith("(nupf.allow)"), "a way that is not gone")
    assert not stranger.requests and not stranger.connections
    second = bench.consumer(SECOND)
    consumer.behave("redirect", to=second.url(), status=308)
    second.wait(lambda: len(second.requests) >= 4, "where it leads")
    traffic.goes_on()
    return ""


BAD = {
    **{kind: (kind, {}) for kind in lab.AT_ONCE + lab.WHEN_ASKED},
    **{f"answers {status}": ("answer", {"status": status}) for status in [400, 401, 403, 413, 429, 500, 503]},
    "leads in a circle": ("redirect", {"to": None}),
    "leads nowhere": ("answer", {"status": 307}),
    "leads to rubbish": ("answer", {"status": 308, "headers": {"location": "http://[::zz]/"}}),
    "a teapot": ("answer", {"status": 418, "body": b"short and stout" * 1000}),
    "a long reason": ("answer", {"status": 400, "headers": {"content-type": "application/problem+json"}, "body": b'{"detail": "' + b"\\u001b[31m" * 5000 + b'"}'}),
}


def patience(bench):
    """Each way to fail at once, in one consumer each: they are dropped after the time that they have; a good one among them hears in time."""
    good = bench.consumer()
    node = bench.node(lines('unanswered_s = 8\nconsumer_subscriptions = 64\n'))
    traffic = bench.smf(node)
    location, _ = subscribe(good.subscription("good", UE))
    good.wait(lambda: good.items("good"), "a report")
    node.forget_peak()
    memory, before = node.memory_kb(), len(node.lines())
    bad = {name: bench.consumer(SECOND, 9001 + place) for place, name in enumerate(BAD)}
    for name, consumer in bad.items():
        kind, fields = BAD[name]
        consumer.behave(kind, **fields)
        subscribe(consumer.subscription(name, UE), SECOND)
    gone = bench.consumer(SECOND, 9900)
    gone.stop()
    subscribe({**good.subscription("gone", UE), "eventNotifyUri": f"http://{SECOND}:9900/told"}, SECOND)
    unknown = bench.consumer(SECOND, 9901)
    unknown.behave("answer", status=404)
    subscribe(unknown.subscription("unknown", UE), SECOND)
    until(lambda: any(one.connections for one in bad.values()), "one of them to be told")
    for _ in range(3):
        traffic.goes_on()
    until(lambda: shown(node)["subscriptions"] == 1, f"all bad ones to be dropped: {shown(node)}", 2 * NEVER_S)
    assert shown(node)["dropped"] == len(bad) + 2, shown(node)
    assert len(unknown.requests) == 1, "told again, though it knows nothing of it"
    # One who waited for the others would hear once for each time that those are waited for, however busy the machine is.
    waits = [one.at for one in bad["silent"].requests]
    heard = sum(waits[0] < one.at < waits[-1] for one in good.requests)
    assert len(waits) > 1 and heard > 2 * (len(waits) - 1), f"heard {heard} times in {waits[-1] - waits[0]:.1f} s, in which a silent one was told {len(waits)} times"
    grown = max(node.memory_kb(), node.memory_kb("VmHWM") - node.memory_kb("RssFile")) - memory
    assert grown < GROWTH_KB, f"{grown} kB"
    said = len(node.lines()) - before
    assert said <= LINES * len(bad), f"{said} lines:\n" + "\n".join(node.lines()[before:][:60])
    assert ask("DELETE", location, source=FIRST).status == 204
    traffic.goes_on()
    for consumer in bad.values():
        consumer.complaints.clear()
    return f"{len(bad) + 2} consumers, {grown} kB more, {said} lines; the good one heard {heard} times between {len(waits)} to a silent one"


def again(bench):
    """A consumer that is away for a while: nothing of what was measured is lost, and nothing is told twice."""
    consumer = bench.consumer()
    node = bench.node(lines())
    bench.smf(node)
    until(lambda: bench.radio.back > 3, "packets")
    await_quiet(bench.radio)
    subscribe(consumer.subscription("one", UE))
    began = bench.radio.back
    bench.radio.rate = lambda _: 100
    consumer.wait(lambda: consumer.items("one"), "a report")
    # An answer that goes down with its connection is none to the UPF, which tells the same again: there is to be none.
    consumer.behave("closes")
    consumer.wait(lambda: consumer.requests[-1].cut, "a report that is not taken, after the answers to all others")
    consumer.stop()
    time.sleep(2.5)
    consumer.behave("answer", status=503, times=2)
    consumer.start()
    consumer.wait(lambda: len(consumer.items("one")) >= 3, "reports, again")
    passed = await_quiet(bench.radio) - began
    consumer.wait(lambda: consumer.volumes("one")[1][1] >= passed, f"{passed} packets")
    assert consumer.volumes("one") == [[passed * OCTETS, passed]] * 2, (consumer.volumes("one"), passed, began, bench.radio.sent, bench.radio.back)
    items = consumer.items("one")
    for former, item in zip(items, items[1:]):
        assert item["startTime"] == former["timeStamp"], (former, item)
    assert shown(node)["failed"] >= 3 and not shown(node)["dropped"], shown(node)
    return f"{passed} packets each way"


def over_tls(bench):
    """Certificates of both sides, of requests and notifications; others are none."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ["ca", "other"]:
            lab.make_authority(folder, name)
        lab.make_certificate(folder, "upf", "ca", [f"IP:{upf.N4}"])
        lab.make_certificate(folder, "consumer", "ca", [f"IP:{FIRST}"])
        lab.make_certificate(folder, "stranger", "other", [f"IP:{SECOND}"])
        consumer = bench.consumer(context=lab.tls(folder, "consumer", clients_of="ca"))
        files = "".join(f'{key}_file = "{folder}/{name}"\n' for key, name in {"certificate": "upf.pem", "key": "upf.key", "ca": "ca.pem"}.items())
        node = bench.node(lines(files))
        bench.smf(node)
        root = f"https://{upf.N4}:{PORT}"
        shows = lambda name, ca="ca": ["--cacert", f"{folder}/{ca}.pem", "--cert", f"{folder}/{name}.pem", "--key", f"{folder}/{name}.key"]
        location, _ = subscribe(consumer.subscription("one", UE), root=root, more=shows("consumer"))
        consumer.wait(lambda: len(consumer.items("one")) >= 2, "reports")
        for url, more in [(ROOT, []), (root, ["--cacert", f"{folder}/ca.pem"]), (root, shows("stranger"))]:
            try:
                answer = ask("DELETE", f"{url}{SUBSCRIPTIONS}/x", source=FIRST, more=more)
                raise AssertionError(f"served {url} {more}: {answer}")
            except ConnectionError:
                pass
        # Notifications go to nobody that the authorities do not know.
        stranger = bench.consumer(SECOND, context=lab.tls(folder, "stranger"))
        subscribe(stranger.subscription("two", UE), SECOND, root, more=shows("consumer"))
        until(lambda: "certificate" in str(shown(node).get("last_error")).lower() or "UnknownIssuer" in str(shown(node).get("last_error")), "a certificate that is not believed")
        assert not stranger.requests
        # One that cannot be read is said, and that of before goes on.
        with open(f"{folder}/upf.pem", "r+", encoding="ascii") as file:
            whole = file.read()
            file.truncate(0)
        time.sleep(1.1)
        assert ask("DELETE", location + "0", source=FIRST, more=shows("consumer")).status == 404
        assert any("certificates cannot be read" in line for line in node.lines())
        with open(f"{folder}/upf.pem", "w", encoding="ascii") as file:
            file.write(whole)
        # Renewed without a start.
        lab.make_certificate(folder, "upf", "other", [f"IP:{upf.N4}"])
        time.sleep(1.1)
        answer = ask("DELETE", location, source=FIRST, more=shows("consumer", "other"))
        assert answer.status == 204, answer
    return ""


def reloads(bench):
    """[nupf] comes, changes, moves and goes while it runs; subscriptions stay until it goes."""
    consumer = bench.consumer()
    node = bench.node(None)
    traffic = bench.smf(node)
    assert "nupf" not in node.get("status")
    node.configure(lines())
    node.reload()
    subscribe_when_there = lambda: not socket.socket().connect_ex((upf.N4, PORT))
    until(subscribe_when_there, "a listener")
    location, _ = subscribe(consumer.subscription("one", UE))
    consumer.wait(lambda: consumer.items("one"), "a report")
    # The address is somebody else's; then it is free.
    taken = socket.create_server((upf.N4, TLS_PORT))
    node.configure(lines(listen=f"{upf.N4}:{TLS_PORT}", more="max_ues = 7\n"))
    node.reload()
    until(lambda: "in use" in str(shown(node).get("trouble")), "a trouble")
    assert "not served" in sh(node.turnpike, "--api", f"http://{upf.API}", "--token-file", f"{node.folder}/token", "status")
    traffic.goes_on()
    since = len(consumer.items("one"))
    consumer.wait(lambda: len(consumer.items("one")) > since, "reports meanwhile")
    taken.close()
    until(lambda: not shown(node).get("trouble"), "the address")
    assert ask("PATCH", location.replace(f":{PORT}", f":{TLS_PORT}"), [{"op": "replace", "path": "/notifyCorrelationId", "value": "two"}], PATCH, FIRST).status == 204
    consumer.wait(lambda: consumer.items("two"), "reports of what was changed")
    node.configure(None)
    node.reload()
    until(lambda: "nupf" not in node.get("status"), "its end")
    until(lambda: socket.socket().connect_ex((upf.N4, TLS_PORT)), "its listener's end")
    traffic.goes_on()
    node.stop()
    bench.without(node)
    return ""


def kept(bench):
    """Subscriptions outlive the process, as sessions do; one of a UE whose session is gone does not."""
    consumer = bench.consumer()
    node = bench.node(lines(), on_stop="keep")
    traffic = bench.smf(node)
    assert not traffic.smf.establish(1, 1)[0]
    location, _ = subscribe(consumer.subscription("one", UE))
    subscribe(consumer.subscription("any"))
    subscribe(consumer.subscription("five", UE, eventReportingMode={"trigger": "PERIODIC", "repPeriod": 1, "maxReports": 5}))
    consumer.wait(lambda: len(consumer.items("five")) >= 2 and consumer.items("any"), "reports")
    file = f"{node.folder}/state/subscriptions-{upf.N4}"
    written = lambda: {json.loads(one["subscription"])["notifyCorrelationId"]: one for one in json.load(open(file, encoding="utf-8"))}
    until(lambda: os.path.exists(file) and len(written()) == 3 and written()["five"]["reports"] >= 2, "the file")
    assert os.stat(file).st_mode & 0o777 == 0o600
    for end in [node.kill, node.stop]:
        end()
        since = {name: len(consumer.items(name)) for name in ["one", "any"]}
        node.start()
        until(lambda: shown(node)["subscriptions"] >= 2, "those of before")
        consumer.wait(lambda since=since: all(len(consumer.items(name)) > count + 1 for name, count in since.items()), "reports, again")
        # Of a kill, the file may not have the last one, and not know that the one under way was taken.
        until(lambda: shown(node)["subscriptions"] == 2, "the end of what was to have five")
        assert 5 <= len(consumer.items("five")) <= 7, "counted anew"
    # The file cannot be written, which is said once; then it is damaged.
    os.remove(file)
    os.mkdir(file)
    subscribe(consumer.subscription("lost"))
    until(lambda: any("not kept" in line for line in node.lines()), "a word of it")
    time.sleep(2.5)
    assert sum("not kept" in line for line in node.lines()) == 1
    traffic.goes_on()
    node.kill()
    os.rmdir(file)
    with open(file, "w", encoding="ascii") as damaged:
        damaged.write('[{"id": 7}')
    node.start()
    until(lambda: any("cannot be read" in line for line in node.lines()), "a word of it")
    assert shown(node)["subscriptions"] == 0
    location, _ = subscribe(consumer.subscription("last", OTHER))
    until(lambda: "last" in open(file, encoding="utf-8").read(), "the file")
    # Sessions are gone with what they were kept in.
    node.kill()
    for name in os.listdir(f"{node.folder}/state"):
        if not name.startswith("subscriptions"):
            os.remove(f"{node.folder}/state/{name}")
    node.start()
    until(lambda: any("subscriptions of before" in line and "ended=1" in line for line in node.lines()), "its end")
    assert shown(node)["subscriptions"] == 0 and ask("DELETE", location, source=FIRST).status == 404
    return ""


def registered(bench):
    """The NRF is told of the service; slices of the configuration are targets."""
    nrf = bench.nrf("10.100.0.5", 7777)
    consumer = bench.consumer(SECOND)
    slices = '\n[nrf]\nservers = ["http://10.100.0.5:7777"]\n[[nrf.slice]]\nsst = 1\nsd = "0a0203"\ndnns = ["internet"]\n[[nrf.slice]]\nsst = 2\ndnns = ["ims"]\n'
    node = bench.node(lines() + slices)
    bench.smf(node)
    nrf.wait(lambda: nrf.registered, "a registration")
    [service] = nrf.of("PUT")[0].json()["nfServices"]
    assert service["serviceName"] == "nupf-ee" and service["scheme"] == "http", service
    assert service["ipEndPoints"] == [{"ipv4Address": upf.N4, "transport": "TCP", "port": PORT}], service
    subscribe(consumer.subscription("one", snssai={"sst": 1, "sd": "0A0203"}), SECOND)
    subscribe(consumer.subscription("two", snssai={"sst": 2}), SECOND)
    consumer.wait(lambda: len(consumer.items("one")) >= 3, "reports")
    assert {json.dumps(item["snssai"]) for item in consumer.items("one")} == {'{"sst": 1, "sd": "0A0203"}'}
    assert not consumer.items("two"), "of another slice"
    assert refused(consumer.subscription("no", UE, snssai={"sst": 2}), SECOND).cause() == "CONTEXT_NOT_FOUND"
    return ""


class Raw:
    """A client that sends what it likes."""

    def __init__(self, source, port=PORT):
        self.socket = socket.create_connection((upf.N4, port), NEVER_S, (source, 0))

    def send(self, octets):
        """False: it has been sent away."""
        try:
            self.socket.sendall(octets)
            return True
        except OSError:
            return False

    def left(self):
        """It hears nothing more; within a time that tells it from one that is served for ever."""
        self.socket.settimeout(NEVER_S)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True


def hostile(bench):
    """Whoever may ask, and sends what nobody would: one consumer is still served, and N4 and packets go on."""
    consumer = bench.consumer()
    node = bench.node(lines())
    traffic = bench.smf(node)
    subscribe(consumer.subscription("good", UE))
    consumer.wait(lambda: consumer.items("good"), "a report")
    memory = node.memory_kb()
    node.forget_peak()
    start = lab.PREFACE + lab.frame(lab.SETTINGS, 0, 0)
    # A POST that ends its headers; `:authority` is a host.
    head = b"\x83\x86" + b"\x44" + u8(len(SUBSCRIPTIONS)) + SUBSCRIPTIONS.encode() + b"\x41\x01h" + b"\x0f\x10\x10application/json"
    asks = lambda stream, flags=4: lab.frame(lab.HEADERS, flags, stream, head)
    over = threading.Event()

    def flood(octets, first=start):
        while not over.is_set():
            raw = Raw(SECOND)
            if raw.send(first):
                while not over.is_set() and raw.send(octets):
                    raw.socket.settimeout(0.001)
                    try:
                        if not raw.socket.recv(1 << 20):
                            break
                    except TimeoutError:
                        pass
                    except OSError:
                        break
                    raw.socket.settimeout(NEVER_S)
            raw.socket.close()
            time.sleep(0.02)

    def resets():
        while not over.is_set():
            raw = Raw(SECOND)
            raw.send(start)
            for stream in range(1, 4001, 2):
                if not raw.send(asks(stream) + lab.frame(3, 0, stream, struct.pack("!I", 8))):
                    break
            raw.socket.close()
            time.sleep(0.02)

    def silent():
        held = [Raw(SECOND) for _ in range(100)]
        over.wait()
        return len(held)

    def halves():
        while not over.is_set():
            raw = Raw(SECOND)
            raw.send(start + b"".join(asks(stream) + lab.frame(lab.DATA, 0, stream, b'{"subscription": ') for stream in range(1, 40, 2)))
            over.wait(1)
            raw.socket.close()

    attacks = [
        lambda: flood(os.urandom(4096), b""),
        lambda: flood(lab.frame(lab.PING, 0, 0, b"\0" * 8) * 100),
        lambda: flood(lab.frame(lab.SETTINGS, 0, 0) * 100),
        lambda: flood(lab.frame(lab.CONTINUATION, 0, 1, lab.FIELD * 100), start + lab.frame(lab.HEADERS, 0, 1, head)),
        lambda: flood(lab.frame(lab.DATA, 0, 1, b" " * 16384), start + asks(1)),
        lambda: flood(b"GET / HTTP/1.1\r\n" * 100, b""),
        resets,
        silent,
        halves,
    ]
    with concurrent.futures.ThreadPoolExecutor(len(attacks)) as pool:
        running = [pool.submit(attack) for attack in attacks]
        try:
            since = len(consumer.items("good"))
            for number in range(5):
                traffic.goes_on()
                location, _ = subscribe(consumer.subscription(f"more {number}", UE))
                assert ask("DELETE", location, source=FIRST).status == 204
                time.sleep(0.5)
            consumer.wait(lambda: len(consumer.items("good")) > since + 2, "reports meanwhile")
        finally:
            over.set()
        for one in running:
            one.result(2 * NEVER_S)
    grown = max(node.memory_kb(), node.memory_kb("VmHWM") - node.memory_kb("RssFile")) - memory
    assert grown < 2 * GROWTH_KB, f"{grown} kB"

    def is_served():
        # One connection too many is closed, until the UPF has heard that the others have ended.
        try:
            return ask("DELETE", NOBODY, source=SECOND).cause() == "SUBSCRIPTION_NOT_FOUND"
        except ConnectionError:
            return False

    # Nothing of it is left.
    until(is_served, "the attacker to be served again")
    traffic.goes_on()
    return f"{len(attacks)} at once, {grown} kB more"


# Longest first.
PARTS = {part.__name__: part for part in [patience, hostile, targets, volumes, again, changes, reloads, kept, over_tls, bounds, registered, refusals]}


if __name__ == "__main__":
    main(__doc__, PARTS, [FIRST, SECOND, THIRD, STRANGER], Exposed)
