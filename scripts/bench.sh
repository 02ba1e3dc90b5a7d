#!/usr/bin/env bash
# All figures, as lines `figure NAME VALUE UNIT floor VALUE`, and as JSON with their conditions. Those of DPDK where libdpdk-dev
# is installed.
# usage: [RUNS=9] scripts/bench.sh [RESULT.json]     (default: benches/results/latest.json)
set -euo pipefail
cd "$(dirname "$0")/.."
result=${1:-benches/results/latest.json}
runs=${RUNS:-9}
mkdir -p "$(dirname "$result")"
others=$(mktemp)
trap 'rm -f "$others"' EXIT

target/release/lab bench --runs "$runs" --out "$result"
target/release/lab bench --datapath kernel --runs "$runs" | tee -a "$others"
if pkg-config --exists libdpdk; then
    for choice in "$runs" "--no-huge $runs 1000"; do
        # shellcheck disable=SC2086
        cargo bench --quiet --locked -p tables --features dpdk --bench dpdk -- $choice | tee -a "$others"
    done
fi
cargo bench --quiet --locked -p pfcp --bench decode -- --noplot 'establishment 317' >/dev/null 2>&1
make --no-print-directory -C datapath bench | tee -a "$others"
python3 - "$result" "$others" <<'PY'
import json
import pathlib
import sys

def median(name):
    path = pathlib.Path("target/criterion") / name / "new/estimates.json"
    return json.loads(path.read_text())["median"]["point_estimate"]

path, others = map(pathlib.Path, sys.argv[1:])
report = json.loads(path.read_text())
for line in others.read_text().splitlines():
    if line.startswith("figure "):
        _, name, value, unit, _, floor = line.split()
        floor = None if floor == "-" else float(floor)
        report["figures"].append({"name": name, "value": float(value), "unit": unit, "floor": floor})
value = median("establishment 317 octets, typed rules")
floor = median("establishment 317 octets, bare walk")
other = median("establishment 317 octets, rs-pfcp")
for name, ns in [("pfcp_decode_establishment", value), ("pfcp_decode_establishment_rs_pfcp", other)]:
    print(f"figure {name} {ns:.2f} ns floor {floor:.2f}")
    report["figures"].append({"name": name, "value": ns, "unit": "ns", "floor": floor})
path.write_text(json.dumps(report, indent=2) + "\n")
PY
