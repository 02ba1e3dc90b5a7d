#!/usr/bin/env bash
# Each cargo-fuzz target for SECONDS (default 20). Needs cargo-fuzz and a nightly toolchain.
set -euo pipefail
seconds=${1:-20}
cd "$(dirname "$0")/../fuzz"
if ! cargo +nightly --version >/dev/null 2>&1; then
  echo "fuzz: needs a nightly toolchain: rustup toolchain install nightly" >&2
  exit 1
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
  echo "fuzz: needs cargo-fuzz: cargo install cargo-fuzz" >&2
  exit 1
fi
for target in $(sed -n 's/^name = "\(pfcp_.*\|session_.*\|gtpu_.*\|fragments\|users_.*\|slow_path_.*\|held_.*\)"/\1/p' Cargo.toml); do
  echo "== $target, $seconds s"
  # New inputs go to a scratch directory: the committed corpus stays small.
  scratch=$(mktemp -d)
  cargo +nightly fuzz run "$target" "$scratch" "corpus/$target" -- \
    -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=5 -verbosity=0 -print_final_stats=1
  rm -rf "$scratch"
done
