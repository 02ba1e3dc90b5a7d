# An engine's own seccomp profile, with bpf(2) for whom CAP_BPF allows it; podman's in Debian 12 asks for CAP_SYS_ADMIN.
# jq -f seccomp.jq /usr/share/containers/seccomp.json
(.syscalls[] | select(.action == "SCMP_ACT_ERRNO") | .names) -= ["bpf"]
| .syscalls += [{names: ["bpf"], action: "SCMP_ACT_ALLOW", includes: {caps: ["CAP_BPF"]}}]
