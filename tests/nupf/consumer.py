"""A consumer of Nupf_EventExposure (TS 29.564): it asks by curl, hears notifications with python3-h2, judges each, and misbehaves as it is told."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(1, f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}/nrf")

import nrf as lab
import schema
from nrf import NEVER_S, Nrf

TOLD = "/told"


@dataclasses.dataclass
class Answer:
    """Of turnpiked."""

    status: int
    headers: dict
    body: bytes

    def json(self):
        """The body."""
        return json.loads(self.body)

    def cause(self):
        """Of a refusal, which is judged."""
        assert self.headers.get("content-type") == "application/problem+json", self
        problem = self.json()
        assert not schema.mistakes("ProblemDetails", problem), problem
        assert problem["status"] == self.status, self
        return problem.get("cause")

    def params(self):
        """JSON pointers of a refusal."""
        self.cause()
        return [param["param"] for param in self.json().get("invalidParams", [])]


def ask(method, url, body=None, kind="application/json", source=None, more=()):
    """One request, over HTTP/2; raises ConnectionError where there is no answer. source: address that it comes from."""
    command = ["curl", "-sS", "--max-time", str(NEVER_S), "-X", method, *(["--http2"] if url.startswith("https") else ["--http2-prior-knowledge"])]
    if source:
        command += ["--interface", source]
    octets = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    with tempfile.TemporaryDirectory() as folder:
        if octets is not None:
            command += ["-H", f"content-type: {kind}", "--data-binary", "@-"]
        command += [*more, "-D", f"{folder}/headers", "-o", f"{folder}/body", "-w", "%{http_version} %{http_code}", url]
        done = subprocess.run(command, input=octets, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=2 * NEVER_S, check=False)
        if done.returncode:
            raise ConnectionError(done.stderr.decode())
        version, status = done.stdout.decode().split()
        assert version == "2", done.stdout
        with open(f"{folder}/headers", encoding="ascii") as file:
            headers = dict(line.rstrip().split(": ", 1) for line in file if ": " in line)
        try:
            with open(f"{folder}/body", "rb") as file:
                return Answer(int(status), {name.lower(): value for name, value in headers.items()}, file.read())
        except FileNotFoundError:
            return Answer(int(status), headers, b"")


def events(*kinds, **more):
    """An eventList."""
    kinds = kinds or ["USER_DATA_USAGE_MEASURES"]
    return [{"type": kind, **more} for kind in kinds]


class Consumer(Nrf):
    """One, which takes notifications at its URL."""

    def told_at(self, name=""):
        """For eventNotifyUri."""
        return f"{self.url()}{TOLD}{'/' if name else ''}{name}"

    def subscription(self, correlation, ue=None, period=1, **more):
        """Of a UE, or of any."""
        whom = {"ueIpAddress": {"ipv4Addr": ue}} if ue else {"anyUe": True}
        asked = {
            "eventList": events(),
            "eventNotifyUri": self.told_at(),
            "notifyCorrelationId": correlation,
            "eventReportingMode": {"trigger": "PERIODIC", "repPeriod": period},
            "nfId": "3f1c7a52-0c52-4f0e-9a39-3a0f6a3f5d11",
            **whom,
        }
        return {name: value for name, value in {**asked, **more}.items() if value is not None}

    def notifications(self, correlation):
        """Bodies that were taken of one subscription."""
        taken = [one.json() for one in list(self.requests) if one.status in (200, 204)]
        return [body for body in taken if body.get("correlationId") == correlation]

    def items(self, correlation):
        """Of those."""
        return [item for body in self.notifications(correlation) for item in body["notificationItems"]]

    def volumes(self, correlation):
        """Octets and packets, uplink and downlink, of all that was told."""
        sums = [[0, 0], [0, 0]]
        for item in self.items(correlation):
            volume = item["userDataUsageMeasurements"][0]["volumeMeasurement"]
            for way, name in enumerate(["ul", "dl"]):
                sums[way][0] += int(volume[f"{name}Volume"].removesuffix(" B"))
                sums[way][1] += volume[f"{name}NbOfPackets"]
        return sums

    # In place of the lab NRF's own.

    def _judge(self, request):
        say = request.complaints.append
        headers = request.headers
        if request.method != "POST":
            say("no method of a notification")
        if not request.path.partition("?")[0].startswith(self.prefix + TOLD):
            say("not where it wants to be told")
        if not headers.get("user-agent", "").startswith("UPF"):
            say(f"user-agent {headers.get('user-agent')!r} does not begin with the type of NF (TS 29.500, 5.2.2.2)")
        if headers.get("3gpp-sbi-callback") != "Nupf_EventExposure_Notify":
            say(f"3gpp-sbi-callback {headers.get('3gpp-sbi-callback')!r} (TS 29.500, 5.2.3.2.3)")
        if headers.get("content-type", "").partition(";")[0] != "application/json":
            say(f"content-type {headers.get('content-type')!r}")
        if headers.get("content-length") not in (None, str(len(request.body))):
            say(f"content-length {headers['content-length']} of {len(request.body)} octets")
        try:
            body = request.json()
        except ValueError:
            say("no JSON")
            return
        request.complaints += schema.notification_mistakes(body)

    def right_answer(self, request):
        """204, of a notification without mistakes."""
        return (400, {}, b"") if request.complaints else (204, {}, b"")


__all__ = ["Answer", "Consumer", "ask", "events", "lab"]
