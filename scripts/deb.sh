#!/usr/bin/env bash
# Debian packages, into $PACKAGES (build/deb), where none of a former build are left. PREBUILT=target/debug is for tests: debian/rules.
set -euo pipefail
cd "$(dirname "$0")/.."
to=${PACKAGES:-build/deb}
mkdir -p "$to"
rm -f "$to"/*.deb "$to"/*.buildinfo "$to"/*.changes
name=turnpike_$(dpkg-parsechangelog -S Version)_$(dpkg --print-architecture)
debian/rules clean >/dev/null
trap 'debian/rules clean >/dev/null' EXIT
# One after the other, as dpkg-buildpackage does; it looks for the packages beside the tree alone.
debian/rules binary
dpkg-genbuildinfo --build=binary -u"$to" -O"$to"/"$name".buildinfo
dpkg-genchanges --build=binary -u"$to" -O"$to"/"$name".changes
ls -l "$to"/*.deb
