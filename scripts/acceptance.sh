#!/usr/bin/env bash
# What the gate has a short form of, in full: every scenario on each data path, the demonstration on each, and the fuzz
# targets for FUZZ_SECONDS each (docs/testing.md). All of it runs, whatever fails before.
# What it says is kept, with date, commit and machine, in docs/acceptance/, which is committed.
# usage: scripts/acceptance.sh [RESULT.txt]
set -euo pipefail
cd "$(dirname "$0")/.."
commit=$(git describe --always --dirty)
result=${1:-docs/acceptance/$(date +%F)-$commit.txt}
mkdir -p "$(dirname "$result")"
failed=()
# What is compiled, and where, is no result.
export CARGO_TERM_QUIET=true

part() {
	local name=$1 began=$SECONDS how=passed
	shift
	printf '\n== %s: %s\n' "$name" "$*"
	"$@" 2>&1 || { how=failed && failed+=("$name"); }
	printf -- '-- %s: %s, %d s\n' "$name" "$how" $((SECONDS - began))
}

all() {
	printf '%s, commit %s, kernel %s, %s CPUs, load %s\n' "$(date -Is)" "$commit" "$(uname -r)" "$(nproc)" "$(cut -d' ' -f1-3 /proc/loadavg)"
	part build make --no-print-directory -s build DPDK=1
	for datapath in xdp kernel dpdk dpdk-pipeline dpdk-memif; do
		part "scenarios $datapath" make --no-print-directory scenarios DPDK=1 DATAPATH=$datapath
		part "demonstration $datapath" make --no-print-directory demo DPDK=1 DATAPATH=$datapath
	done
	part documentation tests/docs/check.py --programs target/release --self-test --run
	part packages make --no-print-directory -s deb
	part "packages under systemd" tests/packages/check.py build/deb
	part image scripts/image.sh build/deb
	part "image with DPDK" scripts/image.sh build/deb turnpike-dpdk
	part "images under podman" tests/packages/image.py build/deb
	part chart tests/helm/check.py target/release/turnpiked
	if git ls-remote -q https://github.com/rustsec/advisory-db HEAD >/dev/null 2>&1; then
		part advisories build/tools/bin/cargo-deny --locked check advisories
	fi
	part fuzz make --no-print-directory fuzz-smoke FUZZ_SECONDS="${FUZZ_SECONDS:-120}"
	printf '\n%d s, failed: %s\n' $SECONDS "${failed[*]:-nothing}"
	[ ${#failed[@]} = 0 ]
}

# Words that libFuzzer would put into a dictionary are no result.
all | grep -v ' # Uses: ' | tee "$result"
