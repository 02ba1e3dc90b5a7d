#!/usr/bin/env bash
# What is linked into the programs: THIRD-PARTY with the licences, and a bill of materials of each program (CycloneDX), into a folder.
# usage: scripts/bom.sh FOLDER
set -euo pipefail
to=$(realpath "$1")
cd "$(dirname "$0")/.."
tools=$PWD/build/tools
export PATH=$tools/bin:$PATH

cargo about generate --locked --workspace --config debian/about.toml --output-file "$to/THIRD-PARTY" debian/about.hbs

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
name=bill-of-materials
trap 'find crates -name "$name.json" -delete' EXIT
cargo cyclonedx --quiet --format json --no-build-deps --all-features --override-filename $name
for program in turnpike turnpiked lab; do
	# Names of our own crates hold the folder that they were built in.
	sed "s|path+file://$PWD/|path+file:///|g" "crates/$program/$name.json" >"$to/$program.cdx.json"
done
