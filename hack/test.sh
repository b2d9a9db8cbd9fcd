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
# Two packages at a time: each may run an API server and a homeserver of its own.
# The gate before the network policies lives in a module of its own, with the dependencies it needs.
(cd hack/cluster/netpol && GOFLAGS= go test ./...)
go test -p 2 -timeout 20m ${TESTFLAGS:-} "$@"
