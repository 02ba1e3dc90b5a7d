#!/usr/bin/env bash
# Install what building, testing and the demo need on Debian 12 (as root). Says nothing when all is there.
# --dpdk: what the data path over DPDK needs beside; --tests: that, DPDK's programs, which tests forward by, and what packages are
# made and tried with; --ci: that, and what only the gate needs; --lint: what tests need, and what judges dependencies; --packages:
# what tests need, and what lists dependencies; --fuzz: what cargo's fuzz targets need beside;
# --monitoring: what judges alerts, which --lint brings, too; --helm: what the Helm chart is judged by;
# --page: what the page is tried with; --nrf: what is tried with NRFs and consumers of events.
set -euo pipefail

# package:file that proves it is installed
needs=(
  build-essential:/usr/bin/cc
  clang:/usr/bin/clang
  clang-19:/usr/bin/clang-19
  'libclang-rt-14-dev:/usr/lib/llvm-14/lib/clang/*/lib/linux/libclang_rt.asan-*.a'
  llvm:/usr/bin/llvm-strip
  libbpf-dev:/usr/include/bpf/bpf_helpers.h
  libelf-dev:/usr/include/libelf.h
  zlib1g-dev:/usr/include/zlib.h
  pkg-config:/usr/bin/pkg-config
  linux-libc-dev:/usr/include/linux/bpf.h
  iproute2:/usr/sbin/ip
  iputils-ping:/usr/bin/ping
  iperf3:/usr/bin/iperf3
  curl:/usr/bin/curl
  ethtool:/usr/sbin/ethtool
  tshark:/usr/bin/tshark
  python3-scapy:/usr/lib/python3/dist-packages/scapy/__init__.py
)

case ${1:-} in '' | --fuzz | --monitoring | --page | --nrf) ;; *) needs+=(libdpdk-dev:/usr/include/dpdk/rte_ethdev.h) ;; esac
case ${1:-} in
  --tests | --ci | --lint | --packages)
    needs+=(
      dpdk-dev:/usr/bin/dpdk-testpmd
      debhelper:/usr/bin/dh
      lintian:/usr/bin/lintian
      mmdebstrap:/usr/bin/mmdebstrap
      buildah:/usr/bin/buildah
      podman:/usr/bin/podman
      runc:/usr/sbin/runc
      libcap2-bin:/usr/sbin/setcap
      jq:/usr/bin/jq
    )
    ;;
esac
case ${1:-} in
  --helm | --ci | --lint | --monitoring) needs+=(python3-yaml:/usr/lib/python3/dist-packages/yaml/__init__.py) ;;
esac
case ${1:-} in --helm | --nrf | --ci) needs+=(python3-jsonschema:/usr/lib/python3/dist-packages/jsonschema/__init__.py) ;; esac
case ${1:-} in --nrf | --ci) needs+=(python3-h2:/usr/lib/python3/dist-packages/h2/__init__.py openssl:/usr/bin/openssl) ;; esac
case ${1:-} in --page | --ci) needs+=(chromium:/usr/bin/chromium chromium-driver:/usr/bin/chromedriver) ;; esac
case ${1:-} in --fuzz) needs+=('libclang-rt-19-dev:/usr/lib/llvm-19/lib/clang/*/include/sanitizer/asan_interface.h') ;; esac

# apt-get, once nobody else has its locks: a machine that has just started looks for updates for minutes. apt waits for one
# of its locks by itself (DPkg::Lock::Timeout), not for those of the lists and of the archives.
apt_get() {
  local until=$((SECONDS + 900)) said='' error
  error=$(mktemp)
  # shellcheck disable=SC2064
  trap "rm -f '$error'" RETURN
  until apt-get -qq -o DPkg::Lock::Timeout=900 "$@" 2>"$error"; do
    if [ $SECONDS -ge $until ] || ! grep -qiE 'could not get lock|unable to (lock|acquire)' "$error"; then
      cat "$error" >&2
      return 1
    fi
    [ -n "$said" ] || echo "setup: another program is installing packages: waiting for it" >&2
    said=1
    sleep 2
  done
}

missing=()
for need in "${needs[@]}"; do
  compgen -G "${need#*:}" >/dev/null || missing+=("${need%%:*}")
done
# The supported range of compilers for the data path; CI loads the program from each.
if [ "${1:-}" = --ci ]; then
  [ -e /usr/bin/clang-16 ] || missing+=(clang-16)
fi

if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "setup: missing ${missing[*]}; install them with your distribution's package manager" >&2
    exit 1
  fi
  if [ "$(id -u)" != 0 ]; then
    echo "setup: missing ${missing[*]}; run this as root" >&2
    exit 1
  fi
  echo "setup: installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt_get update
  apt_get install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

# promtool, in build/tools: its package would start Prometheus.
promtool() {
  local to from
  to=$(dirname "$0")/../build/tools/bin
  [ ! -x "$to/promtool" ] || return 0
  echo "setup: installing promtool"
  from=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$from'" EXIT
  if ! (cd "$from" && apt-get -qq -o APT::Sandbox::User=root download prometheus >/dev/null 2>&1); then
    apt_get update
    (cd "$from" && apt_get -o APT::Sandbox::User=root download prometheus >/dev/null)
  fi
  mkdir -p "$to"
  dpkg-deb --fsys-tarfile "$from"/prometheus_*.deb | tar -x -C "$from" ./usr/bin/promtool
  mv "$from/usr/bin/promtool" "$to"
}
case ${1:-} in --lint | --monitoring) promtool ;; esac
[ "${1:-}" != --monitoring ] || exit 0

if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
  PATH="$HOME/.cargo/bin:$PATH"
fi
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
if ! command -v cargo >/dev/null; then
  echo "setup: no Rust toolchain. Turnpike needs Rust $wanted or later: install it with rustup (https://rustup.rs)" >&2
  exit 1
fi
have=$(rustc --version | cut -d' ' -f2)
if [ "$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -n1)" != "$wanted" ]; then
  echo "setup: Rust $have is too old; Turnpike needs $wanted or later: rustup update" >&2
  exit 1
fi

# cargo_tool NAME VERSION [OPTION]...: a program of cargo's, in build/tools.
cargo_tool() {
  local name=$1 version=$2 to
  shift 2
  to=$(dirname "$0")/../build/tools
  grep -qs "^\"$name $version " "$to/.crates.toml" && return
  echo "setup: installing $name $version"
  CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --root "$to" "$@" "$name@$version"
}
# go_tool NAME VERSION MODULE PATH: a program of Go's, in build/tools. Modules and what is built of them stay in Go's caches, so that the
# next clone has it in seconds.
go_tool() {
  local name=$1 version=$2 module=$3 path=$4 wanted=1.24 to have
  to=$(realpath "$(dirname "$0")/..")/build/tools
  grep -qsx "$name $version" "$to/.go-tools" && return
  PATH=$PATH:/usr/local/go/bin
  have=$(go env GOVERSION 2>/dev/null) && have=${have#go} || have=0
  if [ "$(printf '%s\n%s\n' $wanted "$have" | sort -V | head -n1)" != $wanted ]; then
    echo "setup: no Go toolchain of $wanted or later, which $name needs: https://go.dev/doc/install, into /usr/local/go" >&2
    exit 1
  fi
  echo "setup: installing $name $version"
  mkdir -p "$to/bin"
  GOBIN=$to/bin CGO_ENABLED=0 go install -trimpath -ldflags='-s -w' "$module/$path@$version" 2>"$to/.go-log" || { cat "$to/.go-log" >&2 && exit 1; }
  rm "$to/.go-log"
  sed -i "/^$name /d" "$to/.go-tools" 2>/dev/null || :
  echo "$name $version" >>"$to/.go-tools"
}
case ${1:-} in
  --lint) cargo_tool cargo-deny 0.20.2 --debug ;;
  --packages)
    cargo_tool cargo-about 0.9.3 --features cli
    cargo_tool cargo-cyclonedx 0.5.9 --debug
    ;;
  --helm)
    go_tool helm v3.19.5 helm.sh/helm/v3 cmd/helm
    go_tool kubeconform v0.7.0 github.com/yannh/kubeconform cmd/kubeconform
    for plugin in main/host-device main/macvlan main/tap ipam/static meta/tuning; do
      go_tool "${plugin#*/}" v1.6.2 github.com/containernetworking/plugins "plugins/$plugin"
    done
    ;;
esac

[ "${1:-}" = --fuzz ] || exit 0
if ! cargo +nightly --version >/dev/null 2>&1; then
  echo "setup: fuzz targets need a nightly toolchain: rustup toolchain install nightly" >&2
  exit 1
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
  echo "setup: installing cargo-fuzz"
  cargo install --quiet --locked cargo-fuzz
fi
