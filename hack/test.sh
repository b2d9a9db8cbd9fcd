#!/usr/bin/env bash
# Provides what the tests need - an API server and a homeserver, both real - and runs them. usage: hack/test.sh PACKAGE...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ -z "${KUBEBUILDER_ASSETS:-}" ]; then
  KUBEBUILDER_ASSETS=$(hack/cluster/build.sh envtest-assets)
  export KUBEBUILDER_ASSETS
fi
hack/homeserver/install.sh >/dev/null
go vet "$@"
# What stacks run, built once for all packages that start one (see test/stack), and only where something changed.
CGO_ENABLED=0 go build -tags 'goolm crashrig' -o dist/stack/ ./cmd/{nisse-device,manager,broker,gateway,agentruntime}
export NISSE_STACK_BINARIES=$PWD/dist/stack
# The gate before the network policies lives in a module of its own, with the dependencies it needs.
(cd hack/cluster/netpol && GOFLAGS= go test ./...)
# The longest begin first; or one of them would be left over at the end, and the processors idle.
long=()
for p in nisse.io/nisse/test/{faults,crash} nisse.io/nisse/{gateway,controllers}; do
  for given in "$@"; do
    if [ "$given" = "$p" ]; then long+=("$p"); fi
  done
done
# Three packages at a time, also on two processors, as most wait more than they compute; not more, as each may run an API server and a
# homeserver of its own.
go test -p 3 -timeout 20m ${TESTFLAGS:-} ${long[@]+"${long[@]}"} "$@"
