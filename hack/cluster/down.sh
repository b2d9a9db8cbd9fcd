#!/usr/bin/env bash
# Stops what up.sh started on this machine, and only that.
#   hack/cluster/down.sh         objects, volumes and images stay; up.sh continues with them, as after a reboot
#   hack/cluster/down.sh wipe    removes them too
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$cluster_scripts/lib.sh"
. "$cluster_scripts/network.sh"

main() {
  [ "$(id -u)" = 0 ] || fail "needs root, as up.sh did"
  case ${1:-} in "" | wipe) ;; *) fail "unknown argument $1; the only one is wipe" ;; esac
  exclusively
  [ -d "$cluster_dir" ] || { rm -f "$NISSE_RUN/cluster.lock"; say "no cluster in $cluster_dir"; return; }
  mkdir -p "$pids" "$logs"

  # First whoever would start containers anew.
  stop controller-manager scheduler provisioner kubelet
  stop_containers
  say "no container runs"
  stop containerd proxy netpol apiserver
  stop etcd
  say "no program runs"

  unmount
  ! command -v kube-proxy >/dev/null || kube-proxy --cleanup --proxy-mode nftables >"$logs/proxy-cleanup.log" 2>&1 || true
  network_off
  forget_pods
  remove_cgroups
  say "mounts, rules, bridges removed"
  [ "${1:-}" != wipe ] || wipe
}

# stop_containers : ask, wait three seconds, then kill; deleting the last one of a pod ends its shim. Containers outlive a
# containerd that was killed, so those are ended by hand.
stop_containers() {
  local id
  if alive containerd; then
    for id in $(containers tasks list -q); do containers tasks kill -s TERM "$id" >/dev/null 2>&1 || true; done
    until_true 30 none_runs || true
    for id in $(containers tasks list -q); do containers tasks delete --force "$id" >/dev/null 2>&1 || true; done
    for id in $(containers containers list -q); do containers containers delete "$id" >/dev/null 2>&1 || true; done
    until_true 50 no_shim || true
  fi
  for id in $(shims); do kill_shim "$id"; done
  until_true 50 no_shim || fail "some container will not end: $(shims | tr '\n' ' '); find them with ps"
}

# kill_shim PID : with the container it holds. Its socket is named by containerd's rule, from its own and the pod's id.
kill_shim() {
  local pod
  pod=$(tr '\0' '\n' <"/proc/$1/cmdline" | sed -n '/^-id$/{n;p}') || return 0
  kill -KILL $(cat /proc/"$1"/task/*/children 2>/dev/null) "$1" 2>/dev/null || true
  rm -f "/run/containerd/s/$(printf %s "$CONTAINERD_SOCKET/k8s.io/$pod" | sha256sum | cut -d' ' -f1)"
}

none_runs() { ! containers tasks list | grep -q RUNNING; }

# shims : ids of the processes that hold containers of this cluster, known by its socket in their arguments
shims() {
  local arguments
  for arguments in /proc/[0-9]*/cmdline; do
    if tr '\0' ' ' 2>/dev/null <"$arguments" | grep -q "^[^ ]*containerd-shim.* -address $CONTAINERD_SOCKET"; then
      arguments=${arguments#/proc/}
      echo "${arguments%/cmdline}"
    fi
  done
}

no_shim() { [ -z "$(shims)" ]; }

# unmount : pod volumes and container roots, the innermost first
unmount() {
  local point
  mounts | while read -r point; do umount "$point" 2>/dev/null || umount --lazy "$point"; done
  [ -z "$(mounts)" ] || fail "still mounted: $(mounts | tr '\n' ' ')"
}

mounts() {
  awk -v a="$cluster_dir/" -v b="$containerd_state/" 'index($2, a) == 1 || index($2, b) == 1 {print $2}' /proc/self/mounts | sort -r
}

# forget_pods : no pod is left, so no address is taken, and what runc and the CNI library noted about them is void
forget_pods() {
  local note id
  rm -rf "$cluster_dir/ipam" "$containerd_state"
  for note in /var/lib/cni/results/nisse-pods-*-eth0; do
    [ -e "$note" ] || continue
    id=${note##*/nisse-pods-}
    rm -f "$note" "/var/lib/cni/results/cni-loopback-${id%-eth0}-lo"
  done
}

# remove_cgroups : the kubelet leaves its (empty) tree behind; rmdir refuses any that is in use
remove_cgroups() {
  find /sys/fs/cgroup -depth -type d -path '*/kubepods*' -exec rmdir {} + 2>/dev/null || true
}

wipe() {
  rm -rf "$cluster_dir"
  rm -f "$NISSE_RUN/cluster.lock"
  rmdir /run/nisse "$NISSE_RUN" 2>/dev/null || true
  say "state removed"
}

main "$@"
