#!/usr/bin/python3
"""The documentation as far as it can be judged without a reader: links lead to files and headings that are there, commands, options, keys
of the configuration and targets of make exist, and what the tutorial and the how-tos tell to type does what they say.

  check.py                              links, keys and targets: no root, nothing built
  check.py --programs DIR               also subcommands and options, by --help, and whole configurations, by `turnpiked check-config`
  check.py --programs DIR --run         also runs what is marked to be run, in namespaces of its own, beside the demonstration of the lab
  check.py --self-test [--programs DIR] shows that mistakes are found
  check.py --programs DIR --picture SVG what `turnpike top --once` says beside that demonstration, for the README

A fence says what its lines are for:

  ```console   lines that begin with `$ ` are run; what follows them is compared with what they say: a number stands for any number but
               0, and 0 for 0; white space for white space, `…` for anything in a line, and alone in its line for any lines
  ```sh        run; must not fail
  ```text      of another machine or for people, as are fences without a word: looked at, not run. The checker counts them

What is asked of `turnpike` in the middle of a sentence there, in docs/commands.md and in the README is run once too, with an address and a SEID of
the lab in the place of ADDRESS and SEID; `top` with --once, `trace` with --count 1. Its exit code has to be 0.

Of a page all that is run is run by one shell, so that variables stay: in the UPF's namespace of the lab, or, in the tutorial, beside it.
A line that begins with `make demo` is what the checker has done by then, with the programs that it was given.
"""

import argparse
import html
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
TUTORIAL = "docs/tutorial.md"
EXAMPLE = "deploy/turnpiked.example.toml"
RULES = "deploy/monitoring/turnpike.rules.yml"
# Only says "never".
NEVER_S = 120
FENCE = re.compile(r"^( *)(```+)(.*)$")
WORDS = {"console", "sh", "text", "", "toml", "yaml", "rust", "c", "json"}
RUN = {"console", "sh"}
COMMANDS = {"console", "sh", "text", ""}
PROGRAMS = {"turnpike": "turnpike", "turnpiked": "turnpiked", "lab": "lab", "turnpike-lab": "lab"}
# Tables of the configuration that are files of the same name, too.
SUFFIXES = (".json", ".h", ".rs", ".toml")
# Pages that name values of the chart, some of which look like keys.
OF_THE_CHART = ("docs/howto/kubernetes.md", "deploy/helm/")
IGNORED = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
FOLDERS = ("docs/", "scripts/", "deploy/", "tests/", "crates/", "datapath/", "benches/", "debian/", ".ci/", ".github/")


class Fence:
    """Lines between marks, where they begin, and what they are for."""

    def __init__(self, page, line, word):
        self.page, self.line, self.word, self.lines = page, line, word, []

    def __str__(self):
        return f"{self.page}:{self.line}"

    def commands(self):
        """Lines that are typed; those that end with a backslash go on."""
        lines = self.lines
        if self.word == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        return re.sub(r"\\\n\s*", " ", "\n".join(lines)).split("\n")


def split(page, text):
    """Fences of a page, and its text without them, line by line."""
    fences, prose, open_mark = [], [], None
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if found and open_mark is None:
            open_mark = found[1] + found[2]
            fences.append(Fence(page, number, found[3].strip()))
            prose.append("")
        elif open_mark is not None and line.rstrip() == open_mark:
            open_mark = None
            prose.append("")
        elif open_mark is not None:
            fences[-1].lines.append(line.removeprefix(" " * (len(open_mark) - len(open_mark.lstrip()))))
            prose.append("")
        else:
            prose.append(line)
    return fences, prose, open_mark is not None


def slug(heading):
    """The anchor that hosts of repositories make of a heading."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text):
    found, seen = set(), {}
    _, prose, _ = split("", text)
    for line in prose:
        if heading := re.match(r"#+ (.*)", line):
            name = slug(heading[1])
            seen[name] = seen.get(name, -1) + 1
            found.add(name if seen[name] == 0 else f"{name}-{seen[name]}")
        found.update(re.findall(r'<a (?:id|name)="([^"]+)"', line))
    return found


def links(page, prose, texts, wrong):
    """Of files of the tree, and of headings in pages."""
    for number, line in enumerate(prose, 1):
        line = re.sub(r"`[^`]*`", "``", line)
        for target in re.findall(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"", line):
            target = "".join(target)
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            to = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if to not in texts and not (ROOT / to).exists():
                wrong(f"{page}:{number}: {target} leads nowhere")
            elif anchor and to.endswith(".md") and anchor not in anchors(texts[to]):
                wrong(f"{page}:{number}: {to} has no heading #{anchor}")


def paths(page, prose, wrong):
    """Files of the tree that are named as code."""
    for number, line in enumerate(prose, 1):
        for name in re.findall(r"`([^`\s]+)`", line):
            name = name.split("::")[0].rstrip("/")
            if name.startswith(FOLDERS) and re.fullmatch(r"[\w./-]+", name) and not re.search(r"[A-Z]{4}", pathlib.Path(name).stem):
                # Of a crate that the text is about.
                in_crate = name.startswith("tests/") and any((ROOT / "crates").glob(f"*/{name}"))
                if not (ROOT / name).exists() and not in_crate and f"/{name}" not in IGNORED:
                    wrong(f"{page}:{number}: there is no {name}")


def keys_of(value, at=""):
    """Paths of all keys: those of a list of tables as of one table."""
    if isinstance(value, dict):
        for key, below in value.items():
            path = f"{at}.{key}" if at else key
            yield path
            yield from keys_of(below, path)
    elif isinstance(value, list):
        for below in value:
            yield from keys_of(below, at)


def known_keys(example):
    """All of the example, those that stand behind a comment mark too."""
    lines, tables = [], []
    for line in example.splitlines():
        if table := re.match(r"(?:# )?(\[\[?[\w.]+\]\]?)$", line):
            lines.append(table[1])
            tables.append(table[1])
        elif key := re.match(r"(?:# )?(\w+) = ", line):
            lines.append(f"{key[1]} = 0")
    known, table = set(), ""
    for line in lines:
        if line.startswith("["):
            table = line.strip("[]")
            known.add(table)
            known.update(table.split(".")[:1])
        else:
            known.add(f"{table}.{line.split()[0]}")
    return known


def toml(fence, known, wrong):
    """Keys that the configuration has; the whole of it, where it is one."""
    try:
        config = tomllib.loads("\n".join(fence.lines))
    except tomllib.TOMLDecodeError as error:
        wrong(f"{fence}: {error}")
        return None
    for key in keys_of(config):
        if key not in known:
            wrong(f"{fence}: there is no key {key}")
    return config if {"node", "n4", "interface", "network_instance"} <= set(config) else None


def named_keys(page, prose, known, wrong):
    """Keys that are named as code: `table.key`."""
    tables, header = {key for key in known if "." not in key}, ""
    for number, line in enumerate(prose, 1):
        # Keys of others stand in a column of their own.
        header = (header or line) if line.startswith("|") else ""
        if header.startswith("| There |"):
            line = line.partition("|")[2].partition("|")[2]
        for name in re.findall(r"`([a-z0-9_]+(?:\.[a-z0-9_]+)+)(?: = [^`]*)?`", line):
            if name.split(".")[0] in tables and name not in known and not name.endswith(SUFFIXES):
                wrong(f"{page}:{number}: there is no key {name}")


def calls(command):
    """Programs of ours in a line, each with its words: at its beginning, behind a pipe, or behind a program that starts another."""
    command = re.sub(r"(^|\s)#( .*)?$", "", command)
    for part in re.split(r"\s*(?:\|\|?|&&|;|\$\(|\bthen\b)\s*", command):
        words = part.strip(" ()&").split()
        while words and (re.match(r"\w+=", words[0]) or words[0] in {"sudo", "exec", "time", "watch", "upf"}):
            words = words[1:]
        if words[:3] == ["ip", "netns", "exec"]:
            words = words[4:]
        elif words and words[0] in {"podman", "kubectl"} and "exec" in words:
            words = words[words.index("--") + 1 :] if "--" in words else words[words.index("exec") + 2 :]
        if words and (name := pathlib.Path(words[0]).name) in PROGRAMS:
            yield name, words[1:]


# For packages; --help does not list it.
HIDDEN = {"documents"}


class Help:
    """Subcommands and options, as --help has them."""

    def __init__(self, folder):
        self.folder, self.said = pathlib.Path(folder), {}

    def text(self, *words):
        if words not in self.said:
            command = [self.folder / words[0], *words[1:], "--help"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=NEVER_S)
            self.said[words] = done.stdout if done.returncode == 0 else ""
        return self.said[words]

    def judge(self, name, words, wrong):
        """One call."""
        below, words = [PROGRAMS[name]], list(words)
        while words:
            word = words.pop(0).strip("'\"").removesuffix(",")
            text = self.text(*below)
            listed = re.findall(r"^  ([a-z][a-z-]*)(?:  |$)", text.partition("Commands:")[2], re.M)
            if word.startswith("--"):
                word, _, value = word.partition("=")
                if word not in {"--help", "--version"} and not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text):
                    wrong(f"`{' '.join(below)}` has no option {word}")
                if not value and re.search(rf"{re.escape(word)} <", text) and words:
                    words.pop(0)
            elif word in {"-h", "-V"} or word[:1] in "<>&":
                return
            elif word in listed or word in HIDDEN:
                below.append(word)
                if below[1:] == ["help"]:
                    return
            elif listed and not re.search(r"[A-Z]|…", word):
                wrong(f"`{' '.join(below)}` has no subcommand {word}")
                return


def makes(command, targets, wrong):
    for words in re.findall(r"(?:^|[|&;(]\s*)make ((?:[\w=$./-]+ ?)+)", command):
        words = words.split()
        if "-C" in words:
            continue
        for word in words:
            if "=" not in word and not word.startswith("-") and word not in targets:
                wrong(f"there is no target {word} of make")


def check(texts, programs=None):
    """Mistakes in these pages."""
    said = []
    known = known_keys(texts[EXAMPLE])
    targets = set(re.findall(r"^([a-z][\w-]*)(?: [\w-]+)*:", texts["Makefile"], re.M))
    for line in re.findall(r"^([a-z][\w -]*):", texts["Makefile"], re.M):
        targets.update(line.split())
    alerts = set(re.findall(r"alert: (\w+)", texts[RULES]))
    help_of = Help(programs) if programs else None
    for page in [name for name in texts if name.endswith(".md")]:
        fences, prose, is_open = split(page, texts[page])
        if is_open:
            said.append(f"{page}: a fence has no end")
        links(page, prose, texts, said.append)
        if page.startswith(("docs/acceptance", "CHANGELOG")):
            continue
        paths(page, prose, said.append)
        if not page.startswith(OF_THE_CHART):
            named_keys(page, prose, known, said.append)
        for number, line in enumerate(prose, 1):
            for alert in set(re.findall(r"`(Turnpike[A-Z]\w*)`", line)) - alerts:
                said.append(f"{page}:{number}: there is no alert {alert}")
            for code in re.findall(r"`([^`]+)`", line):
                makes(code, targets, lambda text, at=f"{page}:{number}": said.append(f"{at}: {text}"))
                if help_of and re.match(r"(turnpiked?|lab|turnpike-lab) [a-z-]", code):
                    for name, words in calls(code):
                        help_of.judge(name, words, lambda text, at=f"{page}:{number}": said.append(f"{at}: {text}"))
        for fence in fences:
            wrong = lambda text, at=fence: said.append(f"{at}: {text}")
            if fence.word not in WORDS:
                wrong(f"nobody knows what {fence.word!r} is for")
            if fence.word == "toml":
                config = toml(fence, known, said.append)
                if config and help_of and os.geteuid() == 0:
                    taken(fence, config, programs, wrong)
            if fence.word not in COMMANDS:
                continue
            if fence.word == "console" and not any(line.startswith("$ ") for line in fence.lines):
                wrong("nothing is run")
            for command in fence.commands():
                makes(command, targets, wrong)
                for name, words in calls(command) if help_of else ():
                    help_of.judge(name, words, wrong)
    return said


def taken(fence, config, programs, wrong):
    """`turnpiked check-config` in a network namespace that has its interfaces and addresses."""
    script = ["set -e", "ip link set lo up"]
    listens = [config["n4"][key] for key in ("listen", "listen_also") if key in config["n4"]]
    script += [f"ip addr add {listen.rsplit(':', 1)[0].strip('[]')} dev lo" for listen in listens]
    for interface in config["interface"]:
        script += [f"ip link add {interface['name']} type veth peer name far-{interface['name']}", f"ip link set {interface['name']} up"]
        script += [f"ip link set far-{interface['name']} up"]
        script += [f"ip addr add {address} dev {interface['name']}" + (" nodad" if ":" in address else "") for address in interface.get("addresses", [])]
    kind = config.get("datapath", {}).get("kind", "xdp")
    if kind != "xdp":
        return
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write("\n".join(fence.lines))
        file.flush()
        script.append(f"exec {programs}/turnpiked check-config {file.name}")
        command = ["unshare", "--net", "--mount", "bash", "-c", "mount -t sysfs none /sys\nmount -t bpf bpf /sys/fs/bpf || :\n" + "\n".join(script)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=NEVER_S)
    if done.returncode:
        wrong(f"check-config: {done.stdout}{done.stderr}")


# --- Running.


def pattern(lines):
    """Expected output as an expression."""
    parts = []
    for line in lines:
        if line.strip() == "…":
            parts.append(r"(?:[^\n]*\n)*?")
            continue
        text = ""
        for word in re.split(r"(…|\s+|\d[\d.,:]*)", line.strip()):
            if word == "…":
                text += r"[^\n]*"
            elif word.isspace():
                text += r"[ \t]+"
            elif word == "0":
                text += r"0(?![\d.,:])"
            elif re.match(r"\d", word):
                text += r"(?!0(?![\d.,:]))\d[\d.,:]*"
            else:
                text += re.escape(word)
        parts.append(rf"[ \t]*{text}[ \t]*\n")
    return re.compile("".join(parts))


def steps(fence):
    """Commands with what they are to say, None: anything."""
    if fence.word == "sh":
        yield "\n".join(fence.lines), None
        return
    command, expected = None, []
    for line in fence.lines:
        if line.startswith("$ "):
            if command is not None:
                yield command, expected or None
            command, expected = line[2:], []
        elif command is not None and command.endswith("\\") and not expected:
            command += "\n" + line
        else:
            expected.append(line)
    if command is not None:
        yield command, expected or None


class Shell:
    """One shell of a page, which is told one step after the other."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=ROOT
        )

    def run(self, command):
        """Exit code, and what it said."""
        mark = f"--- step over {id(command)}"
        # A process that outlives its step would hold a pipe.
        # Nothing that is run may read what the shell is told.
        self.process.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '%s %s\\n' '{mark}' $?\n")
        self.process.stdin.flush()
        timer = threading.Timer(NEVER_S, self.process.kill)
        timer.start()
        said = []
        for line in self.process.stdout:
            before, found, code = line.partition(mark)
            if found:
                timer.cancel()
                return int(code), "".join(said) + (before + "\n" if before else "")
            said.append(line)
        timer.cancel()
        return None, "".join(said)

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def run_page(page, fences, shell, wrong):
    """How many commands were run."""
    count = 0
    for fence in fences:
        if fence.word not in RUN:
            continue
        for command, expected in steps(fence):
            if command.startswith("make demo"):
                continue
            count += 1
            code, said = shell.run(command)
            if code is None:
                wrong(f"{fence}: the shell ended, or hangs, at `{command}`: {said}")
                return count
            if code:
                wrong(f"{fence}: `{command}` ends with {code}: {said}")
            if expected is not None and not pattern(expected).fullmatch(said if said.endswith("\n") else said + "\n"):
                wrong(f"{fence}: `{command}` does not say\n{chr(10).join(expected)}\nbut\n{said}")
    return count


# Subcommands that change something, or that ask nobody.
ACTS = {"reload", "log-level", "completions"}
# Of which a sentence names the subcommand alone.
NAMES = {"turnpike trace", "turnpike qos", "turnpike session", "turnpike config diff"}


def questions(texts):
    """Questions to `turnpike` within sentences, with the pages that ask it."""
    asked = {}
    for page in texts:
        if page not in {TUTORIAL, "docs/commands.md", "README.md"} and not page.startswith("docs/howto/"):
            continue
        for line in split(page, texts[page])[1]:
            for code in re.findall(r"`(turnpike [a-z][^`]*)`", line):
                if code.split()[1] not in ACTS and code not in NAMES:
                    asked.setdefault(code, page)
    return asked


def ask(texts, upf, environment, wrong):
    """How many questions were asked, and how many have a place for something that the lab has not."""
    inside = ["ip", "netns", "exec", upf]
    sessions = subprocess.run([*inside, "turnpike", "sessions"], capture_output=True, text=True, check=True, env=environment).stdout
    here = {"ADDRESS": "10.60.0.1", "SEID": sessions.splitlines()[1].split()[0], "FILE": "/etc/turnpike/turnpiked.toml"}
    count, left = 0, 0
    for code, page in questions(texts).items():
        words = [here.get(word, word) for word in code.split()]
        if any(re.search(r"[A-Z]{2}|…", word) for word in words):
            left += 1
            continue
        words += ["--once"] * (words[1] == "top" and "--once" not in words) + ["--count", "1"] * (words[1] == "trace" and "--count" not in words)
        done = subprocess.run([*inside, *words], capture_output=True, text=True, check=False, env=environment, timeout=NEVER_S)
        count += 1
        if done.returncode:
            wrong(f"{page}: `{code}` ends with {done.returncode}: {done.stderr}")
    return count, left


def demonstration(programs, environment):
    """The lab, once its network stays up; and the UPF's namespace."""
    lab = subprocess.Popen([programs / "lab", "demo", "--keep"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    said = []
    for line in lab.stdout:
        said.append(line)
        if found := re.search(r"ip netns exec (\S+-upf) \S+ sessions", line):
            threading.Thread(target=lab.stdout.read, daemon=True).start()
            return lab, found[1]
    sys.exit("the demonstration failed:\n" + "".join(said))


def run_all(texts, programs):
    """Everything that is marked, beside one demonstration."""
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "COLUMNS": "160"}
    lab, upf = demonstration(programs, environment)
    files = pathlib.Path(f"/run/turnpike-lab/{upf.removesuffix('upf')}files")
    pathlib.Path("/run/turnpike").symlink_to(files)
    pathlib.Path("/etc/turnpike").mkdir(exist_ok=True)
    shutil.copy(files / "turnpiked.toml", "/etc/turnpike/turnpiked.toml")
    said, ran, shown = [], 0, 0
    # Somebody to look at.
    ping = subprocess.Popen(
        ["ip", "netns", "exec", upf.removesuffix("upf") + "ue1", "ping", "-i", "0.2", "10.200.0.1"], stdout=subprocess.DEVNULL, env=environment
    )
    try:
        for page in sorted((name for name in texts if name == TUTORIAL or name.startswith("docs/howto/")), key=lambda name: (name != TUTORIAL, name)):
            fences, _, _ = split(page, texts[page])
            not_run = [fence for fence in fences if fence.word in COMMANDS - RUN]
            shown += len(not_run)
            count = 0
            if any(fence.word in RUN for fence in fences):
                inside = [] if page == TUTORIAL else ["ip", "netns", "exec", upf]
                with tempfile.TemporaryDirectory() as folder:
                    shell = Shell([*inside, "bash"], environment | {"TMPDIR": folder})
                    count = run_page(page, fences, shell, said.append)
                    shell.end()
            ran += count
            print(f"{page}: {count} commands run, {len(not_run)} fences only shown")
        asked, not_asked = ask(texts, upf, environment, said.append)
        # Somebody else may not have ended it.
        if lab.poll() is not None:
            said.append("the lab has ended before its time")
    finally:
        ping.kill()
        ping.wait()
        lab.send_signal(signal.SIGINT)
        lab.wait(NEVER_S)
    if left := subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout:
        said.append(f"namespaces are left: {left}")
    if not ran:
        said.append("nothing was run")
    print(f"documentation: {ran} commands run, {shown} fences only shown; {asked} questions within sentences asked, {not_asked} not")
    return said


def picture(programs, to):
    """`turnpike top --once`, as it is typed, while users of the demonstration upload and download."""
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    lab, upf = demonstration(programs, environment)
    inside = lambda role: ["ip", "netns", "exec", upf.removesuffix("upf") + role]
    users = [(1, "10M", []), (2, "4M", []), (3, "30M", ["-R"]), (6, "2M", []), (7, "18M", ["-R"]), (8, "6M", ["-R"])]
    running = []
    try:
        for at, (ue, rate, way) in enumerate(users):
            command = ["iperf3", "-u", "-b", rate, "-l", "1200", "-t", "20", "-c", "10.200.0.1", "-p", str(5201 + at), *way]
            running.append(subprocess.Popen([*inside(f"ue{ue}"), *command], stdout=subprocess.DEVNULL, env=environment))
        # Somebody asks for phones that are not there.
        command = ["ping", "-q", "-i", "0.1", "10.60.99.99"]
        running.append(subprocess.Popen([*inside("dn"), *command], stdout=subprocess.DEVNULL, env=environment))
        time.sleep(4)
        command = [*inside("upf"), "turnpike", "top", "--once", "--limit", "6"]
        said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=NEVER_S).stdout
    finally:
        for process in running:
            process.kill()
            process.wait()
        lab.send_signal(signal.SIGINT)
        lab.wait(NEVER_S)
    lines = ["# turnpike top --once --limit 6", *said.rstrip("\n").split("\n")]
    width, height = 24 + 8.43 * max(map(len, lines)), 28 + 18 * len(lines)
    text = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}">']
    text.append("<title>turnpike top beside the demonstration of the lab</title>")
    text.append('<rect width="100%" height="100%" rx="6" fill="#1d2126"/>')
    text.append('<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" fill="#d7dce2">')
    for at, line in enumerate(lines):
        ink = ' fill="#7fb3e6"' if at == 0 or re.match(r"[A-Z ]+[A-Z]{2}|          IN", line) else ""
        text.append(f'<text x="12" y="{26 + 18 * at}" textLength="{8.43 * len(line):.1f}"{ink}>{html.escape(line).replace(" ", "&#160;")}</text>' if line else "")
    to.write_text("\n".join(filter(None, [*text, "</g>", "</svg>"])) + "\n", encoding="utf-8")
    print(f"{to}: {len(lines)} lines")


# --- The checker itself.

MISTAKES = [
    (TUTORIAL, "](", "](nowhere.md) [", "leads nowhere", False),
    ("docs/howto/first-day-in-production.md", "](", "](../limits.md#nothing) [", "has no heading #nothing", False),
    ("README.md", "top.svg", "tops.svg", "leads nowhere", False),
    (TUTORIAL, "make demo", "make dmeo", "no target dmeo", False),
    ("docs/howto/open5gs.md", "role = ", "rule = ", "no key interface.rule", False),
    ("docs/howto/nics-and-tuning.md", "`datapath.cpus`", "`datapath.cpu`", "no key datapath.cpu", False),
    ("docs/howto/capture-and-trace.md", "```console", "```consol", "nobody knows what 'consol' is for", False),
    ("docs/testing.md", "`tests/monitoring/check.py`", "`tests/monitoring/chek.py`", "there is no tests/monitoring/chek.py", False),
    ("docs/howto/first-day-in-production.md", "`TurnpikeDown`", "`TurnpikeDwon`", "no alert TurnpikeDwon", False),
    (TUTORIAL, "turnpike status", "turnpike stauts", "no subcommand stauts", True),
    ("docs/howto/capture-and-trace.md", "--count", "--cuont", "no option --cuont", True),
    ("docs/howto/open5gs.md", "\"10.3.0.1\"]", "\"10.3.0.999\"]", "check-config", True),
]
# Output that is expected, what is said, and whether that will do.
OUTPUTS = [
    (["a 12 b"], "a  7 b\n", True),
    (["a 12 b"], "a x b\n", False),
    (["a 12.5 ms", "…", "end"], "a 3.1 ms\nmore\nand more\nend\n", True),
    (["a … z"], "a b c z\n", True),
    (["a … z"], "a b c\n", False),
    (["10.60.0.1"], "10.60.0.2\n", True),
    (["one"], "one\ntwo\n", False),
    (["3 sent, 0% lost"], "4 sent, 0% lost\n", True),
    (["3 sent, 0% lost"], "4 sent, 100% lost\n", False),
    (["3 sent"], "0 sent\n", False),
    (["0.5 s"], "0.0 s\n", True),
    (["…", "two"], "one\ntwo\n", True),
]


def self_test(texts, programs):
    found = 0
    for name, right, mistake, word, is_of_programs in MISTAKES:
        assert right in texts[name], f"{name} has no {right!r}"
        if is_of_programs and not programs:
            continue
        said = "\n".join(check(texts | {name: texts[name].replace(right, mistake, 1)}, programs))
        assert word in said, f"{name} with {mistake!r}: {said or 'nothing'}"
        found += 1
    for expected, said, is_right in OUTPUTS:
        assert bool(pattern(expected).fullmatch(said)) == is_right, f"{expected} of {said!r}"
    planted = "```console\n$ echo one\ntwo\n$ false\n$ echo 7 packets\n1 packets\n```\n```text\n$ false\n```\n```sh\nx=1; echo $x\n```\n"
    wrong, shell = [], Shell(["bash"], os.environ)
    count = run_page("planted", split("planted", planted)[0], shell, wrong.append)
    shell.end()
    assert count == 4 and len(wrong) == 2, wrong
    print(f"{found} mistakes are found, of what is run too")


def main():
    options = argparse.ArgumentParser(description="Judges the documentation.")
    options.add_argument("--programs", type=pathlib.Path, metavar="DIR", help="folder of turnpiked, turnpike and lab")
    options.add_argument("--run", action="store_true", help="run what is marked; wants root")
    options.add_argument("--picture", type=pathlib.Path, metavar="SVG", help="draw what `turnpike top` says; wants root")
    options.add_argument("--self-test", action="store_true", help="show that mistakes are found")
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = options.parse_args()
    programs = options.programs.resolve() if options.programs else None
    for name in set(PROGRAMS.values()) if programs else ():
        if not os.access(programs / name, os.X_OK):
            sys.exit(f"{programs} has no {name}")
    if (options.run or options.picture) and not options.inside:
        if not programs or os.geteuid():
            sys.exit("--run and --picture want --programs, and root")
        # Names of namespaces, links and files of the lab are its own, and all ends with it.
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
        # As on a host where it is installed: /etc/turnpike and /run/turnpike are those of the lab's UPF.
        own = "mount -t tmpfs none /run && mkdir -p /run/etc/upper /run/etc/work"
        own += " && mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work /etc"
        command += ["bash", "-c", own + ' && "$@"; exit $?', "docs", sys.executable, __file__, *sys.argv[1:], "--inside"]
        sys.exit(subprocess.run(command, check=False).returncode)
    if options.picture:
        return picture(programs, options.picture)
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in [*listed.split(), "Makefile", EXAMPLE, RULES] if (ROOT / name).is_file()}
    said = check(texts, programs)
    if options.self_test and not said:
        self_test(texts, programs)
    if options.run and not said:
        said += run_all(texts, programs)
    return "\n".join(said) or None


if __name__ == "__main__":
    sys.exit(main())
