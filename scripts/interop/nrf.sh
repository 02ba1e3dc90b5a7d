#!/bin/bash
# Runs turnpiked with [nrf] against NRFs that others wrote:
#
#   scripts/interop/nrf.sh build FOLDER              Open5GS' nrfd, free5GC's NRF and FerretDB, made in FOLDER, with one process at a time
#   scripts/interop/nrf.sh run FOLDER [NRF...]       NRF: open5gs, open5gs-tls (which demands a certificate), free5gc, free5gc-oauth; all by
#                                                    default
#
# build takes the sources from $OPEN5GS_GIT and $FREE5GC_NRF_GIT, repositories, by default those of their authors, and FerretDB, which is
# free5GC's database here, as a module of Go. It needs git, Go 1.26, and of Debian meson ninja-build flex bison libgnutls28-dev
# libgcrypt20-dev libidn-dev libyaml-dev libnghttp2-dev libmicrohttpd-dev libtalloc-dev libcurl4-gnutls-dev libssl-dev.
# run needs root, curl, jq, openssl, tshark, and built turnpiked and turnpike (target/release, or $TURNPIKED and beside it). Each NRF, and all that
# is started, is in namespaces that end with it.
#
# Of each NRF: the UPF is registered and found by discovery, three heartbeats are granted, an NRF that was started anew has the UPF
# again, and not after turnpiked has ended. What was asked and answered is read from a capture. Exits with 0 if all of it held.
set -euo pipefail

OPEN5GS=v2.7.7 FREE5GC_NRF=v1.4.5 FERRETDB=v1.24.2
LIMIT_S=60
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
TURNPIKED=${TURNPIKED:-$ROOT/target/release/turnpiked}

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"
    exit 2
}
missing() {
    echo "missing: $*" >&2
    exit 2
}

# source_of REPOSITORY TAG FOLDER
source_of() {
    [ -d "$3/.git" ] || git clone --quiet --no-checkout "$1" "$3"
    git -C "$3" checkout --quiet --force "$2"
}

build() {
    export CCACHE_DISABLE=1 CGO_ENABLED=0 GOFLAGS=-buildvcs=false
    mkdir -p "$1/bin"
    source_of "${OPEN5GS_GIT:-https://github.com/open5gs/open5gs}" $OPEN5GS "$1/open5gs"
    # nrfd wants neither SCTP nor Diameter nor a database: what brings them is left out, and their sources need not be there.
    sed -i -E "/^subdir\('(dbi|ipfw|tun|metrics|sctp|diameter|asn1c|ngap|s1ap|nas|gtp|pfcp)'\)/d" "$1/open5gs/lib/meson.build"
    sed -i -E "/^subdir\('(mme|hss|sgwc|sgwu|pcrf|scp|sepp|udr|udm|pcf|nssf|bsf|ausf|upf|smf|amf)'\)/d" "$1/open5gs/src/meson.build"
    sed -i -E "/^ *subdir\('(misc|tests|tests\/fuzzing)'\)/d" "$1/open5gs/meson.build"
    [ -d "$1/open5gs/build" ] || meson setup --buildtype=plain -Dwarning_level=0 "$1/open5gs/build" "$1/open5gs" > "$1/open5gs.log"
    nice -n 10 ninja -C "$1/open5gs/build" -j1 src/nrf/open5gs-nrfd > "$1/open5gs.log"
    source_of "${FREE5GC_NRF_GIT:-https://github.com/free5gc/nrf}" $FREE5GC_NRF "$1/free5gc-nrf"
    (cd "$1/free5gc-nrf" && nice -n 10 go build -p 1 -o ../bin/free5gc-nrf ./cmd)
    # Its version is a file that its own build makes.
    local module
    module=$(cd "$(mktemp -d)" && go mod init nowhere 2> /dev/null && go mod download -json github.com/FerretDB/FerretDB@$FERRETDB | jq -r .Dir)
    rm -rf "$1/ferretdb"
    cp -r "$module" "$1/ferretdb"
    chmod -R u+w "$1/ferretdb"
    echo $FERRETDB > "$1/ferretdb/build/version/version.txt"
    (cd "$1/ferretdb" && nice -n 10 go build -p 1 -trimpath -ldflags='-s -w' -o ../bin/ferretdb ./cmd/ferretdb)
}

# until_true WHAT COMMAND...: waits for an event; the limit only says "never".
until_true() {
    local what=$1 deadline=$((SECONDS + LIMIT_S))
    shift
    until "$@" > /dev/null 2>&1; do
        if [ "$SECONDS" -ge "$deadline" ]; then
            echo "never came: $what" >&2
            tail -n 40 "$WORK"/*.log >&2 || true
            exit 1
        fi
        sleep 0.2
    done
}

# An SMF's search for UPFs.
search() {
    curl --silent --show-error --max-time 5 --http2 --http2-prior-knowledge --user-agent SMF "${CURL[@]}" \
        "$NRF/nnrf-disc/v1/nf-instances?target-nf-type=UPF&requester-nf-type=SMF"
}
# An SMF that may search, where that wants a token.
identify() {
    local id=3b0c9d5e-6a1f-4c8b-9a44-0d1b2c3e4f50 token
    [ "$KIND" = free5gc-oauth ] || return 0
    curl --silent --fail --max-time 5 --http2-prior-knowledge -X PUT -H 'content-type: application/json' --output "$WORK/smf.json" \
        -d "{\"nfInstanceId\":\"$id\",\"nfType\":\"SMF\",\"nfStatus\":\"REGISTERED\",\"ipv4Addresses\":[\"10.100.0.2\"]}" "$NRF/nnrf-nfm/v1/nf-instances/$id"
    token=$(curl --silent --fail --max-time 5 --http2-prior-knowledge "$NRF/oauth2/token" \
        -d "grant_type=client_credentials&nfInstanceId=$id&nfType=SMF&targetNfType=NRF&scope=nnrf-disc" | jq -r .access_token)
    CURL=(-H "authorization: Bearer $token")
}
found() { search | jq -e '.nfInstances | length == 1'; }
lost() { search | jq -e '(.nfInstances // []) | length == 0'; }
listens() { (exec 3<> "/dev/tcp/$1/$2") 2> /dev/null; }
# granted COUNT: so many heartbeats were, by the capture.
granted() { [ "$(asked | awk '$1 == "PATCH" && ($2 == 200 || $2 == 204)' | wc -l)" -ge "$1" ]; }

# Each request of turnpiked with the status of its answer, a line each, as it was on the wire.
asked() {
    tshark -2 -n -r "$WORK/sbi.pcapng" "${TSHARK[@]}" -Y 'http2.headers.method || http2.headers.status' -T fields \
        -e tcp.stream -e http2.streamid -e http2.headers.method -e http2.headers.path -e http2.headers.status -e http2.headers.user_agent 2> /dev/null |
        awk -F '\t' '
            { split($2, stream, ","); key = $1 " " stream[1] }
            $3 { method[key] = $3; agent[key] = $6; next }
            $5 && agent[key] ~ /^UPF/ { print method[key], $5 }'
}

# An authority, a server and a client of it.
certificates() {
    local name
    cd "$WORK"
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lab -keyout ca.key -out ca.pem
    for name in nrf upf; do
        printf 'subjectAltName=IP:10.100.0.5,DNS:%s.example.org\nextendedKeyUsage=serverAuth,clientAuth\n' $name > $name.ext
        openssl req -newkey rsa:2048 -nodes -subj "/CN=$name" -keyout $name.key -out $name.csr
        openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile $name.ext -out $name.pem
    done
    cd - > /dev/null
}

start_open5gs() {
    cat > "$WORK/nrf.yaml" << 'END'
logger:
  level: info
global:
  max:
    ue: 64
nrf:
  serving:
    - plmn_id:
        mcc: 001
        mnc: 01
  sbi:
    server:
      - address: 10.100.0.5
        port: 7777
END
    [ $KIND = open5gs ] || cat >> "$WORK/nrf.yaml" << END
  default:
    tls:
      server:
        scheme: https
        private_key: $WORK/nrf.key
        cert: $WORK/nrf.pem
        verify_client: true
        verify_client_cacert: $WORK/ca.pem
        sslkeylogfile: $WORK/keys.log
END
    "$FOLDER/open5gs/build/src/nrf/open5gs-nrfd" -c "$WORK/nrf.yaml" >> "$WORK/nrf.log" 2>&1 &
    PID=$!
}

start_free5gc() {
    mkdir -p "$WORK/data" "$WORK/cert"
    if ! listens 127.0.0.1 27017; then
        "$FOLDER/bin/ferretdb" --handler=sqlite --sqlite-url="file:$WORK/data/" --telemetry=disable --state-dir="$WORK" --debug-addr=- > "$WORK/database.log" 2>&1 &
        until_true "a database" listens 127.0.0.1 27017
    fi
    cat > "$WORK/nrfcfg.yaml" << END
info:
  version: 1.0.2
configuration:
  MongoDBName: free5gc
  MongoDBUrl: mongodb://127.0.0.1:27017
  sbi:
    scheme: http
    registerIPv4: 10.100.0.5
    bindingIPv4: 10.100.0.5
    port: 7777
    cert: { pem: cert/nrf.pem, key: cert/nrf.key }
    rootcert: { pem: cert/root.pem, key: cert/root.key }
    oauth: $([ $KIND = free5gc ] && echo false || echo true)
  DefaultPlmnId: { mcc: "001", mnc: "01" }
  serviceNameList: [nnrf-nfm, nnrf-disc]
logger:
  enable: true
  level: info
  reportCaller: false
END
    (cd "$WORK" && exec "$FOLDER/bin/free5gc-nrf" -c nrfcfg.yaml) >> "$WORK/nrf.log" 2>&1 &
    PID=$!
}

# In namespaces of its own: their end is the end of all that runs.
inside() {
    local start=start_${1%-*} turnpiked tshark more=''
    KIND=$1 FOLDER=$2 WORK=$3 NRF=http://10.100.0.5:7777
    CURL=() TSHARK=(-d tcp.port==7777,http2)
    case $KIND in
        open5gs-tls)
            certificates > "$WORK/openssl.log" 2>&1
            NRF=https://10.100.0.5:7777
            CURL=(--cacert "$WORK/ca.pem" --cert "$WORK/upf.pem" --key "$WORK/upf.key")
            TSHARK=(-o "tls.keylog_file:$WORK/keys.log" -d tcp.port==7777,tls)
            more="ca_file = \"$WORK/ca.pem\"
certificate_file = \"$WORK/upf.pem\"
key_file = \"$WORK/upf.key\""
            ;;
        free5gc-oauth) more="oauth2 = true" ;;
    esac
    ip link set lo up
    ip addr add 10.100.0.1/32 dev lo
    ip addr add 10.100.0.5/32 dev lo
    for name in n3 n6; do ip link add $name type veth peer name $name-far && ip link set $name up && ip link set $name-far up; done
    ip addr add 10.3.0.1/24 dev n3
    ip addr add 10.6.0.1/24 dev n6
    cat > "$WORK/turnpiked.toml" << END
[node]
id = "10.100.0.1"
[n4]
listen = "10.100.0.1:8805"
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
pools = ["10.60.0.0/16"]
[limits]
sessions = 200
[api]
listen = "127.0.0.1:8806"
[nrf]
servers = ["$NRF"]
plmns = ["00101"]
priority = 1
capacity = 100
locality = "rack 7"
heartbeat_s = 2
$more
[[nrf.slice]]
sst = 1
sd = "010203"
dnns = ["internet"]
END
    $start
    until_true "$KIND's NRF" search
    identify
    dumpcap -q -i lo -f 'tcp port 7777' -w "$WORK/sbi.pcapng" > "$WORK/dumpcap.log" 2>&1 &
    tshark=$!
    until_true "a capture" test -s "$WORK/sbi.pcapng"
    RUNTIME_DIRECTORY=$WORK "$TURNPIKED" --config "$WORK/turnpiked.toml" > "$WORK/turnpiked.log" 2>&1 &
    turnpiked=$!
    until_true "a registration" found
    search > "$WORK/found.json"
    until_true "three heartbeats" granted 3
    kill -TERM $PID
    wait $PID 2> /dev/null || true
    $start
    until_true "$KIND's NRF again" search
    identify
    until_true "a registration with the NRF that was started anew" found
    local before
    before=$(asked | grep -c '^PATCH 20[04]' || true)
    until_true "heartbeats there" granted $((before + 2))
    kill -TERM $turnpiked
    wait $turnpiked
    until_true "the end of the registration" lost
    until_true "its DELETE in the capture" eval 'asked | grep -q "^DELETE 204"'
    kill $tshark
    wait $tshark 2> /dev/null || true
    echo "$KIND: registered, found, registered with an NRF that was started anew, and gone. Answers:"
    asked | sort | uniq -c
    if tshark -2 -n -r "$WORK/sbi.pcapng" "${TSHARK[@]}" -Y _ws.malformed 2> /dev/null | grep .; then
        echo "malformed frames" >&2
        exit 1
    fi
    echo "its log, beside info:"
    grep -aE 'ERROR|WARN|ERRO' "$WORK/nrf.log" | sed -E 's/^[^[]*//; s/[0-9a-f]{8}-[0-9a-f-]{27}/UUID/g' | sort | uniq -c | sort -rn | cut -c1-200 | head -20 || true
    echo "found by discovery:"
    jq -c '.nfInstances[0]' "$WORK/found.json"
    echo "turnpiked's log:"
    grep -a nrf "$WORK/turnpiked.log" | cut -c1-300
}

case ${1:-} in
    build)
        [ $# = 2 ] || usage
        mkdir -p "$2"
        build "$(realpath "$2")"
        ;;
    run)
        [ $# -ge 2 ] || usage
        [ "$(id -u)" = 0 ] || missing root
        for tool in curl jq openssl tshark dumpcap unshare; do command -v $tool > /dev/null || missing $tool; done
        [ -x "$TURNPIKED" ] || missing "$TURNPIKED (make build)"
        folder=$(realpath -e "$2")
        shift 2
        [ $# -gt 0 ] || set -- open5gs open5gs-tls free5gc free5gc-oauth
        for kind in "$@"; do
            WORK=$(mktemp -d "${TMPDIR:-/tmp}/nrf.XXXXXX")
            if unshare --mount --pid --fork --kill-child --mount-proc --net "$0" inside "$kind" "$folder" "$WORK"; then
                [ -n "${KEEP:-}" ] || rm -rf "$WORK"
            else
                echo "logs and captures are in $WORK" >&2
                exit 1
            fi
        done
        ;;
    inside)
        shift
        inside "$@"
        ;;
    *) usage ;;
esac
