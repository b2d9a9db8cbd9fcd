#!/usr/bin/env bash
# Fuzzes every target of the repository for a while each. usage: hack/fuzz.sh TIME [PACKAGE...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:?how long each, such as 30s}
shift
status=0
while IFS=: read -r file _ rest; do
  name=${rest#func }
  name=${name%%(*}
  package=./$(dirname "$file")
  if [ $# -gt 0 ] && [[ " $* " != *" $package "* ]]; then
    continue
  fi
  echo "== $package $name"
  go test "$package" -run '^$' -fuzz "^$name\$" -fuzztime "$time" || status=1
done < <(git grep -n '^func Fuzz' -- '*_test.go')
exit $status
