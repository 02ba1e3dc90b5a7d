"""Chromium without a screen, driven by its own driver: WebDriver is JSON over HTTP."""

import base64
import json
import subprocess
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Left": "\ue012", "End": "\ue010"}
NEVER_S = 60

# Run in each page, before its first script runs.
WATCH = """
window.seen = [];
addEventListener("securitypolicyviolation", (e) => seen.push(`policy: ${e.violatedDirective} ${e.blockedURI}`));
addEventListener("error", (e) => seen.push(`error: ${e.message}`));
addEventListener("unhandledrejection", (e) => seen.push(`rejection: ${e.reason}`));
for (const name of ["alert", "confirm", "prompt"]) window[name] = () => seen.push(`dialog: ${name}`);
"""


class Failed(AssertionError):
    """The driver refused."""


class Browser:
    """One window."""

    PORT = 9515

    def __init__(self, folder):
        self.folder = folder
        log = f"{folder}/chromedriver.log"
        command = ["chromedriver", f"--port={self.PORT}", f"--log-path={log}"]
        self.driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.base = f"http://127.0.0.1:{self.PORT}"
        deadline = time.monotonic() + NEVER_S
        while True:
            try:
                self._ask("GET", "/status")
                break
            except (OSError, Failed):
                assert time.monotonic() < deadline, "chromedriver does not answer"
                time.sleep(0.05)
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        arguments += ["--window-size=1280,900", f"--user-data-dir={folder}/chromium", "--disable-background-networking"]
        arguments += ["--no-first-run", "--disable-component-update", "--disable-sync", "--force-color-profile=srgb"]
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments, "binary": "/usr/bin/chromium"},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.base += f"/session/{answer['sessionId']}"
        self.cdp("Page.addScriptToEvaluateOnNewDocument", source=WATCH)

    def _ask(self, method, path, body=None):
        data = json.dumps(body).encode() if body is not None else (b"{}" if method == "POST" else None)
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=NEVER_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise Failed(f"{method} {path}: {error.read().decode()[:2000]}") from None

    def close(self):
        """The window, then the driver."""
        try:
            self._ask("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()

    def cdp(self, command, **parameters):
        """A command of the DevTools protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, address):
        """Loads a page."""
        self._ask("POST", "/url", {"url": address})

    def refresh(self):
        """Loads it anew."""
        self._ask("POST", "/refresh")

    def run(self, script, *arguments):
        """Value that a script returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector="body"):
        """Text to be read there; empty where there is no such element."""
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def await_that(self, what, script, *arguments):
        """Until it returns something true."""
        deadline = time.monotonic() + NEVER_S
        while not (value := self.run(script, *arguments)):
            if time.monotonic() > deadline:
                self.picture(f"{self.folder}/failed.png")
                raise AssertionError(f"not within {NEVER_S} s: {what}\n{self.text()[:3000]}\n{self.run('return window.seen')}")
            time.sleep(0.05)
        return value

    def await_text(self, text, selector="body"):
        """Until it is to be read there."""
        self.await_that(f"{text!r} in {selector}",
                        "return (document.querySelector(arguments[1])?.innerText ?? '').includes(arguments[0])", text, selector)

    def find(self, selector):
        """An element."""
        return self._ask("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        """As a mouse does it."""
        self._ask("POST", f"/element/{self.find(selector)}/click")

    def write(self, selector, text):
        """Into a field, in place of what was there."""
        element = self.find(selector)
        self._ask("POST", f"/element/{element}/clear")
        self._ask("POST", f"/element/{element}/value", {"text": text})

    def press(self, *keys):
        """Keys on whatever has the focus."""
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def resize(self, width, height):
        """Of the page, not the window."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        """`dark` or `light`."""
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, path):
        """Of what is seen."""
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._ask("GET", "/screenshot")))

    def complaints(self):
        """Errors and warnings of the console since the last look, and what the page itself noticed."""
        log = self._ask("POST", "/se/log", {"type": "browser"})
        lines = [f"{line['level']} {line['message']}" for line in log if line["level"] in ("SEVERE", "WARNING")]
        return lines + (self.run("return window.seen.splice(0)") or [])
