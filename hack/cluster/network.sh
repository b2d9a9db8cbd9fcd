# The machine's side of the cluster network: node address, address translation for pods, and the hook that hands packets to
# netpol. Sourced by up.sh and down.sh; everything has names of its own, so network_off removes that and nothing else.

gate_queue=97
judge_queue=98

network_on() {
  local module
  # Built in or already loaded on most kernels; where one is really missing, a later step says which.
  for module in overlay br_netfilter nf_conntrack xt_NFQUEUE; do modprobe -q "$module" 2>/dev/null || true; done
  if ! ip link show "$node_bridge" >/dev/null 2>&1; then
    ip link add "$node_bridge" type bridge # a dummy device would do, but not every kernel has that
  fi
  ip link set "$node_bridge" up
  ip address replace "$NODEIP/32" dev "$node_bridge"
  # Without the second, packets between two pods stay below iptables: Services and policies would not see them.
  set_kernel net.ipv4.ip_forward 1
  set_kernel net.bridge.bridge-nf-call-iptables 1
  masquerade_on
  netpol_on
}

network_off() {
  local chain
  iptables -w -t nat -D POSTROUTING -j NISSE-MASQ 2>/dev/null || true
  iptables -w -D FORWARD -j NISSE-FORWARD 2>/dev/null || true
  iptables -w -t mangle -D PREROUTING -i "$pod_bridge" -j NISSE-GATE 2>/dev/null || true
  iptables -w -t mangle -D FORWARD -j NISSE-JUDGE 2>/dev/null || true
  iptables -w -t mangle -D INPUT -i "$pod_bridge" -j NISSE-JUDGE 2>/dev/null || true
  for chain in "nat NISSE-MASQ" "filter NISSE-FORWARD" "mangle NISSE-GATE" "mangle NISSE-JUDGE"; do
    iptables -w -t ${chain% *} -F ${chain#* } 2>/dev/null || true
    iptables -w -t ${chain% *} -X ${chain#* } 2>/dev/null || true
  done
  nft delete table inet nisse-netpol 2>/dev/null || true
  ip link delete "$pod_bridge" 2>/dev/null || true
  ip link delete "$node_bridge" 2>/dev/null || true
  restore_kernel
}

# set_kernel KEY VALUE : remembers what was there before the first up
set_kernel() {
  local before
  before=$(sysctl -n "$1" 2>/dev/null) || fail "this kernel has no $1; load the module that brings it (br_netfilter)"
  [ "$before" = "$2" ] && return
  echo "$1=$before" >>"$cluster_dir/kernel-before"
  sysctl -q -w "$1=$2"
}

restore_kernel() {
  local line
  [ -f "$cluster_dir/kernel-before" ] || return 0
  while read -r line; do sysctl -q -w "$line" || true; done <"$cluster_dir/kernel-before"
  rm "$cluster_dir/kernel-before"
}

# rule TABLE CHAIN RULE... : append once
rule() {
  local table=$1 chain=$2
  shift 2
  iptables -w -t "$table" -C "$chain" "$@" 2>/dev/null || iptables -w -t "$table" -A "$chain" "$@"
}

# masquerade_on : one rule for all pods. The CNI plugin's own adds a chain a pod, which a killed node would leave behind.
masquerade_on() {
  iptables -w -t nat -N NISSE-MASQ 2>/dev/null || true
  rule nat NISSE-MASQ -s "$PODCIDR" ! -d "$PODCIDR" ! -o "$pod_bridge" -j MASQUERADE
  rule nat POSTROUTING -j NISSE-MASQ
  # Machines that also run Docker drop forwarded packets by default. Policies have judged them before this (mangle).
  iptables -w -N NISSE-FORWARD 2>/dev/null || true
  rule filter NISSE-FORWARD -i "$pod_bridge" -j ACCEPT
  rule filter NISSE-FORWARD -o "$pod_bridge" -j ACCEPT
  iptables -w -C FORWARD -j NISSE-FORWARD 2>/dev/null || iptables -w -I FORWARD -j NISSE-FORWARD
}

# netpol_on : first packets of connections from or to pods wait for netpol's verdict. The gate sees what pods send as soon as it
# arrives; the judge sees it after Service addresses are translated, in FORWARD, or in INPUT when it is for this machine itself.
# No bypass: without netpol there are no new connections.
netpol_on() {
  local chain
  for chain in NISSE-GATE NISSE-JUDGE; do
    iptables -w -t mangle -N "$chain" 2>/dev/null || true
    rule mangle "$chain" -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN
  done
  rule mangle NISSE-GATE -s "$PODCIDR" -j NFQUEUE --queue-num "$gate_queue" ||
    fail "this kernel cannot queue packets (CONFIG_NETFILTER_XT_TARGET_NFQUEUE); NetworkPolicies could not be enforced"
  rule mangle NISSE-JUDGE -s "$PODCIDR" -j NFQUEUE --queue-num "$judge_queue"
  rule mangle NISSE-JUDGE -d "$PODCIDR" -j NFQUEUE --queue-num "$judge_queue"
  rule mangle PREROUTING -i "$pod_bridge" -j NISSE-GATE
  rule mangle FORWARD -j NISSE-JUDGE
  rule mangle INPUT -i "$pod_bridge" -j NISSE-JUDGE
}

# netpol_reads : both queues have their reader
netpol_reads() {
  grep -q "^ *$gate_queue " /proc/net/netfilter/nfnetlink_queue && grep -q "^ *$judge_queue " /proc/net/netfilter/nfnetlink_queue
}
