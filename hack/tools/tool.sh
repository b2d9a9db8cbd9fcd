#!/usr/bin/env bash
# Prints the path of a tool, building it first if the cache lacks this version. usage: hack/tools/tool.sh controller-gen|golangci-lint|govulncheck|setup-envtest
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${NISSE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nisse}
case ${1:?which tool?} in
  controller-gen) dir=$here package=sigs.k8s.io/controller-tools/cmd/controller-gen ;;
  setup-envtest)  dir=$here package=sigs.k8s.io/controller-runtime/tools/setup-envtest ;;
  govulncheck)    dir=$here package=golang.org/x/vuln/cmd/govulncheck ;;
  golangci-lint)  dir=$here/lint package=github.com/golangci/golangci-lint/v2/cmd/golangci-lint ;;
  *) echo "tool.sh: no tool is called $1" >&2; exit 1 ;;
esac
# The key is what decides the binary: the module's requirements and the compiler.
key=$(cat "$dir/go.mod" "$dir/go.sum" <(go version) | sha256sum | cut -c1-12)
out=$cache/tools-$key/$1
if [ ! -x "$out" ]; then
  echo "building $1 (once)" >&2
  mkdir -p "$(dirname "$out")"
  (cd "$dir" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$out.$$" "$package") >&2
  mv "$out.$$" "$out"
fi
echo "$out"
