#!/usr/bin/env python3
"""Circles of imports between the folders of each crate, and between its files.

A folder of src/ is a part, and so is each file beside lib.rs. What a part imports lies below it, and so it is with files. Tests
may import anything, and so may lib.rs, main.rs and what is built for tests alone (TEST_PARTS). A folder's mod.rs stands for what it
exports from its files.

  circles.py              fails on a circle beyond those in KNOWN and KNOWN_FILES, and where one of those is no more
  circles.py --show CRATE the parts of a crate, each with what it imports
  circles.py --self-test  shows that a circle is found
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Circles that are still to be broken, by crate. One may shrink, and is then to be listed as it is left.
KNOWN = {}

# The same of files, by their modules.
KNOWN_FILES = {
    "lab": [
        "smf smf::duplicate smf::plan smf::relay smf::usage smf::usual_urrs",
    ],
    "pfcp": [
        "ie ie::address ie::groups ie::node ie::node_groups ie::usage",
    ],
    "session": [
        "rules rules::model rules::predefined rules::targets rules::urr",
    ],
    "slowpath": [
        "buffers buffers::by_hand buffers::packet_buffer",
    ],
    "tables": [
        "dpdk dpdk::ring_port",
    ],
    "turnpiked": [
        "api api::serve",
        "config config::changes config::check config::cores config::dpdk config::forwarding_policy config::memory "
        "config::nrf config::nupf config::predefined config::qos config::rest config::router config::system "
        "config::telemetry config::understood",
        "control control::show control::usage",
    ],
}

TEST_PARTS = {"testing"}
TEST_FILE = re.compile(r"(^|/)(tests|testing)(/|\.rs$)|_tests(/|\.rs$)")
COMMENT = r"//[^\n]*|/\*.*?\*/"
STRING = r'b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"'
CHAR = r"b?'(?:\\[^\n']+|[^\\'\n])'"
TOKEN = re.compile(f"{COMMENT}|{STRING}|{CHAR}", re.S)
TEST_ITEM = re.compile(r"#\[cfg\((?:test|any\(test\b[^\]]*)\)\]")


def code_of(text):
    """The text without comments, strings and what is compiled for tests alone."""
    # One pass, as a comment may hold a quote and a string two slashes.
    text = TOKEN.sub(" ", text)
    kept, at = [], 0
    for found in TEST_ITEM.finditer(text):
        if found.start() < at:
            continue
        kept.append(text[at:found.start()])
        at = end_of_item(text, found.end())
    return "".join(kept) + text[at:]


def end_of_item(text, at):
    """Behind the item that begins here: its semicolon, or the brace that closes it."""
    depth = 0
    while at < len(text):
        char = text[at]
        at += 1
        depth += (char in "{([") - (char in "})]")
        if depth == 0 and char in ";}":
            return at
    return at


def paths(tree, prefix=()):
    """Paths of a `use` tree: `a::{b, c::d}` is a::b and a::c::d."""
    head, brace, rest = tree.partition("{")
    names = tuple(name for name in re.split(r"::", head.split(" as ")[0].strip().rstrip(":")) if name)
    if not brace:
        return [prefix + names]
    found, depth, start, inner = [], 0, 0, rest[: rest.rindex("}")]
    for at, char in enumerate(inner + ","):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            if inner[start:at].strip():
                found += paths(inner[start:at], prefix + names)
            start = at + 1
    return found


def module_of(source):
    """The path of the module in a file, from the crate's root."""
    names = source.with_suffix("").parts
    return names[:-1] if names[-1] in ("mod", "lib", "main") else names


def imports(source, text):
    """Parts that a file names, by `use` or in full."""
    code = code_of(text)
    found = []
    for tree in re.findall(r"\buse\s+((?:crate|super|self)\b[^;]*);", code):
        found += paths(" ".join(tree.split()))
    found += [tuple(path.split("::")) for path in re.findall(r"\b((?:crate|super)(?:::\w+)+)", code)]
    here = module_of(source)
    for path in found:
        at = here
        while path and path[0] in ("super", "self"):
            at = at[:-1] if path[0] == "super" else at
            path = path[1:]
        if path and path[0] == "crate":
            at, path = (), path[1:]
        whole = at + path
        if whole:
            yield whole


def exports(source, text):
    """Modules below this one whose items it exports as its own."""
    here = module_of(source)
    for tree in re.findall(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]*);", code_of(text)):
        for path in paths(" ".join(tree.split())):
            if path and path[0] not in ("crate", "super", "self"):
                yield here + path


def graph(files):
    """Which part imports which. files: by path below src/."""
    parts = {module_of(path)[0] for path in files if module_of(path)}
    edges = {part: {} for part in parts - TEST_PARTS}
    for path, text in sorted(files.items()):
        module = module_of(path)
        if not module or module[0] not in edges or TEST_FILE.search(path.as_posix()):
            continue
        for to in imports(path, text):
            if to[0] in edges and to[0] != module[0]:
                edges[module[0]].setdefault(to[0], []).append(path.as_posix())
    return edges


def graph_of_files(files):
    """Which file imports which, by their modules."""
    modules = {}
    for path in sorted(files):
        module = module_of(path)
        if module and module[0] not in TEST_PARTS and not TEST_FILE.search(path.as_posix()):
            modules[module] = path
    edges = {"::".join(module): {} for module in modules}
    for module, path in modules.items():
        for to in [*imports(path, files[path]), *exports(path, files[path])]:
            found = next((to[:n] for n in range(len(to), 0, -1) if to[:n] in modules), None)
            if found and found != module:
                edges["::".join(module)].setdefault("::".join(found), []).append(path.as_posix())
    return edges


def circles(edges):
    """Sets of parts that each reach all others of their set."""
    reach = {part: set(to) for part, to in edges.items()}
    for via in edges:
        for part in edges:
            if via in reach[part]:
                reach[part] |= reach[via]
    found = {tuple(sorted(p for p in edges if p in reach[part] and part in reach[p])) for part in edges}
    return sorted(circle for circle in found if len(circle) > 1)


def read(crate):
    source = ROOT / "crates" / crate / "src"
    return {path.relative_to(source): path.read_text() for path in source.rglob("*.rs")}


def show(edges):
    for part, to in sorted(edges.items()):
        print(f"{part}:")
        for other, files in sorted(to.items()):
            print(f"    {other:<12} {' '.join(sorted(set(files)))}")


def check():
    faults = 0
    crates = sorted(path.parent.name for path in (ROOT / "crates").glob("*/src"))
    for crate in crates:
        files = read(crate)
        for edges, known in ((graph(files), KNOWN), (graph_of_files(files), KNOWN_FILES)):
            faults += compare(crate, edges, [set(circle.split()) for circle in known.get(crate, [])])
    return faults


def compare(crate, edges, known):
    """Says what differs from the circles that are known; how much does."""
    found = [set(circle) for circle in circles(edges)]
    new = [circle for circle in found if circle not in known]
    gone = [former for former in known if former not in found]
    for circle in new:
        print(f"crates/{crate}: a circle of imports between {', '.join(sorted(circle))}")
        for part in sorted(circle):
            for other in sorted(set(edges[part]) & circle):
                print(f"    {part} imports {other}: {' '.join(sorted(set(edges[part][other])))}")
    for former in gone:
        print(f"crates/{crate}: the circle of {', '.join(sorted(former))} is no more: take it from the list")
    return len(new) + len(gone)


def self_test():
    def found(files):
        return circles(graph({pathlib.PurePath(path): text for path, text in files.items()}))

    low = {"lib.rs": "mod low; mod high;", "low/mod.rs": "pub mod a;", "low/a.rs": "pub struct A;"}
    assert found({**low, "high.rs": "use crate::low::a::A;"}) == []
    for back in (
        "use crate::high::B;",
        "pub(crate) use crate::{\n    high::{self, B},\n};",
        "use super::super::high;",
        "fn f() { crate::high::f() }",
        "const Q: char = '\"'; use crate::high::B; const R: char = '\"';",
        "#[cfg(test)] mod tests { use crate::x; } use crate::high::B;",
    ):
        assert found({**low, "low/a.rs": back, "high.rs": "use crate::low::a::A;"}) == [("high", "low")], back
    for harmless in (
        "// use crate::high::B;",
        "/// [`crate::high::B`]\npub struct A;",
        'const A: &str = "use crate::high::B;";',
        "#[cfg(test)] mod tests { fn f() { crate::high::f() } }",
        "#[cfg(test)] use crate::high::B;",
    ):
        assert found({**low, "low/a.rs": harmless, "high.rs": "use crate::low::a::A;"}) == [], harmless
    def of_files(files):
        return circles(graph_of_files({pathlib.PurePath(path): text for path, text in files.items()}))

    beside = {"a/mod.rs": "mod b; mod c; pub use c::C;", "a/b.rs": "use crate::a::c::C;", "a/c.rs": "use super::b::B;"}
    assert found(beside) == [] and of_files(beside) == [("a::b", "a::c")]
    assert of_files({**beside, "a/c.rs": "pub struct C;"}) == []
    # By way of the folder that exports it.
    assert of_files({**beside, "a/b.rs": "use crate::a::C;"}) == [("a", "a::b", "a::c")]
    three = {"a.rs": "use crate::b::X;", "b.rs": "use crate::c::X;", "c.rs": "use crate::a::X;", "d.rs": "use crate::a;"}
    assert found(three) == [("a", "b", "c")]
    assert found({"a.rs": "use crate::b::X;", "b/tests.rs": "use crate::a::X;", "b/mod.rs": ""}) == []
    assert paths("a::{b, c::{d, e as f}, g}") == [("a", "b"), ("a", "c", "d"), ("a", "c", "e"), ("a", "g")]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--show"]:
        show(graph(read(sys.argv[2])))
    else:
        self_test()
        sys.exit(1 if sys.argv[1:] != ["--self-test"] and check() else 0)
