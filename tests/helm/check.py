#!/usr/bin/python3
"""The chart and the compose file as far as they can be judged without a cluster or a registry: helm lint, and what helm makes of the
examples and of more values, by schemas of the tree (kubeconform), and by what a pod of Turnpike needs; values that do not go together,
which have to be refused. Then the network of each pod, made by the plugins of CNI from what the chart tells Multus, and turnpiked in it,
as the pod's user, until it is ready.

usage: tests/helm/check.py [TURNPIKED]
Without TURNPIKED configurations are only read as TOML. With it, it wants root, for namespaces of its own.
"""

import base64
import copy
import glob
import http.server
import ipaddress
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

import jsonschema
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CHART = f"{ROOT}/deploy/helm/turnpike"
COMPOSE = f"{ROOT}/deploy/compose"
SCHEMAS = f"{HERE}/schemas"
TOOLS = f"{ROOT}/build/tools/bin"
KUBERNETES = "1.34.0"
USER = 8805
CAPABILITIES = ["BPF", "NET_ADMIN", "NET_RAW", "PERFMON"]
TOKEN = "/etc/turnpike/token"
# Only says "never".
NEVER_S = 120


def run(*command, check=True, **options):
    """A program; what it said, and its exit code where that is not to be 0."""
    done = subprocess.run(command, text=True, capture_output=True, timeout=NEVER_S, check=False, **options)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if check else (done.returncode, done.stdout + done.stderr)


def example(name):
    """Values of one."""
    with open(f"{CHART}/examples/{name}.yaml", encoding="utf-8") as file:
        return yaml.safe_load(file)


def changed(values, changes):
    """A copy in which keys by their paths have other values; None: without it. Of `config`, pairs of text and replacement."""
    values = copy.deepcopy(values)
    for path, value in changes.items():
        if path == "config" and isinstance(value, list):
            for old, new in value:
                assert old in values["config"], f"the example's configuration has no {old!r}"
                values["config"] = values["config"].replace(old, new)
            continue
        *folders, key = path.split(".")
        at = values
        for folder in folders:
            at = at[int(folder)] if isinstance(at, list) else at.setdefault(folder, {})
        key = int(key) if isinstance(at, list) else key
        if value is None:
            del at[key]
        else:
            at[key] = value
    return values


def helm(command, values, *options, check=True):
    """Of the chart with these values."""
    name = ["upf"] if command == "template" else []
    arguments = [command, *name, CHART, "--values=-", f"--kube-version={KUBERNETES}", *options]
    # A home of its own, for the caches of helm.
    with tempfile.TemporaryDirectory() as home:
        return run(f"{TOOLS}/helm", *arguments, check=check, input=yaml.safe_dump(values), env={"HOME": home, "PATH": os.environ["PATH"]})


def judged(text):
    """Objects by kind and name, after kubeconform found nothing in it."""
    run(f"{TOOLS}/kubeconform", "-strict", f"-kubernetes-version={KUBERNETES}", f"-schema-location={SCHEMAS}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json", input=text)
    made = [one for one in yaml.safe_load_all(text) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in made}


class Made:
    """Output of helm for values."""

    def __init__(self, values):
        self.values = values
        helm("lint", values, "--strict")
        self.all = judged(helm("template", values))
        self.config = tomllib.loads(self.one("ConfigMap")["data"]["turnpiked.toml"])
        self.pod = self.one("StatefulSet")["spec"]["template"]
        self.spec = self.pod["spec"]
        (self.container,) = self.spec["containers"]

    def kinds(self):
        return {kind for kind, _ in self.all}

    def one(self, kind):
        (one,) = [one for (other, name), one in self.all.items() if other == kind and not name.endswith("-dashboard")]
        return one

    def volume(self, name):
        """Without its name; None: there is none."""
        found = [volume for volume in self.spec["volumes"] if volume["name"] == name]
        return {key: value for one in found for key, value in one.items() if key != "name"} or None

    def mounts(self):
        return {mount["mountPath"]: mount["name"] for mount in self.container["volumeMounts"]}

    def network(self, interface):
        """The configuration of its plugins."""
        return json.loads(self.all["NetworkAttachmentDefinition", f"upf-turnpike-{interface}"]["spec"]["config"])

    def attachments(self):
        return json.loads(self.pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"])


def a_pod(made):
    """Properties that hold whatever the way to the network."""
    stateful = made.one("StatefulSet")["spec"]
    assert stateful["replicas"] == 1 and stateful["podManagementPolicy"] == "Parallel", stateful
    spec, container = made.spec, made.container
    security = spec["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (True, USER, USER, USER), security
    assert security["seccompProfile"]["type"] == made.values.get("seccompProfile", {}).get("type", "RuntimeDefault"), security
    assert spec["automountServiceAccountToken"] is False, spec
    rights = container["securityContext"]
    assert rights["capabilities"] == {"drop": ["ALL"], "add": sorted(CAPABILITIES, key=rights["capabilities"]["add"].index)}, rights
    assert sorted(rights["capabilities"]["add"]) == CAPABILITIES, rights
    # File capabilities end with false.
    assert rights["allowPrivilegeEscalation"] is True and rights["readOnlyRootFilesystem"] is True and "privileged" not in rights, rights

    grace = made.config["n4"].get("graceful_release_s", 0)
    assert spec["terminationGracePeriodSeconds"] == grace + 10, spec

    listen = made.config.get("api", {}).get("listen", "127.0.0.1:8806")
    host, port = listen.rsplit(":", 1)
    paths = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for probe, path in paths.items():
        asked = container[probe]["httpGet"]
        assert asked["path"] == path and asked["port"] == "rest", asked
        # The kubelet asks at the pod's address, unless the configuration names one.
        assert asked.get("host") == (None if host in ("0.0.0.0", "[::]") else host.strip("[]")), asked
    ports = {one["name"]: (one["containerPort"], one["protocol"]) for one in container["ports"]}
    assert ports == {"rest": (int(port), "TCP"), "n4": (8805, "UDP")}, ports
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] >= 600, container["startupProbe"]

    names = [volume["name"] for volume in spec["volumes"]]
    claims = [claim["metadata"]["name"] for claim in stateful.get("volumeClaimTemplates", [])]
    mounted = made.mounts()
    assert set(mounted.values()) <= set(names + claims), (mounted, names, claims)
    assert mounted["/etc/turnpike"] == "config" and mounted["/run/turnpike"] == "state", mounted
    a_token(made, listen)
    for key, path in [("dir", "/run/turnpike"), ("bpffs", "/run/turnpike-bpf")]:
        assert made.config.get("state", {}).get(key, path) == path, made.config["state"]
    assert ("/run/turnpike-bpf" in mounted) == ("bpffs" in made.config.get("state", {})), mounted
    assert ("/var/log/turnpike" in mounted) == ("usage_log" in made.config) == bool(claims), (mounted, claims)


def a_token(made, listen):
    """The file that REST wants is there, from the secret that exists or is made."""
    sources = made.volume("config")["projected"]["sources"]
    files = [item["path"] for source in sources for item in source.get("secret", {}).get("items", [])]
    existing = made.values.get("api", {}).get("existingSecret")
    wanted = "token_file" in made.config.get("api", {})
    assert wanted or listen.startswith("127."), listen
    assert files == (["token"] if wanted else []), sources
    if not wanted:
        return
    assert made.config["api"]["token_file"] == TOKEN
    (secret,) = [source["secret"]["name"] for source in sources if "secret" in source]
    assert secret == (existing or "upf-turnpike-token"), secret
    assert ("Secret" in made.kinds()) == (not existing), made.kinds()
    assert {"name": "TURNPIKE_TOKEN_FILE", "value": TOKEN} in made.container["env"], made.container["env"]


def host_network():
    """Sessions and packets that outlive the pod."""
    made = Made(example("host-network"))
    a_pod(made)
    assert made.spec["hostNetwork"] is True and "NetworkAttachmentDefinition" not in made.kinds()
    assert made.volume("state") == {"hostPath": {"path": "/run/turnpike", "type": "DirectoryOrCreate"}}
    assert made.volume("bpffs") == {"hostPath": {"path": "/run/turnpike-bpf", "type": "DirectoryOrCreate"}}
    (prepare,) = made.spec["initContainers"]
    assert prepare["securityContext"]["privileged"] is True and prepare["securityContext"]["runAsUser"] == 0, prepare
    (mount,) = prepare["volumeMounts"]
    assert mount["mountPropagation"] == "Bidirectional" and mount["mountPath"] == "/run", mount
    assert made.volume("node-run")["hostPath"]["path"] == "/run"
    yield made

    values = changed(made.values, {"state.prepare.enabled": False, "serviceMonitor.enabled": False, "podDisruptionBudget.enabled": False, "config": [('"10.100.0.1:8806"', '"127.0.0.1:8806"'), (f'token_file = "{TOKEN}"\n', "")]})
    made = Made(values)
    a_pod(made)
    assert made.kinds() == {"ConfigMap", "Service", "StatefulSet"}, made.kinds()
    assert "initContainers" not in made.spec and made.volume("state")["hostPath"]["type"] == "Directory"
    assert "ports" not in made.one("Service")["spec"]
    yield made


def host_device():
    """NICs of the node, a time for SMFs, and all that is made beside."""
    made = Made(example("host-device"))
    a_pod(made)
    assert made.kinds() == {"ConfigMap", "NetworkAttachmentDefinition", "NetworkPolicy", "PodDisruptionBudget", "Secret", "Service", "ServiceMonitor", "StatefulSet"}, made.kinds()
    assert made.spec["terminationGracePeriodSeconds"] == 30
    assert [(one["interface"], one["name"]) for one in made.attachments()] == [(name, f"upf-turnpike-{name}") for name in ("n3", "n6", "n4")]
    (n3,) = made.network("n3")["plugins"]
    assert (n3["type"], n3["device"]) == ("host-device", "ens1f0") and n3["ipam"]["addresses"] == [{"address": "10.3.0.1/24"}], n3
    assert made.network("n3")["cniVersion"] == "1.0.0"
    (n6,) = made.network("n6")["plugins"]
    assert n6["pciBusID"] == "0000:3b:00.1" and "device" not in n6, n6
    assert n6["ipam"]["routes"] == [{"dst": "0.0.0.0/0", "gw": "10.6.0.254", "table": 100}] and made.network("n6")["cniVersion"] == "1.1.0", n6
    assert made.volume("state") == {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    policy = made.one("NetworkPolicy")["spec"]
    n4, rest = policy["ingress"]
    assert n4["ports"] == [{"protocol": "UDP", "port": 8805}] and n4["from"] == [{"ipBlock": {"cidr": "10.100.0.2/32"}}], n4
    assert rest["ports"] == [{"protocol": "TCP", "port": 8806}] and rest["from"], rest
    assert policy["policyTypes"] == ["Ingress"] and policy["podSelector"]["matchLabels"].items() <= made.pod["metadata"]["labels"].items()
    (endpoint,) = made.one("ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "upf-turnpike-token", "key": "token"} and endpoint["path"] == "/metrics", endpoint
    (service,) = made.one("Service")["spec"]["ports"]
    assert service["name"] == endpoint["port"] and service["port"] == 8806, service
    assert made.one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 0
    yield made

    # Consumers of events reach their port.
    nupf = '[nupf]\nlisten = "10.100.0.1:7780"\nallow = ["10.0.0.0/8"]\n'
    *_, events, rest = Made({**made.values, "config": made.values["config"] + nupf}).one("NetworkPolicy")["spec"]["ingress"]
    assert events == {"ports": [{"protocol": "TCP", "port": 7780}], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}, events

    # Another configuration is another pod, unless it is to be reloaded, and a newer chart is not.
    stays = {**made.values, "restartOnChange": False}
    another = {"config": [("graceful_release_s = 20", "graceful_release_s = 20\nheartbeat_s = 11")]}
    pods = [Made(values).pod for values in (stays, changed(stays, another))]
    assert pods[0] == pods[1] and pods[0] != made.pod
    again = Made(changed(made.values, {"config": [("graceful_release_s = 20", "graceful_release_s = 21")]}))
    assert again.pod["metadata"]["annotations"]["checksum/config"] != made.pod["metadata"]["annotations"]["checksum/config"]
    assert "helm.sh/chart" not in made.pod["metadata"]["labels"], made.pod["metadata"]


    # Alerts and the dashboard come as they are.
    on = {"enabled": True}
    watched = Made({**made.values, "prometheusRule": {**on, "labels": {"release": "prometheus"}}, "dashboard": on})
    rule = watched.one("PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    with open(os.path.join(ROOT, "deploy/monitoring/turnpike.rules.yml"), encoding="utf-8") as file:
        assert rule["spec"] == yaml.safe_load(file)
    dashboards = [one for (kind, name), one in watched.all.items() if kind == "ConfigMap" and name.endswith("-dashboard")]
    with open(os.path.join(ROOT, "deploy/monitoring/grafana/turnpike.json"), encoding="utf-8") as file:
        assert [json.loads(one["data"]["turnpike.json"]) for one in dashboards] == [json.load(file)]
    assert dashboards[0]["metadata"]["labels"]["grafana_dashboard"] == "1"


def macvlan():
    """XDP beside a driver, IPv6."""
    made = Made(example("macvlan"))
    a_pod(made)
    (n3,) = made.network("n3")["plugins"]
    assert (n3["type"], n3["master"], n3["mode"]) == ("macvlan", "ens1f0", "bridge"), n3
    assert {"name": "TURNPIKE_API", "value": "http://[::1]:8806"} in made.container["env"], made.container["env"]
    yield made


def sriov():
    """As many functions as networks name, and a volume for the log of usage."""
    made = Made(example("sriov"))
    a_pod(made)
    for kind in ["requests", "limits"]:
        asked = made.container["resources"][kind]
        assert (asked["intel.com/n3"], asked["intel.com/n6"]) == ("2", "1"), asked
    definition = made.all["NetworkAttachmentDefinition", "upf-turnpike-n3"]
    assert definition["metadata"]["annotations"] == {"k8s.v1.cni.cncf.io/resourceName": "intel.com/n3"}
    assert made.network("n3")["plugins"][0]["vlan"] == 30
    (claim,) = made.one("StatefulSet")["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi", claim
    yield made


def dpdk():
    """Devices by vfio, TAP interfaces, huge pages."""
    made = Made(example("sriov-dpdk"))
    a_pod(made)
    limits = made.container["resources"]["limits"]
    assert limits["hugepages-1Gi"] == "2Gi" and limits["intel.com/n3_vfio"] == limits["squat.ai/tun"] == "1", limits
    assert limits == made.container["resources"]["requests"], "the class of service is not Guaranteed"
    assert made.volume("hugepages-1gi") == {"emptyDir": {"medium": "HugePages-1Gi"}} and made.mounts()["/dev/hugepages"] == "hugepages-1gi"
    assert made.volume("tun") is None
    assert [plugin["type"] for plugin in made.network("n6")["plugins"]] == ["tap"]
    yield made

    # Without huge pages, and with the node's /dev/net/tun.
    values = changed(made.values, {"tunResource": "", "resources": {"limits": {"memory": "4Gi"}}, "config": [('eal = [', 'eal = ["--no-huge", "-m", "512", ')]})
    made = Made(values)
    a_pod(made)
    assert made.volume("tun") == {"hostPath": {"path": "/dev/net/tun", "type": "CharDevice"}} and made.mounts()["/dev/net/tun"] == "tun"
    assert not [name for name in made.mounts() if "hugepages" in name]
    yield made


def kernel():
    """Networks that are there, forwarding, a secret that is there."""
    made = Made(example("kernel"))
    a_pod(made)
    assert made.attachments()[0] == {"interface": "n3", "name": "n3", "namespace": "core", "ips": ["10.3.0.1/24"]}, made.attachments()
    assert "namespace" not in made.attachments()[2]
    _, tuning = made.network("n6")["plugins"]
    assert tuning == {"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.forwarding": "1", "net.ipv6.conf.all.forwarding": "1"}}, tuning
    assert made.volume("tun") is not None
    yield made


def everything():
    """All that the others leave at its default."""
    extra = {
        "image.digest": "sha256:" + "0" * 64,
        "image.pullPolicy": "Always",
        "imagePullSecrets": [{"name": "registry"}],
        "podAddresses": ["10.9.0.1"],
        "api": {"existingSecret": "upf-token", "secretKey": "bearer"},
        "devices": {"example.org/device": 2},
        "updateStrategy": "OnDelete",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "upf", "operator": "Exists"}]}]}}},
        "tolerations": [{"key": "upf", "operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        "podAnnotations": {"example.org/address": "10.9.0.1"},
        "podLabels": {"tier": "user-plane"},
        "seccompProfile": {"type": "Localhost", "localhostProfile": "turnpike.json"},
        "state": {"sizeLimit": "512Mi"},
        "extraVolumes": [{"name": "sockets", "hostPath": {"path": "/run/memif", "type": "Directory"}}],
        "extraVolumeMounts": [{"name": "sockets", "mountPath": "/run/memif"}],
        "serviceMonitor.labels": {"release": "prometheus"},
        "fullnameOverride": "upf-turnpike",
        "networks.0.sysctls": {"net.ipv4.conf.IFNAME.rp_filter": "0"},
        "networks.0.options": {"mtu": 9000},
        "config": [('"0.0.0.0:8806"', '"10.9.0.1:8806"')],
    }
    values = changed(example("host-device"), {key: value for key, value in extra.items() if key != "config"})
    made = Made(values)
    a_pod(made)
    assert made.container["image"].endswith("@" + extra["image.digest"]), made.container["image"]
    assert made.one("ServiceMonitor")["spec"]["endpoints"][0]["authorization"]["credentials"] == {"name": "upf-token", "key": "bearer"}
    assert made.container["resources"]["limits"]["example.org/device"] == "2"
    assert made.one("StatefulSet")["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert made.network("n3")["plugins"][0]["mtu"] == 9000 and made.network("n3")["plugins"][1]["type"] == "tuning"
    assert made.spec["securityContext"]["seccompProfile"] == {"type": "Localhost", "localhostProfile": "turnpike.json"}
    yield made
    made = Made(changed(made.values, {"config": extra["config"]}))
    assert made.container["readinessProbe"]["httpGet"]["port"] == "rest"


# Values that the comment above an earlier one is about, too.
OF_ONE_COMMENT = {"affinity", "tolerations", "podLabels", "extraVolumeMounts", "hostBpffs", "memory", "limits", "liveness", "readiness", "timeoutSeconds", "failureThreshold"}

# Values that helm has to refuse: an example, changes, and words of the message, of which the first is the key.
REFUSED = [
    # By the schema.
    ("host-device", {"replicas": 2}, ["replicas", "not allowed"]),
    ("host-device", {"hostNetwork": "yes"}, ["hostNetwork", "boolean"]),
    ("host-device", {"networks.0.type": "ipvlan"}, ["networks/0/type", "host-device"]),
    ("host-device", {"networks.0.interface": "much-too-long-a-name"}, ["networks/0/interface"]),
    ("host-device", {"networks.0.interface": "N3"}, ["networks/0/interface"]),
    ("host-device", {"networks.0.addresses": ["10.3.0.1"]}, ["networks/0/addresses/0"]),
    ("host-device", {"networks.0.sysctls": {"kernel.panic": "1"}}, ["propertyName", "kernel.panic"]),
    ("host-device", {"image.pullpolicy": "Always"}, ["image", "pullpolicy"]),
    ("host-device", {"image.digest": "latest"}, ["image/digest"]),
    ("host-device", {"updateStrategy": "Recreate"}, ["updateStrategy", "OnDelete"]),
    ("host-device", {"probes.liveness.periodSeconds": 0}, ["probes/liveness/periodSeconds"]),
    ("host-device", {"state.volume": "disk"}, ["state/volume", "host"]),
    ("host-network", {"state.hostDir": "/var/lib/turnpike"}, ["state/hostDir"]),
    ("host-device", {"resources.limits.memory": "2 GB"}, ["resources/limits/memory"]),
    ("host-device", {"serviceMonitor.interval": 15}, ["serviceMonitor/interval"]),
    ("host-device", {"networkPolicy.restFrom": [{}]}, ["networkPolicy/restFrom/0"]),
    # By the templates.
    ("host-device", {"config": ""}, ["config: is required"]),
    ("host-device", {"config": [("[n4]", "[n4")]}, ["config: is not TOML"]),
    ("host-device", {"config": [("[[network_instance]]", "[[network]]")]}, ["config: has no [network_instance]"]),
    ("host-device", {"image.repository": ""}, ["image.repository: is required"]),
    ("host-device", {"image.tag": ""}, ["image.tag: is required"]),
    ("host-device", {"config": [("[[network_instance]]", '[datapath]\nkind = "vpp"\n[[network_instance]]')]}, ["datapath.kind", "vpp"]),
    ("host-device", {"hostNetwork": True}, ["networks: has interfaces"]),
    ("host-device", {"networks": []}, ["networks: is empty"]),
    ("host-device", {"networks.0.interface": "n6"}, ["networks[1].interface", "twice"]),
    ("host-device", {"networks.0.interface": "n33"}, ["networks: none makes interface \"n3\""]),
    ("host-device", {"networks.0.device": None}, ["networks[0].device: is required"]),
    ("macvlan", {"networks.0.device": None}, ["networks[0].device: is required"]),
    ("sriov", {"networks.0.resourceName": None}, ["networks[0].resourceName: is required"]),
    ("kernel", {"networks.0.attachment": None}, ["networks[0].attachment: is required"]),
    ("host-device", {"networks.0.addresses": ["10.3.0.2/24"]}, ["networks: no addresses has 10.3.0.1"]),
    ("host-device", {"networks.2.addresses": ["10.100.0.9/24"]}, ["10.100.0.1", "n4.listen"]),
    ("macvlan", {"config": [('"generic"', '"driver"')]}, ["macvlan", "datapath.mode"]),
    ("host-device", {"networks.0.type": "tap"}, ["networks[0].type: tap"]),
    ("sriov-dpdk", {"networks.0.type": "sriov", "networks.0.resourceName": "intel.com/n3"}, ["networks: interface \"n3\"", "type tap"]),
    ("sriov-dpdk", {"resources": {"limits": {"memory": "4Gi"}}}, ["resources.limits", "hugepages-1Gi"]),
    ("host-device", {"config": [('"0.0.0.0:8806"', '"127.0.0.1:8806"')]}, ["api.listen", "0.0.0.0:8806"]),
    ("host-device", {"config": [('"0.0.0.0:8806"', '"everywhere"')]}, ["api.listen", "everywhere"]),
    ("host-device", {"config": [(f'token_file = "{TOKEN}"\n', "")]}, ["api.token_file: is required"]),
    ("host-device", {"config": [(TOKEN, "/etc/token")]}, ["api.token_file", "/etc/token"]),
    ("host-network", {"config": [("10.100.0.1:8806", "127.0.0.1:8806")]}, ["serviceMonitor.enabled", "127.0.0.1:8806"]),
    ("host-network", {"networkPolicy.enabled": True}, ["networkPolicy.enabled"]),
    ("host-network", {"nodeSelector": None}, ["nodeSelector: is required with hostNetwork"]),
    ("host-device", {"nodeSelector": None}, ["nodeSelector: is required", "host-device"]),
    ("macvlan", {"state.volume": "host"}, ["nodeSelector: is required with state.volume"]),
    ("host-device", {"config": [('dir = "/run/turnpike"', 'dir = "/var/lib/turnpike"')]}, ["state.dir", "/var/lib/turnpike"]),
    ("host-network", {"config": [("/run/turnpike-bpf", "/sys/fs/bpf")]}, ["state.bpffs", "/sys/fs/bpf"]),
    ("host-network", {"state.volume": "pod"}, ["state.bpffs", "state.volume: host"]),
    ("host-device", {"config": [('dir = "/run/turnpike"', 'dir = "/run/turnpike"\nbpffs = "/run/turnpike-bpf"')]}, ["state.bpffs", "hostNetwork"]),
    ("host-device", {"config": [('dir = "/run/turnpike"', 'dir = "/run/turnpike"\non_stop = "keep"')]}, ["state.on_stop", "state.volume"]),
    ("sriov", {"config": [("/var/log/turnpike/usage.jsonl", "/var/log/usage.jsonl")]}, ["usage_log.path", "/var/log/usage.jsonl"]),
    ("host-device", {"seccompProfile.type": "Localhost"}, ["seccompProfile.localhostProfile: is required"]),
]


def refusals():
    """Wrong values, each the one change of an example that is right."""
    for name, changes, words in REFUSED:
        code, said = helm("template", changed(example(name), changes), check=False)
        assert code, f"{name} with {changes} is not refused"
        assert all(word in said for word in words), f"{name} with {changes}: {words} is not in {said}"
    # The schema is not the templates', who would read some of these otherwise.
    _, said = helm("template", changed(example("host-device"), {"replicas": 2}), check=False)
    assert "values don't meet the specifications of the schema" in said, said


class Cluster(http.server.BaseHTTPRequestHandler):
    """As much of the Kubernetes API as helm asks before it looks for a secret, and the secret of a former install."""

    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "upf-turnpike-token", "namespace": "default"}, "data": {"token": "Zm9ybWVyIHRva2Vu"}}
    answers = {
        "/version": {"major": "1", "minor": "34", "gitVersion": f"v{KUBERNETES}"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": "secrets", "kind": "Secret", "namespaced": True, "verbs": ["get"]}]},
        "/api/v1/namespaces/default/secrets/upf-turnpike-token": secret,
    }

    def do_GET(self):
        answer = self.answers.get(self.path.split("?")[0])
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer or {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}).encode())

    def log_message(self, *_):
        """Say nothing."""


def the_token_stays():
    """At an upgrade the secret has the token of the install; at an install a long one of its own."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cluster) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        said = helm("template", example("host-device"), "--dry-run=server", f"--kube-apiserver=http://127.0.0.1:{server.server_port}", "--disable-openapi-validation")
        server.shutdown()
    (kept,) = [one for one in yaml.safe_load_all(said) if one and one["kind"] == "Secret"]
    assert kept["data"] == Cluster.secret["data"], kept
    new = [Made(example("host-device")).one("Secret")["data"]["token"] for _ in range(2)]
    assert new[0] != new[1] and len(base64.b64decode(new[0])) == 64, new


def notes():
    """Words to an operator after an install, which helm template leaves out."""
    with tempfile.TemporaryDirectory() as folder:
        chart = shutil.copytree(CHART, f"{folder}/turnpike")
        with open(f"{chart}/templates/NOTES.txt", encoding="utf-8") as file:
            text = file.read()
        with open(f"{chart}/templates/notes.yaml", "w", encoding="utf-8") as file:
            file.write('{{- define "notes" -}}\n' + text + '{{- end -}}\nnotes: {{ include "notes" . | toJson }}\n')
        for name, words, others in [("host-network", ["upf-turnpike-0", "get secret upf-turnpike-token", "and packets go on"], []), ("kernel", ["turnpike peers"], ["get secret", "keeps sessions"])]:
            options = ["--show-only=templates/notes.yaml", f"--kube-version={KUBERNETES}"]
            said = yaml.safe_load(run(f"{TOOLS}/helm", "template", "upf", chart, f"--values={CHART}/examples/{name}.yaml", *options))["notes"]
            assert all(word in said for word in words) and not [word for word in others if word in said], said


def documented():
    """Each value has a comment, and the schema knows it."""
    with open(f"{CHART}/values.schema.json", encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft7Validator.check_schema(schema)
    with open(f"{CHART}/values.yaml", encoding="utf-8") as file:
        text = file.read()
    values = yaml.safe_load(text)
    assert set(values) == set(schema["properties"]) - {"global"}, set(values) ^ set(schema["properties"])
    before, deep = "#", 0
    for line in filter(str.strip, text.splitlines()):
        name, indent = line.split(":")[0].strip(), len(line) - len(line.lstrip())
        # The first of a group may have the comment of the group.
        explained = before.lstrip().startswith("#") or indent > deep or name in OF_ONE_COMMENT
        assert explained or line.lstrip()[0] in "#-", f"values.yaml: {name} is not explained"
        before, deep = line, indent
    for key in ["interface", *schema["properties"]["networks"]["items"]["properties"]]:
        assert f"#   {key} " in text, f"networks: {key} is not explained"


def folders_of_the_node(script):
    """The init container's script, as it would run on a node: at the first start, and where all is there."""
    ask = "stat -c '%n %u:%g %a' /run/turnpike /run/turnpike-bpf; stat -f -c %T /run/turnpike /run/turnpike-bpf; findmnt -rn -o TARGET | grep -c ^/run/turnpike"
    said = run("sh", "-euc", 'sh -euc "$1"; touch /run/turnpike/kept; sh -euc "$1"; test -e /run/turnpike/kept; eval "$2"', "sh", script, ask)
    wanted = [f"/run/turnpike {USER}:{USER} 700", f"/run/turnpike-bpf {USER}:{USER} 700", "tmpfs", "bpf_fs", "2"]
    assert said.split("\n")[:-1] == wanted, said


def in_pod(*command, **how):
    """In the pod's network namespace."""
    return run("ip", "netns", "exec", "pod", *command, **how)


def plugged(network, interface):
    """As Multus does with a definition: each plugin is told what the one before has made."""
    result = None
    for plugin in network["plugins"]:
        asked = {"cniVersion": network["cniVersion"], "name": network["name"], **plugin, **({"prevResult": result} if result else {})}
        variables = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "pod", "CNI_NETNS": "/run/netns/pod", "CNI_IFNAME": interface, "CNI_PATH": TOOLS}
        code, said = run(f"{TOOLS}/{plugin['type']}", check=False, input=json.dumps(asked), env={**os.environ, **variables})
        assert code == 0, f"{interface}: {said}"
        result = json.loads(said)


def cable(name, *end):
    """An interface that has a link; where."""
    run("ip", "link", "add", name, *end, "type", "veth", "peer", "name", f"{name}.far")
    run("ip", "link", "set", f"{name}.far", "up")


def inside(file):
    """A node and a pod on it, in namespaces that end with this process."""
    with open(file, encoding="utf-8") as plan:
        plan = json.load(plan)
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    run("ip", "netns", "add", "pod")
    in_pod("ip", "link", "set", "lo", "up")
    if plan["prepare"]:
        folders_of_the_node(plan["prepare"])
    elif plan["bpffs"]:
        os.mkdir("/run/turnpike-bpf")
        run("mount", "-t", "bpf", "bpf", "/run/turnpike-bpf")
        os.chown("/run/turnpike-bpf", USER, USER)
        os.chmod("/run/turnpike-bpf", 0o700)
    # Of a pod's own volumes: as an emptyDir is.
    for folder in ["/run/turnpike", "/run/log"]:
        if not os.path.exists(folder):
            os.mkdir(folder)
            os.chmod(folder, 0o777)
    for device in plan["devices"]:
        cable(device)
        run("ip", "link", "set", device, "up")
    for interface, (network, addresses) in plan["networks"].items():
        if network:
            plugged(network, interface)
            continue
        cable(interface, "netns", "pod")
        in_pod("ip", "link", "set", interface, "up")
        for address in addresses:
            in_pod("ip", "address", "add", address, "dev", interface)
        if plan["forwarding"]:
            in_pod("sh", "-c", f"echo 1 >/proc/sys/net/ipv4/conf/{interface}/forwarding")
    # IPv6 looks first whether somebody else has an address.
    while "tentative" in in_pod("ip", "-6", "address"):
        time.sleep(0.02)
    for table, gateway, interface in plan["routes"]:
        shown = in_pod("ip", "-6" if ":" in gateway else "-4", "route", "show", "table", str(table), "default")
        assert f"via {gateway} dev {interface}" in shown, shown
    with open("/run/token", "w", encoding="ascii") as file:
        file.write("0123456789abcdef0123456789abcdef\n")
    with open("/run/turnpiked.toml", "w", encoding="utf-8") as file:
        file.write(plan["config"].replace(TOKEN, "/run/token").replace("/var/log/turnpike/", "/run/log/"))
    # Folders that lead to the program may be root's alone.
    with open("/run/turnpiked", "w", encoding="ascii"):
        run("mount", "--bind", plan["turnpiked"], "/run/turnpiked")
    said = in_pod("/run/turnpiked", "check-config", "/run/turnpiked.toml")
    assert ": ok\n" in said, said
    if plan["starts"]:
        ready(plan["ask"])


def ready(ask):
    """As the container's process: this user, these four capabilities; until its readiness probe would pass, and stopped as a pod is."""
    names = ",".join(f"+{name.lower()}" for name in CAPABILITIES)
    rights = [f"--bounding-set=-all,{names}", f"--inh-caps=-all,{names}", f"--ambient-caps=-all,{names}"]
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *rights]
    with open("/run/said", "w+", encoding="utf-8") as said:
        process = subprocess.Popen(["ip", "netns", "exec", "pod", *user, "/run/turnpiked", "--config", "/run/turnpiked.toml"], stdout=said, stderr=said)
        deadline = time.monotonic() + NEVER_S
        answer = ""
        while not answer.endswith("200"):
            with open("/run/said", encoding="utf-8") as lines:
                assert process.poll() is None and time.monotonic() < deadline, f"{ask}: {answer}\n{lines.read()}"
            time.sleep(0.05)
            _, answer = in_pod("curl", "--silent", "--globoff", "--write-out", " %{http_code}", f"http://{ask}/readyz", check=False)
        process.terminate()
        assert process.wait(NEVER_S) == 0


def taken_by_turnpiked(turnpiked, config, networks, devices=(), routes=(), prepare=None):
    """Whether turnpiked takes the configuration, and serves, in such a network. False: this program was built without the data path.

    networks  by interface: what the chart's definition says, and addresses where it says nothing
    devices   NICs of the node that these name
    routes    default routes: table, gateway, interface
    prepare   script that prepares folders of the node
    """
    read = tomllib.loads(config)
    kind = read.get("datapath", {}).get("kind", "xdp")
    if kind not in run(turnpiked, "--version"):
        return False
    host, port = read.get("api", {}).get("listen", "127.0.0.1:8806").rsplit(":", 1)
    ask = f"{'127.0.0.1' if host in ('0.0.0.0', '[::]') else host}:{port}"
    plan = {
        "turnpiked": turnpiked, "config": config, "networks": networks, "devices": list(devices), "routes": list(routes), "prepare": prepare,
        # No device of DPDK is there.
        "starts": kind != "dpdk", "ask": ask, "forwarding": kind == "kernel", "bpffs": "bpffs" in read.get("state", {}),
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(plan, file)
        file.flush()
        spaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        run("unshare", *spaces, sys.executable, os.path.abspath(__file__), "--inside", file.name)
    return True


def taken(turnpiked, made):
    """The same, in the network that the values make."""
    config, networks, devices, routes = made.one("ConfigMap")["data"]["turnpiked.toml"], {}, [], []
    for network in made.values.get("networks", []):
        if network["type"] == "existing":
            networks[network["interface"]] = None, network["addresses"]
        # There are no virtual functions.
        elif network["type"] == "sriov" and "addresses" in network:
            networks[network["interface"]] = None, network["addresses"]
        elif network["type"] != "sriov":
            definition = made.network(network["interface"])
            plugin = definition["plugins"][0]
            # Nor are there PCI addresses.
            if "pciBusID" in plugin:
                plugin["device"] = "by-pci"
                del plugin["pciBusID"]
            devices += [plugin[key] for key in ("device", "master") if key in plugin]
            networks[network["interface"]] = definition, []
            routes += [(route["table"], route["gw"], network["interface"]) for route in network.get("routes", []) if "table" in route]
    if not networks:
        networks = {interface["name"]: (None, [f"{address}/24" for address in interface.get("addresses", [])]) for interface in made.config["interface"]}
        networks["n4"] = None, [made.config["n4"]["listen"].rsplit(":", 1)[0] + "/24"]
    prepare = made.spec["initContainers"][0]["args"][0] if "initContainers" in made.spec else None
    return taken_by_turnpiked(turnpiked, config, networks, sorted(set(devices)), routes, prepare)


def compose(turnpiked):
    """The compose file by its schema; its parts by each other."""
    with open(f"{SCHEMAS}/compose-spec.json", encoding="utf-8") as file:
        schema = json.load(file)
    with open(f"{COMPOSE}/compose.yaml", encoding="utf-8") as file:
        whole = yaml.safe_load(file)
    validator = jsonschema.Draft7Validator(schema)
    errors = [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(whole)]
    assert not errors, errors
    wrong = changed(whole, {"services.upf.cap_ad": ["BPF"]})
    assert [error for error in validator.iter_errors(wrong) if "cap_ad" in error.message], "the schema takes any key"

    upf = whole["services"]["upf"]
    assert sorted(upf["cap_add"]) == CAPABILITIES and upf["cap_drop"] == ["ALL"] and upf["read_only"] is True, upf
    assert "privileged" not in upf and not [one for one in upf.get("security_opt", []) if "no-new-privileges" in one], upf
    for name, service in whole["services"].items():
        assert name == "upf" or ":" in service["image"].rsplit("/", 1)[-1], f"{name}: an image without a tag"
        needs = service.get("depends_on", [])
        assert set(needs) <= set(whole["services"]), needs

    with open(f"{COMPOSE}/turnpiked.toml", encoding="utf-8") as file:
        text = file.read()
    config = tomllib.loads(text)
    with open(f"{COMPOSE}/smf.yaml", encoding="utf-8") as file:
        smf = yaml.safe_load(file)["smf"]
    # Interfaces of containers have addresses of their networks, which are others than the hosts'.
    subnets = {name: network["ipam"]["config"][0] for name, network in whole["networks"].items()}
    for service in whole["services"].values():
        if isinstance(service["networks"], dict):
            for name, one in service["networks"].items():
                if address := one.get("ipv4_address"):
                    assert ipaddress.ip_address(address) in ipaddress.ip_network(subnets[name]["subnet"]) and address != subnets[name]["gateway"], one
    ours = {one["interface_name"]: one["ipv4_address"] for one in upf["networks"].values()}
    assert {interface["name"] for interface in config["interface"]} <= set(ours), ours
    assert config["n4"]["listen"] == f"{ours['n4']}:8805" and config["node"]["id"] == ours["n4"]
    assert [interface.get("addresses") for interface in config["interface"]] == [[ours["n3"]], None]

    # As the SMF has it.
    address = whole["services"]["smf"]["networks"]["core"]["ipv4_address"]
    assert config["n4"]["allow"] == [f"{address}/32"], config["n4"]
    assert smf["pfcp"]["server"] == [{"address": address}] and smf["gtpu"]["server"] == [{"address": address}], smf
    assert smf["pfcp"]["client"]["upf"] == [{"address": ours["n4"], "dnn": "internet"}], smf
    (instance,) = config["network_instance"]
    (session,) = smf["session"]
    assert instance["name"] == session["dnn"] == whole["services"]["ue"]["environment"]["APN"]
    assert instance["pools"] == [session["subnet"]]
    assert f"ip route add {session['subnet']} via {ours['n6']}" in whole["services"]["server"]["command"][-1]
    # The subscriber is the UE.
    ue = whole["services"]["ue"]["environment"]
    (add,) = whole["services"]["subscriber"]["command"]
    assert add.split()[2:] == [ue["MCC"] + ue["MNC"] + ue["MSISDN"], ue["KEY"], ue["OP"]], add
    if turnpiked:
        assert taken_by_turnpiked(turnpiked, text, {name: (None, [f"{address}/24"]) for name, address in ours.items()})


def main():
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2])
        return
    turnpiked = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else None
    assert turnpiked is None or os.access(turnpiked, os.X_OK), f"{turnpiked} is no program"
    documented()
    notes()
    the_token_stays()
    ways = [host_network, host_device, macvlan, sriov, dpdk, kernel, everything]
    shown, served = 0, 0
    # A program that takes anything would judge nothing.
    if turnpiked:
        code, said = run(turnpiked, "check-config", f"{COMPOSE}/smf.yaml", check=False)
        assert code == 2 and "smf.yaml" in said, said
    for way in ways:
        for made in way():
            shown += 1
            if turnpiked:
                served += taken(turnpiked, made)
    examples = {os.path.basename(path).removesuffix(".yaml") for path in glob.glob(f"{CHART}/examples/*.yaml")}
    assert examples == {"host-network", "host-device", "macvlan", "sriov", "sriov-dpdk", "kernel"}, examples
    refusals()
    compose(turnpiked)
    by = f"{served} taken by turnpiked ({shown - served} are for data paths that it lacks)" if turnpiked else "configurations read as TOML alone"
    print(f"chart: {shown} sets of values judged, {len(REFUSED)} refused, {by}; compose file judged")


if __name__ == "__main__":
    main()
