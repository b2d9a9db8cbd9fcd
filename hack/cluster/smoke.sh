#!/usr/bin/env bash
# Does the cluster do what Nisse relies on? Prints PASS or FAIL for each point; the exit code is 0 when all pass.
#   hack/cluster/smoke.sh
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$cluster_scripts/lib.sh"

namespace=nisse-smoke
failures=0
scratch=$(mktemp -d)
host_program=

tidy() {
  [ -z "$host_program" ] || kill "$host_program" 2>/dev/null
  kubectl delete namespace "$namespace" --wait=true --timeout=60s >/dev/null 2>&1
  rm -rf "$scratch"
}
trap tidy EXIT

# check TITLE COMMAND... : the end of its output is shown when it fails
check() {
  local title=$1
  shift
  if "$@" >"$scratch/out" 2>&1; then
    echo "PASS  $title"
  else
    echo "FAIL  $title"
    sed 's/^/        /' "$scratch/out" | tail -n 5
    failures=$((failures + 1))
  fi
}

in_client() { kubectl -n "$namespace" exec client -- /usr/local/bin/testpod "$@"; }

# A refusal is silent (the packet is dropped), so what must be refused is asked for until the client's patience ends.
refused() {
  in_client get "$1" >"$scratch/refused" 2>&1
  grep 'deadline exceeded' "$scratch/refused" || { cat "$scratch/refused"; return 1; }
}

prepare() {
  kubectl get --raw /readyz >/dev/null || fail "no cluster answers; start it with hack/cluster/up.sh"
  "$(testpod)" serve "$NODEIP:0" >"$scratch/host" 2>&1 &
  host_program=$!
  until_true 50 grep -q listening "$scratch/host" || fail "no program can listen on $NODEIP; is the cluster up?"
  host=$(sed -n 's/^listening on //p' "$scratch/host")
  kubectl delete namespace "$namespace" --ignore-not-found --timeout=60s >/dev/null
  sed "s/@NODEIP@/$NODEIP/; s/@HOSTPORT@/${host##*:}/" "$cluster_scripts/manifests/smoke.yaml" | kubectl apply -f - >/dev/null &&
    kubectl -n "$namespace" rollout status deployment web --timeout=60s >/dev/null &&
    kubectl -n "$namespace" wait --for=condition=Ready pod other client --timeout=60s >/dev/null ||
    { kubectl -n "$namespace" get pods,pvc,events; fail "the smoke test's pods do not start"; }
  other=$(kubectl -n "$namespace" get pod other -o 'jsonpath={.status.podIP}')
}

testpod() { echo "$("$cluster_scripts/build.sh" testpod 2>/dev/null)/testpod"; }

service_and_dns() { in_client get http://web/ | grep -q '^hello from web-'; }
host_by_name() { in_client get "http://host.nisse.internal:${host##*:}/" | grep -q '^hello from'; }
unknown_name() {
  in_client lookup name-that-does-not-exist.example >"$scratch/lookup" 2>&1
  grep 'no such host' "$scratch/lookup" || { cat "$scratch/lookup"; return 1; }
}
# Pods that connect in their first instant, when their addresses are not published yet.
new_pods_refused() {
  local number
  for number in 1 2 3 4 5; do
    sed "s/@NUMBER@/$number/; s/@OTHER@/$other/" "$cluster_scripts/manifests/smoke-new-pod.yaml"
  done | kubectl apply -f - >/dev/null || return
  kubectl -n "$namespace" wait --for='jsonpath={.status.phase}=Failed' pod -l new=true --timeout=20s ||
    { kubectl -n "$namespace" get pods -l new=true; return 1; }
}
logs() { kubectl -n "$namespace" logs other | grep -q '^listening on'; }
volume() {
  in_client write /data/file kept && [ "$(in_client cat /data/file)" = kept ] &&
    [ "$(kubectl -n "$namespace" get pvc data -o 'jsonpath={.status.phase}')" = Bound ]
}
# token AUDIENCE WANTED : what TokenReview says of the client's projected token
token() {
  local token
  token=$(in_client cat /var/run/secrets/tokens/token) || return
  printf '{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"%s","audiences":["%s"]}}' "$token" "$1" |
    kubectl create -f - -o 'jsonpath={.status.authenticated} {.status.user.username}' | tee "$scratch/review" | grep -qx "$2" ||
    { cat "$scratch/review"; return 1; }
}
# The kubelet is on NODEIP, where pods with a policy for that could reach it: it must know its callers.
kubelet_asks_who() { [ "$(curl -sk -o /dev/null -w '%{http_code}' "https://$NODEIP:$kubelet_port/pods")" = 401 ]; }

prepare
check "service by name, over DNS" service_and_dns
check "machine's program by name, allowed by policy" host_by_name
check "name outside the cluster gets an answer" unknown_name
check "pod not allowed by policy is out of reach" refused "http://$other:8080/"
check "API server not allowed by policy is out of reach" refused "https://$APISERVICEIP/"
check "kubelet not allowed by policy is out of reach" refused "https://$NODEIP:$kubelet_port/"
check "not even from a pod's first instant" new_pods_refused
check "logs" logs
check "exec, and a volume that binds and keeps a file" volume
check "projected token is known for its audience" token smoke "true system:serviceaccount:$namespace:worker"
check "projected token is refused for another audience" token other " *"
check "kubelet refuses callers without a name" kubelet_asks_who

[ "$failures" = 0 ] || { echo "$failures failed"; exit 1; }
