#!/usr/bin/env bash
# Obtains the programs of the development cluster, each once, into a cache outside the tree:
#
#   hack/cluster/build.sh WHAT...    WHAT is one of
#     kubernetes       kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy, kubectl
#     etcd  coredns  netpol  provisioner  pause  testpod  helm
#     cluster          all of the above that up.sh needs
#     images           images of pause, coredns and testpod, as files
#     envtest-assets   a directory with kube-apiserver, etcd and kubectl, for KUBEBUILDER_ASSETS
#
# The path of what was asked for is printed on standard output, progress on standard error. An official download is used where
# it can be reached and its checksum is right; otherwise the same version is built from its Go module. A file takes its final
# name only when it is whole, so an interrupted build is never mistaken for a finished one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/versions.env"

cache=${NISSE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nisse}
arch=$(go env GOARCH)
began=$SECONDS

say() { printf '%4d s  %s\n' $((SECONDS - began)) "$*" >&2; }
fail() { printf 'build: %s\n' "$*" >&2; exit 1; }

# have DIR FILE... : is every file there
have() {
  local dir=$1 file
  shift
  for file; do [ -x "$dir/$file" ] || return 1; done
}

# install_file FROM DIR NAME : give a whole file its final name in one step
install_file() {
  chmod 0755 "$1"
  mv -f "$1" "$2/$3"
}

# fetch URL FILE : download; a network without the host answers no within seconds
fetch() { curl --fail --silent --show-error --location --connect-timeout 4 --speed-time 20 --speed-limit 10000 --output "$2" "$1" 2>/dev/null; }

# checked FILE SUM : refuse a file whose SHA-256 is not SUM
checked() {
  local sum
  sum=$(sha256sum "$1" | cut -d' ' -f1)
  [ "$sum" = "$2" ] && return
  say "checksum of $(basename "$1") is $sum, published is ${2:-nothing}: not used"
  return 1
}

# compile DIR NAME PACKAGE [LDFLAGS] : build in the current module, say how long it took
compile() {
  local dir=$1 name=$2 package=$3 flags=${4:-} start=$SECONDS
  say "$name: building from source"
  CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w $flags" -o "$work/$name" "$package" >&2 ||
    fail "cannot build $name; is the Go module proxy reachable (go env GOPROXY)?"
  install_file "$work/$name" "$dir" "$name"
  say "$name: built in $((SECONDS - start)) s"
}

# --- Kubernetes ---------------------------------------------------------------------------------------------------------

kubernetes_all="kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl"

# kubernetes DIR NAME...
kubernetes() {
  local dir=$1 name
  shift
  for name; do
    have "$dir" "$name" && continue
    download_kubernetes "$dir" "$name" && continue
    kubernetes_module
    (export GOFLAGS=-mod=mod && cd "$work/kubernetes" && compile "$dir" "$name" "k8s.io/kubernetes/cmd/$name" "$(kubernetes_flags)")
  done
}

download_kubernetes() {
  local url=$KUBERNETES_URL/$KUBERNETES_VERSION/bin/linux/$arch/$2
  fetch "$url.sha256" "$work/sum" && fetch "$url" "$work/$2" && checked "$work/$2" "$(cut -d' ' -f1 "$work/sum")" || return 1
  install_file "$work/$2" "$1" "$2"
  say "$2: downloaded"
}

# kubernetes_module : a module that requires k8s.io/kubernetes. That one replaces its staging repositories by directories, which
# only its own tree has; each is published under v0.<minor>.<patch> as well.
kubernetes_module() {
  [ -f "$work/kubernetes/go.mod" ] && return
  mkdir "$work/kubernetes"
  local staging=v0.${KUBERNETES_VERSION#v1.} source name
  (
    export GOFLAGS=-mod=mod
    cd "$work/kubernetes"
    go mod init build >/dev/null 2>&1
    go mod edit "-go=$(go env GOVERSION | sed 's/^go//; s/ .*//')" "-require=k8s.io/kubernetes@$KUBERNETES_VERSION"
    source=$(go mod download -json "k8s.io/kubernetes@$KUBERNETES_VERSION" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    [ -n "$source" ] || fail "cannot download k8s.io/kubernetes $KUBERNETES_VERSION; is the Go module proxy reachable?"
    for name in $(sed -n 's#^\t\(k8s.io/[a-z-]*\) => ./staging.*#\1#p' "$source/go.mod"); do
      go mod edit "-replace=$name=$name@$staging"
    done
  )
}

kubernetes_flags() {
  local minor=${KUBERNETES_VERSION#v1.}
  printf -- '-X k8s.io/component-base/version.%s ' "gitVersion=$KUBERNETES_VERSION" gitMajor=1 "gitMinor=${minor%%.*}"
}

# --- the others ---------------------------------------------------------------------------------------------------------

# etcd DIR : Debian's etcd 3.4 is too old, watches fail with "Too large resource version"
etcd() {
  have "$1" etcd etcdctl etcdutl && return
  local name=etcd-$ETCD_VERSION-linux-$arch file
  if fetch "$ETCD_URL/$ETCD_VERSION/SHA256SUMS" "$work/sum" && fetch "$ETCD_URL/$ETCD_VERSION/$name.tar.gz" "$work/$name.tar.gz" &&
    checked "$work/$name.tar.gz" "$(sed -n "s/ *$name.tar.gz\$//p" "$work/sum")"; then
    tar -xzf "$work/$name.tar.gz" -C "$work"
    for file in etcd etcdctl etcdutl; do install_file "$work/$name/$file" "$1" "$file"; done
    say "etcd: downloaded"
    return
  fi
  mkdir "$work/etcd-module"
  (
    export GOFLAGS=-mod=mod
    cd "$work/etcd-module"
    go mod init build >/dev/null 2>&1
    go get "go.etcd.io/etcd/server/v3@$ETCD_VERSION" "go.etcd.io/etcd/etcdctl/v3@$ETCD_VERSION" "go.etcd.io/etcd/etcdutl/v3@$ETCD_VERSION" >/dev/null 2>&1 ||
      fail "cannot download etcd $ETCD_VERSION; is the Go module proxy reachable?"
    have "$1" etcd || compile "$1" etcd go.etcd.io/etcd/server/v3
    have "$1" etcdctl || compile "$1" etcdctl go.etcd.io/etcd/etcdctl/v3
    have "$1" etcdutl || compile "$1" etcdutl go.etcd.io/etcd/etcdutl/v3
  )
}

coredns() {
  have "$1" coredns && return
  local name=coredns_${COREDNS_VERSION#v}_linux_$arch.tgz
  if fetch "$COREDNS_URL/$COREDNS_VERSION/$name.sha256" "$work/sum" && fetch "$COREDNS_URL/$COREDNS_VERSION/$name" "$work/$name" &&
    checked "$work/$name" "$(cut -d' ' -f1 "$work/sum")"; then
    tar -xzf "$work/$name" -C "$work" coredns
    install_file "$work/coredns" "$1" coredns
    say "coredns: downloaded"
    return
  fi
  own "$1" coredns
}

helm() {
  have "$1" helm && return
  local name=helm-$HELM_VERSION-linux-$arch.tar.gz major=${HELM_VERSION%%.*}
  if fetch "$HELM_URL/$name.sha256sum" "$work/sum" && fetch "$HELM_URL/$name" "$work/$name" &&
    checked "$work/$name" "$(cut -d' ' -f1 "$work/sum")"; then
    tar -xzf "$work/$name" -C "$work"
    install_file "$work/linux-$arch/helm" "$1" helm
    say "helm: downloaded"
    return
  fi
  local start=$SECONDS
  say "helm: building from source"
  GOBIN=$work CGO_ENABLED=0 go install -trimpath -ldflags "-s -w -X helm.sh/helm/$major/internal/version.version=$HELM_VERSION" \
    "helm.sh/helm/$major/cmd/helm@$HELM_VERSION" >&2 || fail "cannot build helm; is the Go module proxy reachable (go env GOPROXY)?"
  install_file "$work/helm" "$1" helm
  say "helm: built in $((SECONDS - start)) s"
}

# own DIR NAME : a program whose source is hack/cluster/NAME, with a go.mod of its own or none
own() {
  have "$1" "$2" && return
  (cd "$here/$2" && compile "$1" "$2" .)
}

# source_key NAME : changes whenever hack/cluster/NAME does, so that the cache cannot serve an old program
source_key() { (cd "$here/$1" && cat go.mod go.sum ./*.go 2>/dev/null | sha256sum | cut -c1-10); }

# place WHAT : where a thing lives in the cache
place() {
  case $1 in
    kubernetes) echo "$cache/kubernetes-$KUBERNETES_VERSION" ;;
    etcd) echo "$cache/etcd-$ETCD_VERSION" ;;
    helm) echo "$cache/helm-$HELM_VERSION" ;;
    coredns) echo "$cache/coredns-$COREDNS_VERSION-$(source_key coredns)" ;;
    netpol) echo "$cache/netpol-$NETPOL_VERSION-$(source_key netpol)" ;;
    provisioner) echo "$cache/provisioner-$PROVISIONER_VERSION-$(source_key provisioner)" ;;
    pause | testpod) echo "$cache/$1-$(source_key "$1")" ;;
    images) echo "$cache/images-$(printf %s "$(place pause)$(place coredns)$(place testpod)$(source_key ../images)" | sha256sum | cut -c1-10)" ;;
    envtest-assets) echo "$cache/envtest-$KUBERNETES_VERSION-$ETCD_VERSION" ;;
  esac
}

# images DIR : the version in the tag is for people; up.sh decides by the file's content what to load
images() {
  local name tag
  for name in pause coredns testpod; do
    [ -f "$1/$name-linux-$arch.tar" ] && continue
    obtain "$name" >/dev/null
    tag=dev
    [ "$name" != coredns ] || tag=$COREDNS_VERSION
    (cd "$here/../.." && go run ./hack/images -out "$1" -repository localhost/nisse-dev -tag "$tag" -arch "$arch" \
      -prebuilt "$(place "$name")/$name" -bare >&2)
  done
}

envtest_assets() {
  kubernetes "$(mkdir -p "$(place kubernetes)" && place kubernetes)" kube-apiserver kubectl
  obtain etcd >/dev/null
  ln -sfn "$(place kubernetes)/kube-apiserver" "$(place kubernetes)/kubectl" "$(place etcd)/etcd" "$1/"
}

# obtain WHAT : make sure it is in the cache, print where
obtain() {
  local what=$1 dir
  dir=$(place "$what")
  [ -n "$dir" ] || fail "unknown: $what (run $0 without arguments for the list)"
  mkdir -p "$dir"
  case $what in
    kubernetes) kubernetes "$dir" $kubernetes_all ;;
    etcd | coredns | helm | images) "$what" "$dir" ;;
    envtest-assets) envtest_assets "$dir" ;;
    *) own "$dir" "$what" ;;
  esac
  echo "$dir"
}

[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }

# A workspace file of the caller must not reach into modules that are not its own.
export GOWORK=off
mkdir -p "$cache"
# One build at a time: each uses every core, and two would fetch the same modules twice.
exec 9>"$cache/build.lock"
flock -n 9 || { say "waiting for another build to finish"; flock 9; }
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

for what; do
  case $what in
    cluster) for part in kubernetes etcd netpol provisioner images helm; do obtain "$part"; done ;;
    *) obtain "$what" ;;
  esac
done
