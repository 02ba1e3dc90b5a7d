#!/usr/bin/env bash
# Debian packages, into $PACKAGES (build/deb), where none of a former build are left, nor images of them. PREBUILT=target/debug is for tests: debian/rules.
set -euo pipefail
cd "$(dirname "$0")/.."
to=${PACKAGES:-build/deb}
mkdir -p "$to" build
# They are made in the tree.
exec 9>build/deb.lock
flock 9
rm -f "$to"/*.deb "$to"/*.buildinfo "$to"/*.changes "$to"/*.oci.tar
debian/rules clean >/dev/null
trap 'debian/rules clean >/dev/null' EXIT
# One after the other, as dpkg-buildpackage does; it looks for the packages beside the tree alone.
debian/rules binary
name=$(basename "$to"/turnpike_*.deb .deb)
dpkg-genbuildinfo --build=binary -u"$to" -O"$to"/"$name".buildinfo
dpkg-genchanges --build=binary -u"$to" -O"$to"/"$name".changes
ls -l "$to"/*.deb
