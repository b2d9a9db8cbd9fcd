#!/usr/bin/env bash
# Brings up a real Kubernetes of one node on this machine, without Docker: Debian's containerd, everything else from build.sh.
#   hack/cluster/up.sh
# Run it again at any time: what runs stays, what died or changed is started, and a stopped cluster comes back with its objects.
# NISSE_DNS_UPSTREAM=auto (or an address) lets pods resolve names outside the cluster; without it those do not exist.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$cluster_scripts/lib.sh"
. "$cluster_scripts/pki.sh"
. "$cluster_scripts/network.sh"

main() {
  [ "$(id -u)" = 0 ] || fail "needs root: it starts a container runtime and a kubelet"
  command -v go >/dev/null || fail "needs Go (https://go.dev/dl)"
  exclusively
  packages
  "$cluster_scripts/build.sh" cluster >/dev/null 9>&-
  mkdir -p "$pids" "$logs" "$cluster_dir"/{cni,volumes,pod-logs,kubelet} "$containerd_state"
  say "programs"

  network_on
  make_pki
  say "network and certificates"

  start_etcd
  start_apiserver
  start_containerd
  expect containerd 20 containers version
  "$cluster_scripts/load.sh" "$("$cluster_scripts/build.sh" images 9>&-)"/*.tar >/dev/null
  say "containerd, images"

  expect apiserver 60 kubectl get --raw /readyz
  say "API server"
  apply_base
  start_controllers
  # Before the kubelet: no pod of ours ever runs without its policies.
  start_netpol
  expect netpol 20 netpol_reads
  start_node
  expect kubelet 60 node_ready
  say "node"
  expect kubelet 60 pods_known
  testpod=$("$cluster_scripts/build.sh" testpod 9>&-)/testpod
  expect kubelet 90 dns_ready
  local name
  for name in etcd apiserver containerd controller-manager scheduler netpol kubelet proxy provisioner; do
    alive "$name" || fail "$name ended soon after its start; see $logs/$name.log"
  done
  say "DNS; the cluster is up"
  echo "export KUBECONFIG=$KUBECONFIG"
}

packages() {
  local program package missing=()
  for program in containerd:containerd ctr:containerd runc:runc iptables:iptables nft:nftables ip:iproute2 conntrack:conntrack \
    openssl:openssl curl:curl sysctl:procps mount:mount flock:util-linux /usr/lib/cni/bridge:containernetworking-plugins; do
    package=${program##*:}
    command -v "${program%:*}" >/dev/null || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || fail "install these first, by the names of your distribution: ${missing[*]}"
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -qq -y --no-install-recommends "${missing[@]}"; } >"$NISSE_RUN/apt.log" 2>&1 9>&- ||
    { tail -n 5 "$NISSE_RUN/apt.log" >&2; fail "apt-get could not install ${missing[*]}; see $NISSE_RUN/apt.log"; }
}

start_etcd() {
  start etcd etcd --name "$NODE" --data-dir "$cluster_dir/etcd" --log-level warn \
    --listen-client-urls "http://127.0.0.1:$etcd_port" --advertise-client-urls "http://127.0.0.1:$etcd_port" \
    --listen-peer-urls "http://127.0.0.1:$etcd_peer_port" --initial-advertise-peer-urls "http://127.0.0.1:$etcd_peer_port" \
    --initial-cluster "$NODE=http://127.0.0.1:$etcd_peer_port"
}

start_apiserver() {
  # Every write of a Nisse object, for tests that count them and for a person who asks who did what.
  cat >"$cluster_dir/audit-policy.yaml" <<EOF
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, verbs: [create, update, patch, delete, deletecollection], resources: [{group: nisse.io}]}
- {level: None}
EOF
  # InternalIP first, as the node's name is in no DNS: without it logs and exec fail.
  start apiserver kube-apiserver --etcd-servers "http://127.0.0.1:$etcd_port" \
    --advertise-address "$NODEIP" --bind-address "$NODEIP" --secure-port "$api_port" \
    --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" --client-ca-file "$pki/ca.crt" \
    --kubelet-certificate-authority "$pki/ca.crt" \
    --kubelet-client-certificate "$pki/kubelet-client.crt" --kubelet-client-key "$pki/kubelet-client.key" \
    --kubelet-preferred-address-types InternalIP \
    --service-account-issuer https://kubernetes.default.svc.cluster.local \
    --service-account-key-file "$pki/sa.pub" --service-account-signing-key-file "$pki/sa.key" \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --anonymous-auth=false \
    --service-cluster-ip-range "$SERVICECIDR" --allow-privileged --profiling=false \
    --audit-policy-file "$cluster_dir/audit-policy.yaml" --audit-log-path "$logs/audit.log" --audit-log-maxsize 50 --audit-log-maxbackup 2
}

start_containerd() {
  cat >"$cluster_dir/cni/10-pods.conflist" <<EOF
{"cniVersion": "0.4.0", "name": "nisse-pods", "plugins": [{
  "type": "bridge", "bridge": "$pod_bridge", "isGateway": true, "ipMasq": false, "hairpinMode": true,
  "ipam": {"type": "host-local", "dataDir": "$cluster_dir/ipam", "ranges": [[{"subnet": "$PODCIDR"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
EOF
  # restrict_oom_score_adj: machines that are containers themselves may not lower that score. Network namespaces below the
  # state directory can be told from those of other runtimes when they have to go.
  cat >"$cluster_dir/containerd.toml" <<EOF
version = 2
root = "$cluster_dir/containerd"
state = "$containerd_state"
[grpc]
  address = "$CONTAINERD_SOCKET"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/nisse-dev/pause:dev"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$cluster_dir/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "$containerd_state/runc"
[plugins."io.containerd.internal.v1.opt"]
  path = "$cluster_dir/opt"
EOF
  start containerd containerd --config "$cluster_dir/containerd.toml"
}

start_controllers() {
  start controller-manager kube-controller-manager --kubeconfig "$cluster_dir/controller-manager.conf" \
    --service-account-private-key-file "$pki/sa.key" --root-ca-file "$pki/ca.crt" --use-service-account-credentials \
    --cluster-signing-cert-file "$pki/ca.crt" --cluster-signing-key-file "$pki/ca.key" \
    --node-monitor-period 1s --leader-elect=false --bind-address 127.0.0.1 --secure-port "$manager_port"
  start scheduler kube-scheduler --kubeconfig "$cluster_dir/scheduler.conf" \
    --leader-elect=false --bind-address 127.0.0.1 --secure-port "$scheduler_port"
  start provisioner "$("$cluster_scripts/build.sh" provisioner 9>&-)/provisioner" \
    -kubeconfig "$cluster_dir/provisioner.conf" -dir "$cluster_dir/volumes" -node "$NODE"
}

start_netpol() {
  start netpol "$("$cluster_scripts/build.sh" netpol 9>&-)/netpol" -kubeconfig "$cluster_dir/netpol.conf" -node "$NODE" \
    -gate-queue "$gate_queue" -queue "$judge_queue" -metrics-address "127.0.0.1:$netpol_metrics_port" -v "${NETPOL_VERBOSITY:-0}"
}

start_node() {
  upstream | sed 's/^/nameserver /' >"$cluster_dir/resolv.conf"
  # Images cannot be pulled again, so none is collected. Swap and cgroup v1 are what some machines have. The utility chains
  # would stay behind in iptables, and nothing here needs them.
  cat >"$cluster_dir/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODEIP
port: $kubelet_port
healthzBindAddress: 127.0.0.1
healthzPort: $kubelet_health_port
readOnlyPort: 0
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix://$CONTAINERD_SOCKET
podLogsDir: $cluster_dir/pod-logs
tlsCertFile: $pki/kubelet-server.crt
tlsPrivateKeyFile: $pki/kubelet-server.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
clusterDNS: [$DNSIP]
clusterDomain: cluster.local
resolvConf: $cluster_dir/resolv.conf
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
evictionHard: {imagefs.available: "1%", nodefs.available: "1%", memory.available: 100Mi}
EOF
  start kubelet kubelet --config "$cluster_dir/kubelet.yaml" --kubeconfig "$cluster_dir/kubelet.conf" \
    --hostname-override "$NODE" --node-ip "$NODEIP" --root-dir "$cluster_dir/kubelet"
  start proxy kube-proxy --proxy-mode nftables --kubeconfig "$cluster_dir/proxy.conf" --hostname-override "$NODE" \
    --cluster-cidr "$PODCIDR" --bind-address "$NODEIP" --conntrack-max-per-core 0 \
    --healthz-bind-address "127.0.0.1:$proxy_health_port" --metrics-bind-address "127.0.0.1:$proxy_metrics_port"
}

# upstream : the name servers that CoreDNS asks about names outside. A resolver on loopback is out of a pod's reach.
upstream() {
  local file
  case ${NISSE_DNS_UPSTREAM:-} in
    "") ;;
    auto)
      for file in /run/systemd/resolve/resolv.conf /etc/resolv.conf; do
        [ -r "$file" ] || continue
        awk '$1 == "nameserver" && $2 !~ /^127\./ && $2 != "::1" {print $2}' "$file"
        break
      done
      ;;
    *) tr ' ,' '\n\n' <<<"$NISSE_DNS_UPSTREAM" ;;
  esac
}

apply_base() {
  local servers outside='template ANY ANY { rcode NXDOMAIN }'
  servers=$(upstream | tr '\n' ' ')
  [ -z "$servers" ] || outside="forward . $servers"
  sed -e "s|@NODEIP@|$NODEIP|; s|@DNSIP@|$DNSIP|; s|@COREDNS_VERSION@|$COREDNS_VERSION|; s|@OUTSIDE@|$outside|" \
    "$cluster_scripts/manifests/base.yaml" | until_applied
}

# until_applied : just after its first start the API server still lacks a namespace or two
until_applied() {
  cat >"$cluster_dir/base.yaml"
  until_true 100 kubectl apply -f "$cluster_dir/base.yaml" || kubectl apply -f "$cluster_dir/base.yaml"
}

# What the API server remembers of a stopped cluster looks healthy, so readiness is asked of what is there now.

# node_ready : the kubelet that runs now has reported, and what it reported is Ready
node_ready() {
  local born heard ready
  born=$(date -u -d "@$(stat -c %Y "$pids/kubelet")" +%Y-%m-%dT%H:%M:%SZ)
  read -r heard ready < <(kubectl get node "$NODE" -o 'jsonpath={range .status.conditions[?(@.type=="Ready")]}{.lastHeartbeatTime} {.status}{end}{"\n"}')
  [ "$ready" = True ] && ! [[ $heard < $born ]]
}

# pods_known : every container that is reported to run does run
pods_known() {
  local id running
  running=$(containers tasks list -q)
  for id in $(kubectl get pods -A -o 'jsonpath={range .items[*].status.containerStatuses[?(@.state.running)]}{.containerID}{"\n"}{end}'); do
    grep -qxF "${id#containerd://}" <<<"$running" || return 1
  done
}

# dns_ready : an answer over the Service's address proves CoreDNS, kube-proxy and the pod network at once
dns_ready() { "$testpod" lookup kubernetes.default.svc.cluster.local "$DNSIP:53" | grep -qx "$APISERVICEIP"; }

main "$@"
