#!/usr/bin/env bash
# Each cargo-fuzz target for SECONDS (default 20). Needs what setup.sh --fuzz installs.
set -euo pipefail
seconds=${1:-20}
cd "$(dirname "$0")/../fuzz"
for target in $(sed -n '/^\[\[bin\]\]/{n;s/^name = "\(.*\)"/\1/p}' Cargo.toml); do
  echo "== $target, $seconds s"
  # New inputs go to a scratch directory: the committed corpus stays small.
  scratch=$(mktemp -d)
  cargo +nightly fuzz run "$target" "$scratch" "corpus/$target" -- \
    -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=5 -verbosity=0 -print_funcs=0 -print_final_stats=1
  rm -rf "$scratch"
done
