#!/usr/bin/env bash
# Measures what docs/performance.md publishes, on a stack of its own: the whole product as plain processes beside a real API server,
# a real etcd that syncs its disk, and a real homeserver. Prints the tables of docs/performance.md as they stand there. No test waits
# for these figures.
#
#   hack/bench.sh             all of it
#
#   N=50                      decisions of each kind
#   IDLE_MINUTES=2            for how long writes are counted while nothing happens
#   CALLS=200                 calls to the device
#   BENCH_BODIES=1            prints each write with its body
#   BENCH_IMAGES=             leaves the images out
#   BENCH_PODS=5              also starts agents' pods on the demo's cluster, which must be up, and tells how long they take
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export KUBEBUILDER_ASSETS=${KUBEBUILDER_ASSETS:-$(hack/cluster/build.sh envtest-assets)}
hack/homeserver/install.sh >/dev/null
printf '%s, %s CPUs (%s), Linux %s, %s, commit %s\n' "$(date -u +%F)" "$(nproc)" "$(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)" \
  "$(uname -r | cut -d- -f1)" "$(go env GOVERSION)" "$(git describe --always --dirty 2>/dev/null || echo unknown)"
# measure one of the tests, and leave out what go test says when all is well.
measure() {
  go test -tags 'goolm bench' -run "^$1\$" -count=1 -timeout 120m -v ./test/bench | { grep -Ev '^(=== |--- PASS|PASS$|ok  )' || true; }
}
measure TestBench
if [ -n "${BENCH_PODS:-}" ]; then
  . hack/cluster/env.sh
  measure TestPod
fi
if [ -n "${BENCH_IMAGES-1}" ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
  printf '\n### Images\n\n'
  GOFLAGS='' go run ./hack/images -out "$out" -tags goolm
fi
