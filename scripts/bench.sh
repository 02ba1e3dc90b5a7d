#!/usr/bin/env bash
# All figures, as lines `figure NAME VALUE UNIT floor VALUE`, and as JSON with their conditions.
# usage: scripts/bench.sh [RESULT.json]     (default: benches/results/latest.json)
set -euo pipefail
cd "$(dirname "$0")/.."
result=${1:-benches/results/latest.json}
mkdir -p "$(dirname "$result")"

target/release/lab bench --out "$result"
cargo bench --quiet --locked -p pfcp --bench decode -- --noplot 'establishment 317' >/dev/null 2>&1
make --no-print-directory -C datapath bench | tee target/wheel-figures
python3 - "$result" <<'PY'
import json
import pathlib
import sys

def median(name):
    path = pathlib.Path("target/criterion") / name / "new/estimates.json"
    return json.loads(path.read_text())["median"]["point_estimate"]

value = median("establishment 317 octets, typed rules")
floor = median("establishment 317 octets, bare walk")
other = median("establishment 317 octets, rs-pfcp")
report = json.loads(pathlib.Path(sys.argv[1]).read_text())
for name, ns in [("pfcp_decode_establishment", value), ("pfcp_decode_establishment_rs_pfcp", other)]:
    print(f"figure {name} {ns:.2f} ns floor {floor:.2f}")
    report["figures"].append({"name": name, "value": ns, "unit": "ns", "floor": floor})
for line in pathlib.Path("target/wheel-figures").read_text().splitlines():
    if line.startswith("figure "):
        _, name, value, unit, _, floor = line.split()
        report["figures"].append({"name": name, "value": float(value), "unit": unit, "floor": float(floor)})
pathlib.Path(sys.argv[1]).write_text(json.dumps(report, indent=2) + "\n")
PY
