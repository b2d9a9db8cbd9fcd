# Where the development cluster is and how to reach it. Source it; every value can be set beforehand.
#   . hack/cluster/env.sh && kubectl get nodes

cluster_scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$cluster_scripts/versions.env"

export NISSE_CACHE=${NISSE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nisse}
export NISSE_RUN=${NISSE_RUN:-/var/lib/nisse-dev}
cluster_dir=$NISSE_RUN/cluster

# The node's address sits on an empty bridge, so it belongs to this machine only and does not depend on its network cards.
# Programs on the machine (model, homeserver, devices) that listen on it are reached from pods, as are they under the name
# host.nisse.internal.
export NODEIP=${NODEIP:-172.30.0.1}
export NODE=${NODE:-nisse-dev}
export PODCIDR=${PODCIDR:-10.244.0.0/24}
export SERVICECIDR=${SERVICECIDR:-10.96.0.0/16}
# Within SERVICECIDR: the first address is the API server's, the tenth by custom the DNS server's.
export APISERVICEIP=${APISERVICEIP:-10.96.0.1}
export DNSIP=${DNSIP:-10.96.0.10}
node_bridge=nisse0
pod_bridge=nisse-pods

# On NODEIP:
api_port=${API_PORT:-6443}
kubelet_port=${KUBELET_PORT:-10250}
# On loopback:
etcd_port=${ETCD_PORT:-2379}
etcd_peer_port=${ETCD_PEER_PORT:-2380}
kubelet_health_port=10248
proxy_metrics_port=10249
proxy_health_port=10256
manager_port=10257
scheduler_port=10259
netpol_metrics_port=10261

# Sockets want short paths, and their directory must not survive a reboot.
containerd_state=/run/nisse/containerd
export CONTAINERD_SOCKET=$containerd_state/containerd.sock

pki=$cluster_dir/pki
export KUBECONFIG=$cluster_dir/admin.conf

kubernetes_bin=$NISSE_CACHE/kubernetes-$KUBERNETES_VERSION
etcd_bin=$NISSE_CACHE/etcd-$ETCD_VERSION
helm_bin=$NISSE_CACHE/helm-$HELM_VERSION
case :$PATH: in
  *:$kubernetes_bin:*) ;;
  *) export PATH=$kubernetes_bin:$etcd_bin:$helm_bin:$PATH ;;
esac
