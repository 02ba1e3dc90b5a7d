//! Compiles the harness of the cost measurement.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let source = "bpf/harness.bpf.c";
    println!("cargo:rerun-if-changed={source}");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("harness.bpf.o");
    // Debian keeps <asm/types.h> in a directory of the host's architecture, which the BPF target
    // does not search.
    let asm = format!("-I/usr/include/{}-linux-gnu", env::consts::ARCH);
    // The same octets wherever they are built.
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let tree = package.ancestors().nth(2).unwrap_or(&package);
    let status = Command::new(&clang)
        .arg(format!("-ffile-prefix-map={}=.", tree.display()))
        .args([
            "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", &asm, "-c", source,
        ])
        .arg("-o")
        .arg(&out)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(_) => fail(&format!("{clang} cannot compile {source}")),
        Err(error) => fail(&format!(
            "cannot run {clang}: {error}; scripts/setup.sh installs it"
        )),
    }
}

fn fail(why: &str) -> ! {
    eprintln!("error: {why}");
    std::process::exit(1);
}
