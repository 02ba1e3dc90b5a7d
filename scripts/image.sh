#!/usr/bin/env bash
# OCI image of turnpiked from Debian packages: a root with what it is linked to, and nothing that runs beside; no registry is asked.
# usage: scripts/image.sh FOLDER-OF-PACKAGES [PACKAGE]
# PACKAGE: turnpike, or turnpike-dpdk, whose image has DPDK's drivers. The archive PACKAGE.oci.tar lies beside the packages:
# podman load -i, or skopeo copy oci-archive:… docker://….
set -euo pipefail
from=$(realpath "$1")
package=${2:-turnpike}
cd "$(dirname "$0")/.."
# Of the process, whom no image's /etc/passwd has to name, and of mounts that it writes to.
user=8805
capabilities=cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon

to=$from/$package.oci.tar
work=$(mktemp -d)
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs)
trap 'buildah "${storage[@]}" rm --all >/dev/null || :; rm -rf "$work"' EXIT

packages=("$from"/turnpike_*.deb)
case $package in
  turnpike) program=turnpiked ;;
  turnpike-dpdk) program=turnpiked-dpdk packages+=("$from"/turnpike-dpdk_*.deb) ;;
  *) echo "image: no image is made of $package" >&2 && exit 2 ;;
esac
field() { dpkg-deb --field "${packages[0]}" "$1"; }

# Users are made below.
needed=$(for one in "${packages[@]}"; do dpkg-deb --field "$one" Depends; done |
  tr ',' '\n' | sed 's/[|(].*//' | tr -d ' ' | grep -vxE 'systemd|turnpike' | sort -u | paste -sd,)
root=$work/root
without=()
for path in 'man/*' 'info/*' 'locale/*' 'lintian/*' 'bash-completion/*' 'fish/*' 'zsh/*' 'doc/*'; do
  without+=(--dpkgopt="path-exclude=/usr/share/$path")
done
mmdebstrap --quiet --variant=extract --include="$needed" "${without[@]}" --dpkgopt='path-exclude=/usr/lib/*/gconv/*' \
  --dpkgopt='path-include=/usr/share/doc/*/copyright' bookworm "$root"
for one in "${packages[@]}"; do
  dpkg-deb --fsys-tarfile "$one" | tar -C "$root" -x --wildcards --exclude='./lib/*' --exclude='./usr/lib/*' \
    --exclude='./usr/share/[!dt]*' --exclude='./usr/share/doc/*.md*' --exclude='./usr/share/doc/*/changelog*'
done
# Whom a name is asked of.
echo "turnpike:x:$user:$user:Turnpike UPF:/:/usr/sbin/nologin" >"$root/etc/passwd"
echo "turnpike:x:$user:" >"$root/etc/group"
mkdir -p "$root/etc/turnpike"
install -d -o $user -g $user -m 755 "$root/run/turnpike"
install -d -o $user -g $user -m 700 "$root/run/turnpike-bpf" "$root/var/log/turnpike"
rm -rf "$root"/var/{cache,lib/{apt,dpkg}} "$root"/etc/apt
# Engines give a user who is not root no effective capabilities, but for podman; those of the file are its own.
setcap $capabilities=ep "$root/usr/bin/$program"

epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
container=$(buildah "${storage[@]}" from scratch)
mount=$(buildah "${storage[@]}" mount "$container")
cp -a "$root/." "$mount"
buildah "${storage[@]}" umount "$container" >/dev/null
buildah "${storage[@]}" config --user $user:$user --workingdir / --stop-signal TERM \
  --entrypoint "[\"/usr/bin/$program\"]" --cmd '--config /etc/turnpike/turnpiked.toml' \
  --label "org.opencontainers.image.title=$package" --label "org.opencontainers.image.version=$(field Version)" \
  --label "org.opencontainers.image.description=5G User Plane Function" --label org.opencontainers.image.licenses=Apache-2.0 \
  "$container"
rm -f "$to"
# A tag has no ~.
tag=$(field Version | tr '~+' '--')
buildah "${storage[@]}" commit --quiet --format oci --timestamp "$epoch" "$container" "oci-archive:$to:localhost/$package:$tag" >/dev/null
echo "$to: localhost/$package:$tag, $(du -sm --apparent-size "$root" | cut -f1) MB unpacked"
