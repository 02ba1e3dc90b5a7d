#!/usr/bin/python3
"""The page of REST in a real browser, against a real turnpiked on XDP: each view with no, one and 100 000 sessions, tokens, a restart,
limits, names that are markup, keys, narrow screens.

usage: tests/page/check.py [--turnpiked PATH] [--sessions N]
       tests/page/check.py --pictures FOLDER [--minutes N]    pictures for the README, after so many minutes of traffic
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

import upf
from browser import Browser
from upf import API, FAR_API, TOKEN, Radio, Smf, Upf, build_network, tide

MARK = "TURNPIKE_PAGE_INSIDE"
BEGAN = time.monotonic()
# Names that an SMF may choose; the second turns the direction of text around.
EVIL = "<img src=x onerror=alert(1)>"
TURNED = "\u202egnp.exe<script>alert(2)</script>"
VIEWS = {
    "overview": "Overview",
    "drops": "Lost packets",
    "peers": "SMFs and gNBs",
    "sessions": "Sessions",
    "trace": "Trace",
    "capacities": "Capacities",
}


def say(what):
    """A step that is over."""
    print(f"{time.monotonic() - BEGAN:6.1f} s  {what}", flush=True)


def inside_namespaces():
    """Run again in namespaces of its own: however it ends, the kernel takes down what it has started and made."""
    if MARK in os.environ:
        upf.sh("mount", "-t", "tmpfs", "tmpfs", "/run")
        os.makedirs("/run/tmp")
        tempfile.tempdir = os.environ["TMPDIR"] = "/run/tmp"
        return
    spaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--ipc"]
    # The shell reaps what the browser leaves to it.
    again = ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "bash", "-c", '"$@"; exit $?', "page", sys.executable, *sys.argv]
    sys.exit(subprocess.run(again, env={**os.environ, MARK: "1"}, check=False).returncode)


class Page:
    """The page in the browser, with what holds of each view."""

    def __init__(self, browser):
        self.browser = browser

    def go(self, view):
        """Another view, once it has been drawn with an answer."""
        hash_now = self.browser.run("return location.hash")
        if hash_now != f"#/{view}":
            # The event comes later than the change.
            self.browser.run("delete document.getElementById('main').dataset.answered; location.hash = arguments[0]", f"#/{view}")
        title = VIEWS.get(view.split("?")[0])
        if title:
            self.browser.await_text(title, "h1")
            self.browser.await_that("an answer", "return 'answered' in document.getElementById('main').dataset")

    def has_no_markup_of_others(self):
        """Nothing that a peer sent has become an element, and nothing of it was run."""
        strange = self.browser.run(
            "return [...document.querySelectorAll('img, iframe, object, embed, script, style, base, form[action], [onerror], [style]')]"
            ".filter((e) => !(e.localName === 'script' && e.getAttribute('src') === '/page/app.js')).map((e) => e.outerHTML)"
        )
        assert not strange, strange

    def is_well(self, where):
        """No complaint, no markup of others."""
        complaints = self.browser.complaints()
        assert not complaints, f"{where}: {complaints}"
        self.has_no_markup_of_others()

    def each_view(self, sessions):
        """All of them, wide and narrow."""
        for view in VIEWS:
            self.go(view)
            assert self.browser.run("return document.getElementById('age').textContent.startsWith('Data of')")
            if view in ("drops", "peers", "sessions", "capacities"):
                assert self.browser.run("return document.querySelector('main section div :is(table, p.quiet)')"), view
            if view == "sessions":
                self.browser.await_text(f"{spaced(sessions)} session" if sessions else "There is no session", "main")
            for width in [360, 1280]:
                self.browser.resize(width, 900)
                wide = self.browser.run("return document.documentElement.scrollWidth")
                assert wide <= width, f"{view}: {wide} pixels on a screen of {width}"
            self.is_well(f"{view} with {sessions} sessions")


def spaced(number):
    """As the page groups digits."""
    return f"{number:,}".replace(",", "\u202f")


def tokens(page):
    """Without a token nothing is shown; a wrong one is told of."""
    browser = page.browser
    browser.open(f"http://{API}/")
    browser.await_text("wants the token", "#token-dialog")
    assert "10.100.0.1" not in browser.run("return document.getElementById('node').textContent")
    browser.write("#token", "wrong-token-of-somebody")
    browser.press("Enter")
    browser.await_text("does not take this token", "#token-dialog")
    browser.write("#token", TOKEN)
    browser.press("Enter")
    browser.await_text("10.100.0.1", "#node")
    assert not browser.run("return document.getElementById('token-dialog').open")
    address = browser.run("return location.href + document.cookie + JSON.stringify(localStorage)")
    assert TOKEN not in address, address
    refused = [line for line in browser.complaints() if "401" not in line]
    assert not refused, refused


def keyboard(page):
    """Each view by its key; the skip link; values of a picture."""
    browser = page.browser
    page.go("overview")
    for key, title in [("d", "Lost packets"), ("p", "SMFs and gNBs"), ("t", "Trace"), ("c", "Capacities"), ("o", "Overview")]:
        browser.press(key)
        browser.await_text(title, "h1")
    browser.press("?")
    browser.await_text("Search for sessions", "#help")
    browser.press("Escape")
    browser.press("/")
    browser.await_that("the search has the focus", "return document.activeElement.id === 'search'")
    browser.press("d")
    assert browser.run("return document.getElementById('search').value") == "d", "keys go into fields"
    page.go("overview")
    browser.refresh()
    browser.await_text("10.100.0.1", "#node")
    browser.press("Tab")
    assert browser.run("return document.activeElement.id") == "skip"
    browser.press("Enter")
    assert browser.run("return document.activeElement.id") == "main"
    browser.await_that("a sample", "return document.querySelector('figure path.series')")
    browser.run("document.querySelector('figure [tabindex]').focus()")
    browser.press("End", "Left")
    browser.await_that("values are read", "return /from users [\\d.]+ /.test(document.querySelector('.readout').textContent)")
    label = browser.run("return document.querySelector('figure [role=img]').getAttribute('aria-label')")
    assert "throughput: now from users" in label, label
    page.is_well("keys")


def hostile(page):
    """Names that are markup are told as they are."""
    browser = page.browser
    page.go("peers")
    browser.await_text(EVIL, "main")
    browser.await_text("gnp.exe<script>alert(2)</script>", "main")
    browser.await_text("\u27e8U+202E\u27e9", "main")
    page.is_well("names that are markup")
    for text in [EVIL, TURNED]:
        query = browser.run("return new URLSearchParams({by: 'network_instance', text: arguments[0]}).toString()", text)
        page.go(f"sessions?{query}")
        browser.await_text("None has it", "main")
    page.go(f"session/{EVIL}".replace("<", "%3C").replace(">", "%3E").replace(" ", "%20"))
    browser.await_text("is not a SEID", "#banner")
    complaints = [line for line in browser.complaints() if "400" not in line]
    assert not complaints, complaints
    page.has_no_markup_of_others()


def one_session(page, daemon, teid):
    """The session by each of its marks, its rates, and a trace of it."""
    browser = page.browser
    seid = daemon.get("sessions")["sessions"][0]["seid"]
    for by, text in [("ue", "10.60.0.2"), ("teid", f"{teid:x}"), ("network_instance", "internet")]:
        page.go("sessions")
        browser.run("document.getElementById('by').value = arguments[0]", by)
        browser.write("#search", text)
        browser.press("Enter")
        browser.await_text("1 found here", "main")
        browser.await_text(seid, "main")
    page.go("sessions")
    browser.run("document.getElementById('by').value = 'seid'")
    browser.write("#search", seid)
    browser.press("Enter")
    browser.await_text(f"Session {seid}", "h1")
    browser.await_text("100 Mbit/s", "main")
    browser.await_text("VOLUM", "main")
    browser.press("r")
    browser.await_that("a rate", "return /from the UE [\\d.]+ [kM]bit/.test(document.querySelector('main figcaption').textContent)")
    page.is_well("one session")
    page.go(f"trace?by=ue&text=10.60.0.2")
    browser.await_text(f"following session {seid}", "main")
    browser.await_text("forwarded", "main tbody")
    page.go("overview")
    # Leaving the view ends its trace: there are sixteen at a time.
    for _ in range(20):
        page.go("trace?by=ue&text=10.60.0.2")
        browser.await_text("forwarded", "main tbody")
        page.go("drops")
    browser.await_text("unknown_teid", "main")
    browser.await_text("gtpu.restart_grace_s", "main")
    page.is_well("traces")


def restart(page, daemon):
    """While the page is open: it says so, shows what it had with its age, and goes on by itself."""
    browser = page.browser
    page.go("overview")
    daemon.stop()
    browser.await_text("does not answer", "#banner")
    browser.await_text("ago", "#banner")
    browser.await_text("when it was last asked", "#health")
    daemon.start()
    browser.await_text("started anew at", "#banner")
    browser.await_text("1 session taken over", "main")
    browser.click("#understood")
    browser.await_that("the banner is gone", "return document.getElementById('banner').hidden")
    complaints = [line for line in browser.complaints() if "ERR_CONNECTION" not in line and "ERR_EMPTY" not in line and "503" not in line]
    assert not complaints, complaints


def limits(page):
    """A client that asks too often is told, and asks less."""
    browser = page.browser
    browser.open(f"http://{FAR_API}/")
    browser.await_text("wants the token", "#token-dialog")
    browser.write("#token", TOKEN)
    browser.press("Enter")
    browser.await_that("all is told, or too much was asked", "return document.getElementById('node').textContent || !document.getElementById('banner').hidden")
    # The page goes on by itself later, so that it is looked at after each question.
    for _ in range(200):
        browser.press("r")
        if "asked too often" in browser.text("#banner"):
            break
    else:
        raise AssertionError("no answer 429")
    browser.await_that("it asks less", "return / each (\\d+) s/.exec(document.getElementById('age').textContent)?.[1] > 5")
    browser.complaints()
    browser.open(f"http://{API}/")
    browser.await_text("10.100.0.1", "#node")


def many_sessions(page, daemon, smf, count):
    """Pages of many, and a search through all."""
    browser = page.browser
    began = time.monotonic()
    refused, _ = smf.establish(1, count - 1)
    assert not refused, refused[:10]
    say(f"{count} sessions, established in {time.monotonic() - began:.1f} s")
    page.each_view(count)
    page.go("sessions")
    first = browser.text("main tbody code")
    browser.click("main a[href*=after]")
    browser.await_that("the next page", "return (document.querySelector('main tbody code')?.textContent ?? arguments[0]) !== arguments[0]", first)
    number = count - 1
    ue = f"10.{60 + (number + 2 >> 16)}.{number + 2 >> 8 & 255}.{number + 2 & 255}"
    page.go(f"sessions?by=ue&text={ue}")
    for _ in range(20):
        if browser.run("return document.querySelector('main td')"):
            break
        page.go(browser.run("return document.querySelector('main a[href*=after]').getAttribute('href')").removeprefix("#/"))
    browser.await_text(ue, "main td + td")
    page.is_well("many sessions")
    assert daemon.process.poll() is None


def pictures(browser, folder, smf, radio, minutes):
    """Of traffic as on a day, compressed."""
    os.makedirs(folder, exist_ok=True)
    page = Page(browser)
    refused, _ = smf.establish(1, 400)
    assert not refused, refused[:5]
    radio.rate, radio.lost_too = tide, True
    end, wave = time.monotonic() + 60 * minutes, 401
    while time.monotonic() < end:
        time.sleep(min(20, max(0.1, end - time.monotonic())))
        smf.establish(wave, 12)
        wave += 12
    browser.resize(1280, 960)
    for scheme, view in [("dark", "overview"), ("light", "drops")]:
        browser.scheme(scheme)
        page.go(view)
        browser.press("r")
        time.sleep(3)
        browser.picture(f"{folder}/page-{view}-{scheme}.png")
        say(f"{folder}/page-{view}-{scheme}.png, {os.path.getsize(f'{folder}/page-{view}-{scheme}.png')} octets")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    parser.add_argument("--turnpiked", default=os.path.join(root, "target/debug/turnpiked"))
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--pictures", metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=15)
    arguments = parser.parse_args()
    inside_namespaces()
    with tempfile.TemporaryDirectory() as folder:
        build_network()
        daemon = Upf(os.path.abspath(arguments.turnpiked), folder)
        daemon.start()
        browser = Browser(folder)
        try:
            page = Page(browser)
            tokens(page)
            say("tokens")
            if not arguments.pictures:
                page.each_view(0)
                say("each view without sessions")
            smf = Smf("smf1.example")
            cause = smf.associate()
            assert cause == upf.ACCEPTED, f"association refused: {cause}"
            radio = Radio()
            refused, radio.teid = smf.establish(0, 1)
            assert not refused, f"{refused}\n{daemon.log()}"
            if arguments.pictures:
                pictures(browser, os.path.abspath(arguments.pictures), smf, radio, arguments.minutes)
                return
            radio.rate, radio.lost_too = lambda _: 100, True
            # Some names that are markup are refused, others are an SMF's to choose.
            assert Smf(EVIL, "10.100.0.3").associate() != upf.ACCEPTED
            assert smf.establish(500_000, 1, instance=EVIL)[0]
            for application in [EVIL, TURNED]:
                assert smf.provision(application, "permit out ip from 192.0.2.7 to assigned") == upf.ACCEPTED
            page.each_view(1)
            say("each view with a session")
            hostile(page)
            say("names that are markup")
            one_session(page, daemon, radio.teid)
            say("one session, traces")
            keyboard(page)
            say("keys")
            restart(page, daemon)
            say("a restart")
            limits(page)
            say("limits of clients")
            many_sessions(page, daemon, smf, arguments.sessions)
            say("each view with many sessions")
            browser.scheme("dark")
            page.each_view(arguments.sessions)
            say("and in the dark")
        except BaseException:
            print(daemon.log(), file=sys.stderr)
            raise
        finally:
            browser.close()
            if daemon.process.poll() is None:
                daemon.stop()
    assert radio.back or arguments.pictures, "no packet came back"


if __name__ == "__main__":
    main()
