//! Builds the data path: the pipeline for BPF, embedded as an object, and for this process, linked
//! in; and the drop reasons from their definitions.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, exit};
use std::{env, fs, io};

use bindgen::callbacks::{DeriveTrait, ImplementsTrait, IntKind, ParseCallbacks};

/// What the XDP program is compiled for (`datapath/include/tp_abi.h`).
const BUILDS: [&str; 7] = [
    "PLAIN", "COMMON", "OUTER6", "RELAY", "SPREAD", "SHAPE", "GENERAL",
];

/// What bursts of packets in this process are compiled for (`datapath/platform/worker/tp_worker.c`).
const WORKER_BUILDS: [&str; 4] = ["PLAIN", "COMMON", "RELAY", "GENERAL"];

/// What both sides change under traffic.
const SHARED: &str = "tp_(side|config|traffic|port_stats|nexthop|shaper_stats|leave|cpu)";

/// What `tp_host.h`, `tp_worker.h`, `tp_queue.h` and `tp_wheel.h` declare.
const NATIVE_CALLS: [&str; 26] = [
    "tp_host_run",
    "tp_host_prefix",
    "tp_host_wrap",
    "tp_host_entry_of",
    "tp_host_user",
    "tp_host_n4_serve",
    "tp_drop_name",
    "tp_worker_burst",
    "tp_queue_reserve",
    "tp_queue_commit",
    "tp_queue_complete",
    "tp_queue_peek",
    "tp_queue_release",
    "tp_queue_rest",
    "tp_queue_wake",
    "tp_queue_mend",
    "tp_queue_nudge",
    "tp_wheel_new",
    "tp_wheel_free",
    "tp_wheel_count_in",
    "tp_wheel_put",
    "tp_wheel_take",
    "tp_wheel_next_ns",
    "tp_wheel_room",
    "tp_wheel_left_ns",
    "tp_wheel_octets",
];

fn main() {
    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../datapath");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for folder in [
        "include",
        "pipeline",
        "n4",
        "platform/xdp",
        "platform/host",
        "platform/worker",
        "platform/dpdk",
    ] {
        println!("cargo:rerun-if-changed={}", root.join(folder).display());
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| preferred_clang().into());
    let running = BUILDS.map(|build| start_bpf(&clang, &root, build, &out));
    let n4 = start_bpf_of(&clang, &root, "n4.bpf.c", &out.join("n4.bpf.o"), &[]);
    running
        .into_iter()
        .chain([n4])
        .for_each(|compiler| finish_bpf(&clang, compiler));
    build_native(&clang, &root);
    if is_debug() {
        build_sanitized(&root);
    }
    write_abi(&root, &out);
    if env::var_os("CARGO_FEATURE_DPDK").is_some() {
        build_dpdk(&clang, &root);
        write_dpdk_abi(&root, &out);
    }
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

fn includes(root: &Path) -> [PathBuf; 3] {
    ["include", "pipeline", "n4"].map(|folder| root.join(folder))
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
    let object = out.join(format!("turnpike-{build}.bpf.o"));
    let define = format!("-DTP_BUILD=TP_BUILD_{build}");
    start_bpf_of(clang, root, "turnpike.bpf.c", &object, &[&define])
}

fn start_bpf_of(
    clang: &str,
    root: &Path,
    source: &str,
    object: &Path,
    defines: &[&str],
) -> io::Result<Child> {
    let mut command = Command::new(clang);
    // The same octets wherever they are built.
    let tree = root.ancestors().nth(5).unwrap_or(root);
    command.arg(format!("-ffile-prefix-map={}=.", tree.display()));
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
    if arch == "x86_64" {
        command.arg("-DTP_LOADS_IN_ORDER");
    }
    command
        .args(defines)
        .arg("-c")
        .arg(root.join("platform/xdp").join(source))
        .arg("-o")
        .arg(object);
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

/// A compiler of the pipeline in this process.
fn native(root: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .includes(includes(root))
        .include(root.join("platform/host"))
        .flag("-fno-strict-aliasing")
        .flag("-fwrapv")
        .flag_if_supported("-Wno-unused-parameter")
        .opt_level(2)
        .warnings(true);
    build
}

fn is_debug() -> bool {
    env::var("PROFILE").is_ok_and(|profile| profile == "debug")
}

/// What is compiled once for each build of the pipeline, and what once for all.
fn compile(
    root: &Path,
    compiler: impl Fn() -> cc::Build,
    mut finish: impl FnMut(&mut cc::Build, &str),
) {
    for name in WORKER_BUILDS {
        let mut build = compiler();
        build
            .file(root.join("platform/worker/tp_burst.c"))
            .define("TP_BUILD", format!("TP_BUILD_{name}").as_str())
            .define("TP_BUILD_NAME", name);
        finish(&mut build, &format!("burst_{}", name.to_lowercase()));
    }
    let mut build = compiler();
    build
        .file(root.join("platform/host/tp_host.c"))
        .file(root.join("platform/worker/tp_queue.c"))
        .file(root.join("platform/worker/tp_wheel.c"))
        .file(root.join("platform/worker/tp_worker.c"));
    finish(&mut build, "native");
}

fn build_native(clang: &str, root: &Path) {
    let compiler = || {
        let mut build = native(root);
        if env::var_os("CC").is_none() {
            build.compiler(clang);
        }
        // What tests run stops where C says that anything may happen.
        if is_debug() {
            build
                .flag_if_supported("-fsanitize=undefined")
                .flag_if_supported("-fsanitize-trap=undefined");
        }
        build
    };
    compile(root, compiler, |build, name| {
        build.compile(&format!("turnpike_{name}"))
    });
}

/// The pipeline once more, under ASan and UBSan: integration tests, here and in packages that depend on this one
/// (`DEP_TURNPIKE_HOST_TEST_LINK_ARGS`), link it in place of the other. Rust has no such sanitizer, but allocates by
/// this one's malloc.
fn build_sanitized(root: &Path) {
    // The one that `make -C datapath test` takes: newer ones come without their runtime.
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let compiler = || {
        let mut build = native(root);
        for call in NATIVE_CALLS {
            build.define(call, format!("__wrap_{call}").as_str());
        }
        // Of these, Rust calls none.
        for name in WORKER_BUILDS {
            build.define(
                &format!("tp_burst_{name}"),
                format!("tp_sanitized_burst_{name}").as_str(),
            );
        }
        build
            .compiler(&clang)
            .flag("-fsanitize=address,undefined")
            .flag("-fno-sanitize-recover=all")
            .flag("-fno-omit-frame-pointer");
        build
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("sanitized");
    let mut objects = Vec::new();
    compile(root, compiler, |build, name| {
        objects.extend(build.out_dir(out.join(name)).compile_intermediates());
    });
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let runtime = Command::new(&clang)
        .arg(format!("-print-file-name=libclang_rt.asan-{arch}.a"))
        .output()
        .unwrap_or_else(|error| stop(&format!("cannot run '{clang}' ({error})")));
    let runtime = String::from_utf8_lossy(&runtime.stdout);
    let mut args = NATIVE_CALLS
        .map(|call| format!("-Wl,--wrap={call}"))
        .to_vec();
    args.extend(objects.iter().map(|object| object.display().to_string()));
    // All of it: it takes the place of functions that the rest has from libc.
    args.push(format!(
        "-Wl,--whole-archive,{},--no-whole-archive",
        runtime.trim()
    ));
    for arg in &args {
        println!("cargo::rustc-link-arg-tests={arg}");
    }
    println!("cargo::metadata=test_link_args={}", args.join(";"));
}

/// Words that pkg-config says of DPDK.
fn pkg_config(what: &str) -> Vec<String> {
    let advice = "the feature 'dpdk' needs DPDK 22.11 or later (Debian: libdpdk-dev, pkg-config)";
    match Command::new("pkg-config").args([what, "libdpdk"]).output() {
        Ok(said) if said.status.success() => {
            let said = String::from_utf8_lossy(&said.stdout);
            said.split_whitespace().map(str::to_owned).collect()
        }
        Ok(said) => stop(&format!(
            "{}{advice}",
            String::from_utf8_lossy(&said.stderr)
        )),
        Err(error) => stop(&format!("cannot run pkg-config ({error}): {advice}")),
    }
}

/// Workers over devices of DPDK. Drivers are no part of it: DPDK loads them as it starts.
fn build_dpdk(clang: &str, root: &Path) {
    let mut build = cc::Build::new();
    if env::var_os("CC").is_none() {
        build.compiler(clang);
    }
    build
        .includes(includes(root))
        .include(root.join("platform/host"))
        .include(root.join("platform/worker"))
        .file(root.join("platform/dpdk/tp_dpdk.c"))
        .file(root.join("platform/dpdk/tp_dpdk_receive.c"))
        .file(root.join("platform/dpdk/tp_dpdk_rings.c"))
        .file(root.join("platform/dpdk/tp_dpdk_sleep.c"))
        .flag("-fno-strict-aliasing")
        .opt_level(2)
        .warnings(true);
    for word in pkg_config("--cflags") {
        // Warnings about DPDK's headers are not ours.
        build.flag(word.replacen("-I", "-isystem", 1));
    }
    build.compile("turnpike_dpdk");
    for library in ["ethdev", "mbuf", "mempool", "ring", "eal", "net_ring"] {
        println!("cargo:rustc-link-lib=dylib=rte_{library}");
    }
    for word in pkg_config("--libs-only-L") {
        println!(
            "cargo:rustc-link-search=native={}",
            word.trim_start_matches("-L")
        );
    }
}

/// What the types are that `abi.rs` says `__u32` and its like to be.
#[derive(Debug)]
struct Integers;

impl ParseCallbacks for Integers {
    /// The top bit is a bit like others.
    fn int_macro(&self, _name: &str, value: i64) -> Option<IntKind> {
        (value < 0).then_some(IntKind::U64)
    }

    fn blocklisted_type_implements_trait(
        &self,
        _name: &str,
        _derive: DeriveTrait,
    ) -> Option<ImplementsTrait> {
        Some(ImplementsTrait::Yes)
    }
}

/// The header as Rust: twice, because what packets read and write at the same time is seen as atomic words
/// (`abi_shared.rs`), and what is encoded first and stored then as plain ones (`abi_plain.rs`).
fn write_abi(root: &Path, out: &Path) {
    let header = || {
        bindgen::builder()
            .header(root.join("include/tp_abi.h").display().to_string())
            .default_macro_constant_type(bindgen::MacroTypeVariation::Unsigned)
            .prepend_enum_name(false)
            .allowlist_recursively(false)
            .blocklist_type("__(u8|u16|u32|u64)")
            .wrap_unsafe_ops(true)
            .layout_tests(true)
    };
    let plain = header()
        .allowlist_item("(tp|TP)_.*")
        .explicit_padding(true) // so that every octet of a value is written
        .derive_default(true)
        .derive_partialeq(true)
        .derive_eq(true)
        .parse_callbacks(Box::new(Integers));
    let shared = header()
        .allowlist_type(SHARED)
        .derive_copy(false)
        .derive_debug(false);
    let host = bindgen::builder()
        .header(root.join("platform/worker/tp_worker.h").display().to_string())
        .clang_arg(format!("-I{}", root.join("include").display()))
        .clang_arg(format!("-I{}", root.join("platform/host").display()))
        .default_macro_constant_type(bindgen::MacroTypeVariation::Unsigned)
        .prepend_enum_name(false)
        .allowlist_recursively(false)
        .allowlist_item(
            "tp_(tables|port_config|result|fib|verdict|host_.*|n4_.*|queue.*|frame|worker.*|wheel.*)|TP_(VERDICT|HOST|N4|TUNNEL6|BURST|WHEEL)_.*",
        )
        .derive_default(true)
        .no_debug("tp_(tables|worker)")
        .parse_callbacks(Box::new(Integers))
        .wrap_unsafe_ops(true);
    for (bindings, name) in [
        (plain, "abi_plain.rs"),
        (shared, "abi_shared.rs"),
        (host, "abi_host.rs"),
    ] {
        let written = bindings
            .generate()
            .map_err(|error| error.to_string())
            .and_then(|bindings| {
                bindings
                    .write_to_file(out.join(name))
                    .map_err(|error| error.to_string())
            });
        if let Err(error) = written {
            stop(&format!(
                "tp_abi.h as Rust: {error}. It needs libclang (Debian: libclang1-14, which clang depends on)"
            ));
        }
    }
}

fn write_dpdk_abi(root: &Path, out: &Path) {
    let mut header = bindgen::builder()
        .header(root.join("platform/dpdk/tp_dpdk.h").display().to_string())
        .default_macro_constant_type(bindgen::MacroTypeVariation::Unsigned)
        .allowlist_recursively(false)
        .allowlist_item("(tp_dpdk|TP_DPDK)_.*|rte_(ring|mempool)")
        .derive_default(true)
        .no_copy("tp_dpdk_(shared|worker|receiver|sleeper)")
        .parse_callbacks(Box::new(Integers))
        .wrap_unsafe_ops(true);
    for folder in ["include", "platform/host", "platform/worker"] {
        header = header.clang_arg(format!("-I{}", root.join(folder).display()));
    }
    let written = header
        .generate()
        .map_err(|error| error.to_string())
        .and_then(|bindings| {
            let file = out.join("abi_dpdk.rs");
            bindings
                .write_to_file(file)
                .map_err(|error| error.to_string())
        });
    if let Err(error) = written {
        stop(&format!("tp_dpdk.h as Rust: {error}"));
    }
}

/// `TP_DROP(SYMBOL, name, "meaning", "remedy")`, one on a line, as an enum whose numbers are those of C.
fn write_drop_reasons(definitions: &Path, out: &Path) {
    let text = fs::read_to_string(definitions)
        .unwrap_or_else(|error| stop(&format!("{}: {error}", definitions.display())));
    let (mut variants, mut all, mut texts) = (String::new(), String::new(), String::new());
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("TP_DROP("));
    for (place, line) in lines.enumerate() {
        let quoted: Vec<&str> = line.split('"').collect();
        let mut words = line.split(',').map(str::trim);
        let (symbol, name) = (words.next(), words.next());
        let (Some(symbol), Some(name), [_, meaning, _, remedy, ..]) =
            (symbol, name, quoted.as_slice())
        else {
            stop(&format!("{}: cannot read '{line}'", definitions.display()))
        };
        let variant = in_camel_case(symbol);
        variants += &format!("    /// {meaning}\n    {variant} = {},\n", place + 1);
        all += &format!("    DropReason::{variant},\n");
        texts += &format!("    [{name:?}, {meaning:?}, {remedy:?}],\n");
    }
    let written = format!(
        "/// Why a packet was lost. Numbers are those of the data path; 0 is no loss.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\n\
         #[repr(u8)]\n\
         pub enum DropReason {{\n{variants}}}\n\n\
         const ALL: &[DropReason] = &[\n{all}];\n\n\
         /// Name, meaning, remedy.\n\
         const TEXTS: &[[&str; 3]] = &[\n{texts}];\n"
    );
    if let Err(error) = fs::write(out, written) {
        stop(&format!("{}: {error}", out.display()));
    }
}

/// `GTPU_VERSION` is `GtpuVersion`.
fn in_camel_case(symbol: &str) -> String {
    let words = symbol
        .split('_')
        .filter_map(|word| word.split_at_checked(1));
    words
        .map(|(first, rest)| format!("{first}{}", rest.to_ascii_lowercase()))
        .collect()
}
