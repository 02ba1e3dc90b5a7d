#!/usr/bin/env python3
"""Circles of imports between the folders of each crate.

A folder of src/ is a part, and so is each file beside lib.rs. What a part imports lies below it. Tests may import
anything, and so may lib.rs, main.rs and what is built for tests alone (TEST_PARTS).

  circles.py              fails on a circle beyond those in KNOWN, and where one of those is no more
  circles.py --show CRATE the parts of a crate, each with what it imports
  circles.py --self-test  shows that a circle is found
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Circles that are still to be broken, by crate. One may shrink, and is then to be listed as it is left.
KNOWN = {}

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
            yield whole[0]


def graph(files):
    """Which part imports which. files: by path below src/."""
    parts = {module_of(path)[0] for path in files if module_of(path)}
    edges = {part: {} for part in parts - TEST_PARTS}
    for path, text in sorted(files.items()):
        module = module_of(path)
        if not module or module[0] not in edges or TEST_FILE.search(path.as_posix()):
            continue
        for to in imports(path, text):
            if to in edges and to != module[0]:
                edges[module[0]].setdefault(to, []).append(path.as_posix())
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
        edges = graph(read(crate))
        found, known = circles(edges), [set(circle.split()) for circle in KNOWN.get(crate, [])]
        for circle in found:
            if not any(set(circle) <= former for former in known):
                faults += 1
                print(f"crates/{crate}: a circle of imports between {', '.join(circle)}")
                for part in circle:
                    for other in sorted(set(edges[part]) & set(circle)):
                        print(f"    {part} imports {other}: {' '.join(sorted(set(edges[part][other])))}")
        for former in known:
            if not any(set(circle) <= former for circle in found):
                faults += 1
                print(f"crates/{crate}: the circle of {', '.join(sorted(former))} is no more: take it from the list")
    return faults


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
