#!/bin/bash
# Runs the test programs that Open5GS has of its own, with its core, gNB and UE emulators, against a Turnpike:
#
#   scripts/interop/open5gs.sh SOURCE [PROGRAM...]
#
# SOURCE is a built Open5GS 2.7 source tree; PROGRAM of registration, slice, vonr, handover, attach (all, by default), or
# a sub-test, such as slice/paging-test. With $OWN_UPF set, Open5GS' own UPF takes Turnpike's place, to tell faults of the
# emulators from ours. With $KEEP set, logs and captures stay even if all passes.
# Needs root, tshark, and built turnpiked and turnpike (target/release, or $TURNPIKED and beside it).
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
# Each sub-test gets 60 s and three tries ($TRIES), because the emulators have races of their own. N3, N4 and N6 are captured:
# nothing in them may be malformed, and each request to the UPF must be answered. Causes other than 1 and Turnpike's drops
# are listed. Exits with 0 if all sub-tests passed, 1 if not, 2 if something is missing.
set -euo pipefail

usage() {
    sed -n '2,/^# Needs root/s/^# \{0,1\}//p' "$0"
    exit 2
}
missing() {
    echo "missing: $*" >&2
    exit 2
}

# The configuration that PROGRAM takes if none is named: of its own name, or the common one.
sample_of() {
    grep -qs "\"$1.yaml\"" "$SOURCE/tests/$1/abts-main.c" || set -- sample
    echo "$SOURCE/build/configs/$1.yaml"
}

[ $# -ge 1 ] || usage
SOURCE=$(realpath -e "$1" 2>/dev/null) || missing "$1"
shift
WANTED=("$@")
[ ${#WANTED[@]} -gt 0 ] || WANTED=(registration slice vonr handover attach)
PROGRAMS=("${WANTED[@]%%/*}")

ROOT=$(cd "$(dirname "$0")/../.." && pwd)
TURNPIKED=${TURNPIKED:-$ROOT/target/release/turnpiked}
TURNPIKE=$(dirname "$TURNPIKED")/turnpike
LIMIT_S=60
TRIES=${TRIES:-3}
ID=tpo$$
CORE=$ID-core UPF=$ID-upf DN=$ID-dn

[ "$(id -u)" = 0 ] || missing "root"
for tool in ip tshark dumpcap timeout ethtool; do
    command -v "$tool" > /dev/null || missing "$tool"
done
python3 -c 'import yaml' 2> /dev/null || missing "python3-yaml"
if [ -n "${OWN_UPF:-}" ]; then
    [ -x "$SOURCE/build/src/upf/open5gs-upfd" ] || missing "$SOURCE/build/src/upf/open5gs-upfd: ninja -C build"
else
    for binary in "$TURNPIKED" "$TURNPIKE"; do
        [ -x "$binary" ] || missing "$binary (make build)"
    done
fi
[ -f "$SOURCE/meson.build" ] || missing "$SOURCE/meson.build: not a source tree of Open5GS"
[ -d "$SOURCE/build" ] || missing "$SOURCE/build: meson setup build && ninja -C build"
for program in "${PROGRAMS[@]}"; do
    [ -x "$SOURCE/build/tests/$program/$program" ] || missing "$SOURCE/build/tests/$program/$program: ninja -C build"
    sample=$(sample_of "$program")
    [ -f "$sample" ] || missing "$sample"
done
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
    if [ "$status" = 0 ] && [ -z "${KEEP:-}" ]; then
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
    # The gateway is on N6, though its address is one of the UEs' pool.
    ip -n "$UPF" route add 10.45.0.1 via 10.6.0.254
    ip -n "$UPF" -6 route add 2001:db8:cafe::1 via fd06::fe
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

# The SMF gives UEs of both DNNs addresses from one pool.
[[network_instance]]
name = "ims"
interface = "n6"
END
    if ! in_ns "$UPF" "$TURNPIKED" check-config "$WORK/turnpiked.toml" > "$WORK/check-config.log" 2>&1; then
        cat "$WORK/check-config.log" >&2
        exit 1
    fi
    start turnpiked "$UPF" "$TURNPIKED" --config "$WORK/turnpiked.toml"
    until_true "turnpiked is ready" grep -q ready "$WORK/turnpiked.log"
}

# core_config PROGRAM: its sample with our UPF in place of its own.
core_config() {
    python3 - "$(sample_of "$1")" "$WORK/$1.yaml" << 'END'
import sys
import yaml

with open(sys.argv[1]) as file:
    config = yaml.safe_load(file)
config["global"]["parameter"]["no_upf"] = True
config["smf"]["pfcp"] = {"server": [{"address": "10.100.0.2"}], "client": {"upf": [{"address": "10.100.0.1"}]}}
config["smf"]["gtpu"] = {"server": [{"address": "10.100.0.2"}]}
# The SGW-U of 4G sub-tests is between its eNB and the UPF.
config["sgwu"]["gtpu"] = {"server": [{"address": "10.3.0.13"}]}
config["upf"]["pfcp"] = {"server": [{"address": "10.100.0.1"}]}
config["upf"]["gtpu"] = {"server": [{"address": "10.3.0.1"}]}
config["upf"].pop("metrics", None)
with open(sys.argv[2], "w") as file:
    yaml.safe_dump(config, file)
END
}

# Open5GS' UPF has 10.45.0.1 on a TUN of its own.
own_tun() {
    ip -n "$UPF" route del 10.45.0.1
    ip -n "$UPF" -6 route del 2001:db8:cafe::1
    ip -n "$UPF" tuntap add name ogstun mode tun
    ip -n "$UPF" addr add 10.45.0.1/16 dev ogstun
    ip -n "$UPF" addr add 2001:db8:cafe::1/48 dev ogstun nodad
    ip -n "$UPF" link set ogstun up
}

# own_upf PROGRAM: anew, because the test programs end theirs, too, and it does not notice that an SMF has restarted.
own_upf() {
    if [ -n "${UPFD:-}" ]; then
        kill "$UPFD"
        wait "$UPFD" || true
    fi
    start upfd "$UPF" env LD_LIBRARY_PATH="$LIBRARIES" "$SOURCE/build/src/upf/open5gs-upfd" -c "$WORK/$1.yaml"
    UPFD=${STARTED[-1]}
    until_true "open5gs-upfd is ready" grep -q "UPF initialize...done" "$WORK/upfd.log"
}

# program NAME ARGUMENT...: in the core's namespace. What it has not ended itself when it fails is ended for it.
program() {
    local name=$1 status=0 pid
    shift
    in_ns "$CORE" env GNB1_ADDR=10.3.0.11 GNB2_ADDR=10.3.0.12 LD_LIBRARY_PATH="$LIBRARIES" \
        timeout --kill-after=5 "$LIMIT_S" "$SOURCE/build/tests/$name/$name" -c "$WORK/$name.yaml" "$@" || status=$?
    for pid in $(ip netns pids "$CORE"); do
        case $(readlink "/proc/$pid/exe") in
            "$SOURCE"/build/*) kill -9 "$pid" 2> /dev/null || true ;;
        esac
    done
    return "$status"
}

# One sub-test, up to three times.
sub_test() {
    local program=$1 name=$2 try status log
    for ((try = 1; try <= TRIES; try++)); do
        [ -z "${OWN_UPF:-}" ] || own_upf "$program"
        status=0
        log=$WORK/$program-$name-$try.log
        program "$program" "$name" > "$log" 2>&1 || status=$?
        if [ "$status" = 0 ]; then
            echo "PASS $program $name (try $try)"
            return 0
        fi
        # 124: still waiting for something when its time was over.
        echo "     $program $name (try $try): status $status $(tr -d '\b' < "$log" | grep -aoE -m1 'Line [0-9]+:.*|FATAL.*')"
    done
    echo "FAIL $program $name"
    return 1
}

LIBRARIES=${CURL_LIB:-}${CURL_LIB:+:}${LD_LIBRARY_PATH:-}
network
for program in "${PROGRAMS[@]}"; do
    core_config "$program"
done
if [ -n "${OWN_UPF:-}" ]; then
    own_tun
else
    turnpike
fi
start mongodb "$CORE" sh -c "exec $MONGODB"
until_true "the database listens" in_ns "$CORE" bash -c 'exec 3<> /dev/tcp/127.0.0.1/27017'
# At the far ends: what XDP takes in or redirects is not seen at Turnpike's own.
CAPTURES=()
ENDS=("$CORE n3" "$CORE n4")
[ -n "${OWN_UPF:-}" ] || ENDS+=("$DN n6")
for at in "${ENDS[@]}"; do
    interface=${at##* }
    start "dumpcap-$interface" "${at%% *}" dumpcap -q -i "$interface" -w "$WORK/$interface.pcapng"
    CAPTURES+=("${STARTED[-1]}")
    until_true "a capture on $interface" test -s "$WORK/$interface.pcapng"
done

failed=0
for wanted in "${WANTED[@]}"; do
    program=${wanted%%/*}
    if [ "$program" = "$wanted" ]; then
        # The programs list their sub-tests, one a line.
        program "$program" -l > "$WORK/$program.list" 2>&1 || true
        mapfile -t names < <(grep -oE '^[a-z0-9][a-z0-9-]*-test$' "$WORK/$program.list")
    else
        names=("${wanted#*/}")
    fi
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
captured() {
    local interface=$1
    shift
    tshark -2 -n -r "$WORK/$interface.pcapng" "$@" 2> /dev/null
}
for at in "${ENDS[@]}"; do
    interface=${at##* }
    malformed=$(captured "$interface" -Y _ws.malformed | wc -l)
    frames=$(captured "$interface" | wc -l)
    echo "$interface: $frames frames, $malformed malformed"
    [ "$malformed" = 0 ] && [ "$frames" != 0 ] || failed=$((failed + 1))
done
REQUESTS="pfcp.msg_type in {1, 3, 5, 7, 9, 14, 50, 52, 54}"
unanswered=$(captured n4 -Y "!icmp && ip.dst == 10.100.0.1 && $REQUESTS && !pfcp.response_in" | wc -l)
echo "n4: $unanswered requests without an answer"
# Their UPF ends with the sub-tests.
[ "$unanswered" = 0 ] || [ -n "${OWN_UPF:-}" ] || failed=$((failed + 1))
captured n4 -Y 'pfcp.cause != 1' -T fields -e ip.src -e pfcp.msg_type -e pfcp.cause | sort | uniq -c |
    awk '{ print "n4: " $1 " times " $2 " answered with message " $3 ", cause " $4 }'
if [ -z "${OWN_UPF:-}" ]; then
    in_ns "$UPF" "$TURNPIKE" drops
    in_ns "$UPF" "$TURNPIKE" status
fi
echo "$failed failed"
[ "$failed" = 0 ]
