{{- define "turnpike.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "turnpike.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "turnpike.labels" -}}
{{ include "turnpike.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "turnpike.secret" -}}
{{- .Values.api.existingSecret | default (printf "%s-token" (include "turnpike.fullname" .)) -}}
{{- end -}}

{{/* Facts of the configuration that Kubernetes has to know, as YAML, once all fits together. */}}
{{- define "turnpike.facts" -}}
{{- $facts := include "turnpike.read" . -}}
{{- include "turnpike.check" (list . (fromYaml $facts)) -}}
{{- $facts -}}
{{- end -}}

{{- define "turnpike.read" -}}
{{- if not (trim .Values.config) -}}
{{- fail "config: is required: the text of turnpiked.toml (deploy/turnpiked.example.toml)" -}}
{{- end -}}
{{- $config := fromToml .Values.config -}}
{{- if hasKey $config "Error" -}}
{{- fail (printf "config: is not TOML: %s" $config.Error) -}}
{{- end -}}
{{- range list "node" "n4" "interface" "network_instance" -}}
{{- if not (hasKey $config .) -}}
{{- fail (printf "config: has no [%s], which turnpiked requires" .) -}}
{{- end -}}
{{- end -}}
{{- $listen := dig "api" "listen" "127.0.0.1:8806" $config -}}
{{- $host := regexReplaceAll ":[0-9]+$" $listen "" | trimPrefix "[" | trimSuffix "]" -}}
{{- $n4 := dig "n4" "listen" "" $config -}}
{{- $eal := dig "datapath" "dpdk" "eal" (list) $config -}}
kind: {{ dig "datapath" "kind" "xdp" $config }}
mode: {{ dig "datapath" "mode" "driver" $config }}
hugePages: {{ not (has "--no-huge" $eal) }}
rest:
  listen: {{ $listen | quote }}
  host: {{ $host | quote }}
  port: {{ regexFind "[0-9]+$" $listen | int }}
  loopback: {{ or (hasPrefix "127." $host) (eq $host "::1") }}
  everywhere: {{ has $host (list "0.0.0.0" "::") }}
  tokenFile: {{ dig "api" "token_file" "" $config | quote }}
n4:
  address: {{ regexReplaceAll ":[0-9]+$" $n4 "" | trimPrefix "[" | trimSuffix "]" | quote }}
  port: {{ regexFind "[0-9]+$" $n4 | int }}
  allow: {{ dig "n4" "allow" (list) $config | toJson }}
{{- if hasKey $config "nupf" }}
nupf:
  port: {{ regexFind "[0-9]+$" (dig "nupf" "listen" "" $config) | int }}
  allow: {{ dig "nupf" "allow" (list) $config | toJson }}
{{- end }}
# As long as the service's unit allows, and what SMFs were promised.
graceSeconds: {{ add 10 (dig "n4" "graceful_release_s" 0 $config | int) }}
state:
  dir: {{ dig "state" "dir" "" $config | quote }}
  bpffs: {{ dig "state" "bpffs" "" $config | quote }}
  keep: {{ eq (dig "state" "on_stop" "release" $config) "keep" }}
usageLog: {{ dig "usage_log" "path" "" $config | quote }}
interfaces:
{{- range $config.interface }}
  - name: {{ .name | quote }}
    n6: {{ contains "n6" (.role | default "") }}
    addresses: {{ .addresses | default list | toJson }}
{{- end }}
{{- end -}}

{{/* Fail where values do not go together, naming the key. */}}
{{- define "turnpike.check" -}}
{{- $root := index . 0 -}}{{- $facts := index . 1 -}}
{{- $image := $root.Values.image -}}
{{- if not $image.repository -}}
{{- fail "image.repository: is required: where the image of `make image` was pushed to" -}}
{{- end -}}
{{- if not (or $image.tag $image.digest) -}}
{{- fail "image.tag: is required, or image.digest" -}}
{{- end -}}
{{- if not (has $facts.kind (list "xdp" "kernel" "dpdk")) -}}
{{- fail (printf "config: datapath.kind = %q: is none of xdp, kernel, dpdk" $facts.kind) -}}
{{- end -}}
{{- include "turnpike.check.networks" . -}}
{{- include "turnpike.check.rest" . -}}
{{- include "turnpike.check.state" . -}}
{{- include "turnpike.check.place" . -}}
{{- $hugePages := list -}}
{{- range $name, $_ := $root.Values.resources.limits -}}
{{- if hasPrefix "hugepages-" $name }}{{ $hugePages = append $hugePages $name }}{{ end -}}
{{- end -}}
{{- if and (eq $facts.kind "dpdk") $facts.hugePages (not $hugePages) -}}
{{- fail "resources.limits: has neither hugepages-2Mi nor hugepages-1Gi, in which DPDK has its buffers; or config has \"--no-huge\" in datapath.dpdk.eal" -}}
{{- end -}}
{{- if and (eq $root.Values.seccompProfile.type "Localhost") (not $root.Values.seccompProfile.localhostProfile) -}}
{{- fail "seccompProfile.localhostProfile: is required with type Localhost" -}}
{{- end -}}
{{- end -}}

{{- define "turnpike.check.networks" -}}
{{- $root := index . 0 -}}{{- $facts := index . 1 -}}
{{- $networks := $root.Values.networks -}}
{{- if and $root.Values.hostNetwork $networks -}}
{{- fail "networks: has interfaces, but with hostNetwork the pod has those of the node" -}}
{{- end -}}
{{- if not (or $root.Values.hostNetwork $networks) -}}
{{- fail "networks: is empty, and hostNetwork is false: the pod would have no interface for N3 and N6" -}}
{{- end -}}
{{- if $networks -}}
{{- $named := dict -}}{{- $known := $root.Values.podAddresses -}}{{- $all := true -}}
{{- range $i, $network := $networks -}}
{{- $key := printf "networks[%d]" $i -}}
{{- if hasKey $named $network.interface -}}
{{- fail (printf "%s.interface: %q is named twice" $key $network.interface) -}}
{{- end -}}
{{- $_ := set $named $network.interface $network -}}
{{- range $field := get (dict "host-device" (list "device") "macvlan" (list "device") "sriov" (list "resourceName") "existing" (list "attachment") "tap" (list)) $network.type -}}
{{- if not (get $network $field) -}}
{{- fail (printf "%s.%s: is required with type %s" $key $field $network.type) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $network.type "tap") (ne $facts.kind "dpdk") -}}
{{- fail (printf "%s.type: tap is for datapath.kind = \"dpdk\" in config, which is %q" $key $facts.kind) -}}
{{- end -}}
{{- if not $network.addresses }}{{ $all = ternary $all false (not (eq $network.type "existing")) }}{{ end -}}
{{- range $network.addresses }}{{ $known = append $known (regexReplaceAll "/[0-9]+$" . "") }}{{ end -}}
{{- end -}}
{{- range $facts.interfaces -}}
{{- $network := get $named .name -}}
{{- if not $network -}}
{{- fail (printf "networks: none makes interface %q, which config has" .name) -}}
{{- end -}}
{{- if and (eq $facts.kind "dpdk") (not (has $network.type (list "tap" "existing"))) -}}
{{- fail (printf "networks: interface %q is of type %s: with datapath.kind = \"dpdk\" it is the kernel's face of a port, type tap" .name $network.type) -}}
{{- end -}}
{{- if and (eq $facts.kind "xdp") (eq $facts.mode "driver") (eq $network.type "macvlan") -}}
{{- fail (printf "networks: interface %q is a macvlan, whose driver knows no XDP: config wants datapath.mode = \"generic\", or datapath.kind = \"kernel\"" .name) -}}
{{- end -}}
{{- $interface := . -}}
{{- range .addresses -}}
{{- if and $all (not (has . $known)) -}}
{{- fail (printf "networks: no addresses has %s, which config has at interface %q" . $interface.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $all (not (has $facts.n4.address $known)) -}}
{{- fail (printf "networks: no addresses has %s, which config has as n4.listen; nor has podAddresses" $facts.n4.address) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "turnpike.check.rest" -}}
{{- $root := index . 0 -}}{{- $facts := index . 1 -}}{{- $rest := $facts.rest -}}
{{- if not $rest.port -}}
{{- fail (printf "config: api.listen = %q: is no address and port" $rest.listen) -}}
{{- end -}}
{{- if not (or $root.Values.hostNetwork $rest.everywhere (has $rest.host $root.Values.podAddresses)) -}}
{{- fail (printf "config: api.listen = %q: the kubelet asks at the pod's address; listen at \"0.0.0.0:%d\" or \"[::]:%d\"" $rest.listen (int $rest.port) (int $rest.port)) -}}
{{- end -}}
{{- if and (not $rest.loopback) (not $rest.tokenFile) -}}
{{- fail (printf "config: api.token_file: is required with api.listen = %q: \"/etc/turnpike/token\"" $rest.listen) -}}
{{- end -}}
{{- if and $rest.tokenFile (ne $rest.tokenFile "/etc/turnpike/token") -}}
{{- fail (printf "config: api.token_file = %q: the chart puts it at /etc/turnpike/token" $rest.tokenFile) -}}
{{- end -}}
{{- if and $root.Values.serviceMonitor.enabled $rest.loopback -}}
{{- fail (printf "serviceMonitor.enabled: Prometheus cannot ask at api.listen = %q" $rest.listen) -}}
{{- end -}}
{{- if and $root.Values.networkPolicy.enabled $root.Values.hostNetwork -}}
{{- fail "networkPolicy.enabled: a NetworkPolicy does nothing to a pod with hostNetwork; filter on the node, and set n4.allow in config" -}}
{{- end -}}
{{- end -}}

{{- define "turnpike.check.state" -}}
{{- $root := index . 0 -}}{{- $facts := index . 1 -}}{{- $state := $facts.state -}}
{{- $onHost := eq $root.Values.state.volume "host" -}}
{{- if not (or (not $state.dir) (eq $state.dir "/run/turnpike") (hasPrefix "/run/turnpike/" $state.dir)) -}}
{{- fail (printf "config: state.dir = %q: the chart mounts /run/turnpike" $state.dir) -}}
{{- end -}}
{{- if $state.bpffs -}}
{{- if ne $state.bpffs "/run/turnpike-bpf" -}}
{{- fail (printf "config: state.bpffs = %q: the chart mounts /run/turnpike-bpf" $state.bpffs) -}}
{{- end -}}
{{- if not (and $root.Values.hostNetwork $onHost) -}}
{{- fail "config: state.bpffs: packets go on without turnpiked where the interfaces stay: hostNetwork: true and state.volume: host" -}}
{{- end -}}
{{- end -}}
{{- if and $state.keep (not $onHost) -}}
{{- fail "config: state.on_stop = \"keep\": with state.volume: pod the sessions would end with the pod, and SMFs would not be told" -}}
{{- end -}}
{{- if not (or (not $facts.usageLog) (hasPrefix "/var/log/turnpike/" $facts.usageLog)) -}}
{{- fail (printf "config: usage_log.path = %q: the chart mounts /var/log/turnpike" $facts.usageLog) -}}
{{- end -}}
{{- end -}}

{{- define "turnpike.check.place" -}}
{{- $root := index . 0 -}}
{{- $why := list -}}
{{- if $root.Values.hostNetwork }}{{ $why = append $why "hostNetwork" }}{{ end -}}
{{- if eq $root.Values.state.volume "host" }}{{ $why = append $why "state.volume: host" }}{{ end -}}
{{- range $root.Values.networks -}}
{{- if eq .type "host-device" }}{{ $why = append $why "a network of type host-device" }}{{ end -}}
{{- end -}}
{{- if and $why (not (or $root.Values.nodeSelector $root.Values.affinity)) -}}
{{- fail (printf "nodeSelector: is required with %s, which means one node: {kubernetes.io/hostname: NAME}; or affinity" (first $why)) -}}
{{- end -}}
{{- end -}}
