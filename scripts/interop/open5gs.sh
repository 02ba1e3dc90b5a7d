#!/bin/bash
# Runs the test programs that Open5GS has of its own, with its core, gNB and UE emulators, against a Turnpike:
#
#   scripts/interop/open5gs.sh SOURCE [PROGRAM...]
#
# SOURCE is a built Open5GS 2.7 source tree; PROGRAM of registration, slice, vonr, handover, attach (all, by default).
# Needs root, tshark, and a built turnpiked (target/release, or $TURNPIKED).
#
# SOURCE must have been built so, with meson into SOURCE/build:
#   - SCTP by usrsctp (the branch of lib/sctp/meson.build for it), unless the kernel has SCTP;
#   - tests/common/context.c takes the addresses of the two gNBs from $GNB1_ADDR and $GNB2_ADDR, because tunnels to
#     127.0.0.0/8 are refused;
#   - a libcurl of 8.5 or later: that of Debian 12 cannot use a prior-knowledge HTTP/2 connection twice. $CURL_LIB names
#     its folder, if the loader does not find it.
# A MongoDB, or something that speaks its protocol, is started by $MONGODB (a command that stays in the foreground and
# listens at 127.0.0.1:27017 of the namespace that it is started in).
#
# The core, gNBs and UEs are in one namespace, Turnpike in another, the data network in a third:
#
#   core 10.100.0.2                  n4  10.100.0.1
#   gNBs 10.3.0.11, .12; SGW-U .13   n3  10.3.0.1    turnpiked  10.6.0.1  n6  10.6.0.254, 10.45.0.1, 2001:db8:cafe::1
#
# The SMF's end of tunnels for Router Solicitations is 10.100.0.2, too; what it sends into them comes by n3.
#
# Each sub-test gets 60 s and three tries, because the emulators have races of their own. N3, N4 and N6 are captured,
# and nothing in them may be malformed. Exits with 0 if all sub-tests passed, 1 if not, 2 if something is missing.
#
# It has not been run against a built tree yet: where it and SOURCE disagree, SOURCE is right.
set -euo pipefail

usage() {
    sed -n '2,/^# Needs root/s/^# \{0,1\}//p' "$0"
    exit 2
}
missing() {
    echo "missing: $*" >&2
    exit 2
}

[ $# -ge 1 ] || usage
SOURCE=$(realpath -e "$1" 2>/dev/null) || missing "$1"
shift
PROGRAMS=("$@")
[ ${#PROGRAMS[@]} -gt 0 ] || PROGRAMS=(registration slice vonr handover attach)

ROOT=$(cd "$(dirname "$0")/../.." && pwd)
TURNPIKED=${TURNPIKED:-$ROOT/target/release/turnpiked}
LIMIT_S=60
TRIES=3
ID=tpo$$
CORE=$ID-core UPF=$ID-upf DN=$ID-dn

[ "$(id -u)" = 0 ] || missing "root"
for tool in ip tshark dumpcap timeout ethtool; do
    command -v "$tool" > /dev/null || missing "$tool"
done
python3 -c 'import yaml' 2> /dev/null || missing "python3-yaml"
[ -x "$TURNPIKED" ] || missing "$TURNPIKED (make build)"
[ -f "$SOURCE/meson.build" ] || missing "$SOURCE/meson.build: not a source tree of Open5GS"
[ -d "$SOURCE/build" ] || missing "$SOURCE/build: meson setup build && ninja -C build"
for program in "${PROGRAMS[@]}"; do
    [ -x "$SOURCE/build/tests/$program/$program" ] || missing "$SOURCE/build/tests/$program/$program: ninja -C build"
done
SAMPLE=$SOURCE/build/configs/sample.yaml
[ -f "$SAMPLE" ] || missing "$SAMPLE"
grep -q GNB1_ADDR "$SOURCE/tests/common/context.c" || missing "\$GNB1_ADDR in tests/common/context.c; see $0"
[ -n "${MONGODB:-}" ] || missing "\$MONGODB, a command that starts a MongoDB"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/open5gs.XXXXXX")
STARTED=()

# Ends what was started here, and whatever runs in the namespaces made here.
clean_up() {
    local status=$? pid netns
    trap - EXIT
    for pid in "${STARTED[@]}"; do
        kill "$pid" 2> /dev/null || true
    done
    for netns in "$CORE" "$UPF" "$DN"; do
        [ -e "/run/netns/$netns" ] || continue
        ip netns pids "$netns" | xargs -r kill -9 2> /dev/null || true
        ip netns del "$netns" || true
    done
    wait 2> /dev/null || true
    if [ "$status" = 0 ]; then
        rm -rf "$WORK"
    else
        echo "logs and captures are in $WORK" >&2
    fi
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

in_ns() { ip netns exec "$@"; }

# start NAME NETNS COMMAND...: in the background, with a log of its own.
start() {
    local name=$1 netns=$2
    shift 2
    ip netns exec "$netns" "$@" > "$WORK/$name.log" 2>&1 &
    STARTED+=($!)
}

# until_true WHAT COMMAND...: waits for an event; the limit only says "never".
until_true() {
    local what=$1 deadline=$((SECONDS + LIMIT_S))
    shift
    until "$@" > /dev/null 2>&1; do
        if [ "$SECONDS" -ge "$deadline" ]; then
            echo "never came: $what" >&2
            exit 1
        fi
        sleep 0.1
    done
}

network() {
    local netns
    for netns in "$CORE" "$UPF" "$DN"; do
        ip netns add "$netns"
        ip -n "$netns" link set lo up
    done
    # usrsctp binds to addresses that exist only.
    local last
    for last in 2 3 4 5 6 7 8 9; do
        ip -n "$CORE" addr add "127.0.0.$last/8" dev lo
    done
    cable n4 "$CORE" 10.100.0.1/24 10.100.0.2/24
    cable n3 "$CORE" 10.3.0.1/24 10.3.0.11/24 10.3.0.12/24 10.3.0.13/24
    cable n6 "$DN" 10.6.0.1/24 10.6.0.254/24 10.45.0.1/32 2001:db8:cafe::1/128
    ip -n "$UPF" addr add fd06::1/64 dev n6 nodad
    ip -n "$DN" addr add fd06::fe/64 dev n6 nodad
    ip -n "$UPF" route add default via 10.6.0.254
    ip -n "$UPF" -6 route add default via fd06::fe
    ip -n "$DN" route add 10.45.0.0/16 via 10.6.0.1
    ip -n "$DN" -6 route add 2001:db8:cafe::/48 via fd06::1
}

# cable NAME NETNS OURS THEIRS...: a veth from Turnpike's namespace to another one.
cable() {
    local name=$1 netns=$2 ours=$3 address
    shift 3
    ip link add name "$name" netns "$UPF" type veth peer name "$name" netns "$netns"
    ip -n "$UPF" addr add "$ours" dev "$name"
    for address in "$@"; do
        ip -n "$netns" addr add "$address" dev "$name" nodad 2> /dev/null ||
            ip -n "$netns" addr add "$address" dev "$name"
    done
    ip -n "$UPF" link set "$name" up
    ip -n "$netns" link set "$name" up
    # A veth peer takes forwarded frames with GRO alone, and must compute its checksums itself.
    in_ns "$netns" ethtool -K "$name" gro on tx off > /dev/null
}

turnpike() {
    cat > "$WORK/turnpiked.toml" << 'END'
[node]
id = "10.100.0.1"

[n4]
listen = "10.100.0.1:8805"

[gtpu]
# The emulated gNBs take an Echo Request for the packet that they wait for.
echo_interval_s = 0

[[interface]]
name = "n3"
role = "n3"
addresses = ["10.3.0.1"]

[[interface]]
name = "n6"
role = "n6"

[[network_instance]]
name = "internet"
interface = "n6"
pools = ["10.45.0.0/16", "2001:db8:cafe::/48"]

[[network_instance]]
name = "ims"
interface = "n6"
pools = ["10.46.0.0/16", "2001:db8:babe::/48"]
END
    if ! in_ns "$UPF" "$TURNPIKED" check-config "$WORK/turnpiked.toml" > "$WORK/check-config.log" 2>&1; then
        cat "$WORK/check-config.log" >&2
        exit 1
    fi
    start turnpiked "$UPF" "$TURNPIKED" --config "$WORK/turnpiked.toml"
    until_true "turnpiked is ready" grep -q ready "$WORK/turnpiked.log"
}

# The sample with our UPF in place of its own; how its lines look is checked, because it changes between releases.
core_config() {
    python3 - "$SAMPLE" "$WORK/open5gs.yaml" << 'END'
import sys
import yaml

with open(sys.argv[1]) as file:
    config = yaml.safe_load(file)
config.setdefault("global", {}).setdefault("parameter", {})["no_upf"] = True
smf = config["smf"]
smf["pfcp"] = {"server": [{"address": "10.100.0.2"}], "client": {"upf": [{"address": "10.100.0.1"}]}}
smf["gtpu"] = {"server": [{"address": "10.100.0.2"}]}
# The SGW-U of 4G sub-tests is between its eNB and Turnpike.
config["sgwu"]["gtpu"] = {"server": [{"address": "10.3.0.13"}]}
config["upf"]["pfcp"] = {"server": [{"address": "10.100.0.1"}]}
config["upf"]["gtpu"] = {"server": [{"address": "10.3.0.1"}]}
with open(sys.argv[2], "w") as file:
    yaml.safe_dump(config, file)
END
}

# One sub-test, up to three times.
sub_test() {
    local program=$1 name=$2 try
    for ((try = 1; try <= TRIES; try++)); do
        if in_ns "$CORE" env GNB1_ADDR=10.3.0.11 GNB2_ADDR=10.3.0.12 \
            LD_LIBRARY_PATH="${CURL_LIB:-}${CURL_LIB:+:}${LD_LIBRARY_PATH:-}" \
            timeout --kill-after=5 "$LIMIT_S" "$SOURCE/build/tests/$program/$program" \
            -c "$WORK/open5gs.yaml" "$name" > "$WORK/$program-$name-$try.log" 2>&1; then
            echo "PASS $program $name (try $try)"
            return 0
        fi
    done
    echo "FAIL $program $name: $WORK/$program-$name-$TRIES.log"
    return 1
}

network
turnpike
core_config
start mongodb "$CORE" sh -c "exec $MONGODB"
until_true "the database listens" in_ns "$CORE" bash -c 'exec 3<> /dev/tcp/127.0.0.1/27017'
# At the far ends: what XDP takes in or redirects is not seen at Turnpike's own.
CAPTURES=()
for at in "$CORE n3" "$CORE n4" "$DN n6"; do
    interface=${at##* }
    start "dumpcap-$interface" "${at%% *}" dumpcap -q -i "$interface" -w "$WORK/$interface.pcapng"
    CAPTURES+=("${STARTED[-1]}")
    until_true "a capture on $interface" test -s "$WORK/$interface.pcapng"
done

failed=0
for program in "${PROGRAMS[@]}"; do
    # The programs list their sub-tests, one a line.
    in_ns "$CORE" timeout --kill-after=5 "$LIMIT_S" "$SOURCE/build/tests/$program/$program" \
        -l -c "$WORK/open5gs.yaml" > "$WORK/$program.list" 2>&1 || true
    mapfile -t names < <(grep -oE '^[[:space:]]*[a-z0-9][a-z0-9-]*[[:space:]]*$' "$WORK/$program.list" | tr -d '[:blank:]')
    if [ ${#names[@]} = 0 ]; then
        echo "FAIL $program: it lists no sub-tests: $WORK/$program.list"
        failed=$((failed + 1))
        continue
    fi
    for name in "${names[@]}"; do
        sub_test "$program" "$name" || failed=$((failed + 1))
    done
done

# The kernel hands frames on in blocks, a part of a second late; the last are in the files when dumpcap has ended.
sleep 2
kill "${CAPTURES[@]}"
wait "${CAPTURES[@]}" || true
for interface in n3 n4 n6; do
    malformed=$(tshark -n -r "$WORK/$interface.pcapng" -Y _ws.malformed 2> /dev/null | wc -l)
    frames=$(tshark -n -r "$WORK/$interface.pcapng" 2> /dev/null | wc -l)
    echo "$interface: $frames frames, $malformed malformed"
    [ "$malformed" = 0 ] && [ "$frames" != 0 ] || failed=$((failed + 1))
done
echo "$failed failed"
[ "$failed" = 0 ]
