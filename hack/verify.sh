#!/usr/bin/env bash
# What a reviewer should not have to look for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0
step() { printf '== %s\n' "$1"; }
bad() { printf 'verify: %s\n' "$1" >&2; status=1; }

step "generated files"
before=$(git status --porcelain; git diff | sha256sum)
hack/generate.sh
[ "$before" = "$(git status --porcelain; git diff | sha256sum)" ] || bad "generated files were not up to date; commit what 'make generate' changed"

step "module files"
for m in $(git ls-files '*go.mod'); do
  (cd "$(dirname "$m")" && GOFLAGS=-mod=mod go mod tidy -diff >/dev/null) || bad "$m: run go mod tidy"
done

step "format"
unformatted=$(git ls-files '*.go' | xargs gofmt -l)
[ -z "$unformatted" ] || bad "gofmt: $unformatted"

step "lint"
"$(hack/tools/tool.sh golangci-lint)" run ./... || bad "golangci-lint"

step "shell scripts"
for f in $(git ls-files '*.sh') .ci/run; do bash -n "$f" || bad "$f does not parse"; done

step "links in documents"
hack/links.sh || bad "dead links"

step "known vulnerabilities"
# Needs the vulnerability database; without that network it says so and the rest still counts.
if curl --silent --fail --connect-timeout 4 --output /dev/null https://vuln.go.dev/index/db.json; then
  "$(hack/tools/tool.sh govulncheck)" -tags goolm ./... || bad "govulncheck"
else
  echo "not looked at: the vulnerability database cannot be reached from here"
fi
exit $status
