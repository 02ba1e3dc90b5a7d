//! Builds the data path: the pipeline for BPF, embedded as an object, and for this process, linked
//! in; and the drop reasons from their definitions.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, exit};
use std::{env, fs, io};

/// What the XDP program is compiled for (`datapath/include/tp_abi.h`).
const BUILDS: [&str; 6] = ["PLAIN", "COMMON", "OUTER6", "RELAY", "SPREAD", "GENERAL"];

fn main() {
    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../datapath");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for folder in ["include", "pipeline", "platform/xdp", "platform/host"] {
        println!("cargo:rerun-if-changed={}", root.join(folder).display());
    }
    println!("cargo:rerun-if-changed=src/abi_check.c");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| preferred_clang().into());
    let running = BUILDS.map(|build| start_bpf(&clang, &root, build, &out));
    running
        .into_iter()
        .for_each(|compiler| finish_bpf(&clang, compiler));
    build_host(&clang, &root);
    write_drop_reasons(
        &root.join("include/tp_drop.def"),
        &out.join("drop_reasons.rs"),
    );
}

/// A build cannot go on: say why, without a backtrace.
fn stop(message: &str) -> ! {
    eprintln!("error: {message}");
    exit(1)
}

fn includes(root: &Path) -> [PathBuf; 2] {
    [root.join("include"), root.join("pipeline")]
}

/// clang 19 makes the fastest program of those that are tested (docs/decisions).
fn preferred_clang() -> &'static str {
    let newest = Command::new("clang-19").arg("--version").output();
    if newest.is_ok_and(|output| output.status.success()) {
        "clang-19"
    } else {
        "clang"
    }
}

fn start_bpf(clang: &str, root: &Path, build: &str, out: &Path) -> io::Result<Child> {
    let mut command = Command::new(clang);
    command.args([
        "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror",
    ]);
    command.args(["-Wno-unused-parameter", "-Wno-address-of-packed-member"]);
    for folder in includes(root) {
        command.arg("-I").arg(folder);
    }
    // The headers of the very libbpf that loads the object.
    if let Some(folder) = env::var_os("DEP_BPF_INCLUDE") {
        command.arg("-I").arg(folder);
    }
    // Debian keeps asm/types.h where only the native target looks.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    command.arg(format!("-I/usr/include/{arch}-linux-gnu"));
    command
        .arg(format!("-DTP_BUILD=TP_BUILD_{build}"))
        .arg("-c")
        .arg(root.join("platform/xdp/turnpike.bpf.c"))
        .arg("-o")
        .arg(out.join(format!("turnpike-{build}.bpf.o")));
    command.spawn()
}

fn finish_bpf(clang: &str, compiler: io::Result<Child>) {
    match compiler.and_then(|mut compiler| compiler.wait()) {
        Ok(status) if status.success() => {}
        Ok(_) => stop(
            "clang could not compile the XDP program (above). It needs clang 14 or later with the \
             BPF target and the kernel headers (Debian: clang, linux-libc-dev); CLANG names another one",
        ),
        Err(error) => stop(&format!(
            "cannot run '{clang}' ({error}). The XDP program is built with clang 14 or later: \
             install it (Debian: apt install clang) or name it in CLANG"
        )),
    }
}

fn build_host(clang: &str, root: &Path) {
    let mut build = cc::Build::new();
    if env::var_os("CC").is_none() {
        build.compiler(clang);
    }
    build
        .files([
            root.join("platform/host/tp_host.c"),
            PathBuf::from("src/abi_check.c"),
        ])
        .includes(includes(root))
        .include(root.join("platform/host"))
        .flag("-fno-strict-aliasing")
        .flag("-fwrapv")
        .flag_if_supported("-Wno-unused-parameter")
        .opt_level(2)
        .warnings(true)
        .compile("turnpike_host");
}

/// `TP_DROP(SYMBOL, name, "meaning", "remedy")`, one on a line.
fn write_drop_reasons(definitions: &Path, out: &Path) {
    let text = fs::read_to_string(definitions)
        .unwrap_or_else(|error| stop(&format!("{}: {error}", definitions.display())));
    let mut lines = String::from("&[\n");
    for line in text
        .lines()
        .filter_map(|line| line.strip_prefix("TP_DROP("))
    {
        let quoted: Vec<&str> = line.split('"').collect();
        let name = line.split(',').nth(1).unwrap_or_default().trim();
        let [_, meaning, _, remedy, ..] = quoted.as_slice() else {
            stop(&format!("{}: cannot read '{line}'", definitions.display()))
        };
        lines += &format!(
            "DropReason {{ name: {name:?}, meaning: {meaning:?}, remedy: {remedy:?} }},\n"
        );
    }
    lines += "]\n";
    if let Err(error) = fs::write(out, lines) {
        stop(&format!("{}: {error}", out.display()));
    }
}
