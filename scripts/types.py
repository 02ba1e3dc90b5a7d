#!/usr/bin/env python3
"""Types that have become too large to be read: fields, and files with their methods.

A struct with methods of its own (impl blocks, those of traits aside) has at most FIELDS_MAX fields, and these methods lie in at
most FILES_MAX files. Types in RECORDS are read and written field by field, and their methods are few.

  types.py              fails on a type that is larger than KNOWN says it is, and on one that has become smaller
  types.py --self-test  shows that a type is found
"""

import pathlib
import re
import sys

from circles import ROOT, TEST_FILE, TEST_PARTS, code_of

FIELDS_MAX = 12
FILES_MAX = 3

CRATES = ("session", "tables")

# Types that are still to be taken apart: fields, files.
KNOWN = {
    "session::Draft": (20, 1),
    "session::Node": (12, 7),
    "session::Peer": (18, 1),
    "session::Quotas": (21, 1),
    "session::Sessions": (23, 9),
    "session::Shard": (8, 13),
}

# Configuration, counters, views, and records of the wire.
RECORDS = {
    "session::Config",
    "session::Limits",
    "session::PdrView",
    "session::Report",
    "session::Stats",
    "session::UrrView",
    "tables::Layout",
    "tables::TraceRecord",
}

STRUCT = re.compile(r"\bstruct\s+(\w+)\s*(?:<[^{;(]*?>)?\s*(?:where[^{;]*)?([{(;])")
IMPL = re.compile(r"\bimpl\b\s*(<(?:[^<>]|<[^<>]*>)*>)?\s*([^{;]*?)\{")
OPEN = {"{": "}", "(": ")"}


def parts_of(text, at, close):
    """The members of a struct whose brace has been opened before `at`."""
    depth, count, begin = 0, 0, at
    while at < len(text):
        char = text[at]
        if depth == 0 and char in (close, ","):
            count += bool(text[begin:at].strip())
            begin = at + 1
            if char == close:
                break
        arrow = char == ">" and text[at - 1] in "-="
        depth += (char in "<([{") - (char in ">)]}" and not arrow)
        at += 1
    return count


def name_of(target):
    """The type of an impl block, or `None` where it is one of a trait."""
    target = re.split(r"\bwhere\b", target)[0].strip()
    if re.search(r"\bfor\b", target):
        return None
    found = re.match(r"(?:\w+::)*(\w+)", target)
    return found and found[1]


def measure(files):
    """Fields of each struct with methods, and the files that those are in. files: code by path."""
    fields, homes = {}, {}
    for path, text in sorted(files.items()):
        code = code_of(text)
        for found in STRUCT.finditer(code):
            opened = found[2]
            count = parts_of(code, found.end(), OPEN[opened]) if opened in OPEN else 0
            fields[found[1]] = max(count, fields.get(found[1], 0))
        for found in IMPL.finditer(code):
            name = name_of(found[2])
            if name:
                homes.setdefault(name, set()).add(path)
    return {name: (fields[name], len(homes[name])) for name in fields if name in homes}


def read(crate):
    source = ROOT / "crates" / crate / "src"
    files = {path.relative_to(source): path.read_text() for path in source.rglob("*.rs")}
    return {
        path: text
        for path, text in files.items()
        if path.parts[0] not in TEST_PARTS and not TEST_FILE.search(path.as_posix())
    }


def check():
    faults = 0
    for crate in CRATES:
        measured = measure(read(crate))
        for name, (fields, files) in sorted(measured.items()):
            known = KNOWN.get(f"{crate}::{name}")
            allowed = known or (FIELDS_MAX, FILES_MAX)
            if f"{crate}::{name}" in RECORDS:
                allowed = (fields, FILES_MAX)
            if fields > allowed[0] or files > allowed[1]:
                print(f"{crate}::{name}: {fields} fields, methods in {files} files; at most {allowed[0]} and {allowed[1]}")
                faults += 1
            elif known and (fields, files) != known:
                print(f"{crate}::{name} has become smaller, {fields} fields and {files} files: say so in the list")
                faults += 1
        for name in [*KNOWN, *RECORDS]:
            if name.startswith(f"{crate}::") and name.split("::")[1] not in measured:
                print(f"{name} is no more, or has no methods: take it from the list")
                faults += 1
    return faults


def self_test():
    def of(**files):
        return measure({pathlib.PurePath(name): text for name, text in files.items()})

    two = "struct A<T: B<C>> { pub(crate) a: HashMap<u8, Vec<(u8, u8)>>, b: fn(u8) -> u8 }"
    assert of(a=two) == {}, "a type without methods"
    assert of(a=two, b="impl<T: B<C>> A<T> { fn f() {} }", c="impl super::A<u8> {}") == {"A": (2, 2)}
    assert of(a=two + "impl<T> Clone for A<T> { fn clone() {} }") == {}
    assert of(a="struct A(u8, [u8; 3]); impl A {} impl A {}") == {"A": (2, 1)}
    assert of(a="struct A; impl A {}") == {"A": (0, 1)}
    assert of(a="struct A { a: u8 } #[cfg(test)] mod tests { impl A {} }") == {}
    assert of(a="/// impl A {}\nstruct A { a: u8 }") == {}


if __name__ == "__main__":
    self_test()
    sys.exit(1 if sys.argv[1:] != ["--self-test"] and check() else 0)
