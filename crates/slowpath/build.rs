//! Integration tests run the pipeline under ASan and UBSan (`crates/tables/build.rs`).

fn main() {
    let args = std::env::var("DEP_TURNPIKE_HOST_TEST_LINK_ARGS").unwrap_or_default();
    for arg in args.split(';').filter(|arg| !arg.is_empty()) {
        println!("cargo::rustc-link-arg-tests={arg}");
    }
}
