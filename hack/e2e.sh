#!/usr/bin/env bash
# Tests the whole product on a real cluster with a real homeserver: brings up what the demo brings up, runs test/e2e against it in a
# room and with an agent of its own, and takes down what it started. A demo that ran before goes on running, as it was.
#
#   hack/e2e.sh [ARGUMENTS OF go test]     for example: hack/e2e.sh -run Kubectl
#
#   NISSE_E2E_KEEP=1     leaves everything running afterwards
#   NISSE_E2E_IDLE=10m   for how long nothing may be written while nothing happens; 65s
#   NISSE_E2E_LAST=1     also runs, on a demo that ran before, the tests that take it apart (they delete its objects)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/demo/lib.sh"

main() {
  local before='' status=0
  [ "${NISSE_CLUSTER:-}" != existing ] || fail "needs the cluster of hack/cluster: it looks at its processes, and stops them"
  [ -n "$(recall ready)" ] && alive device && before=yes
  # The scripted model: what is tested is Nisse.
  unset LLM_BASE_URL LLM_MODEL LLM_API_KEY
  [ -n "$before" ] || [ -n "${NISSE_E2E_KEEP:-}" ] || trap 'take_down "$@"' EXIT
  "$demo_scripts/up.sh" --no-story
  export NISSE_E2E_ETCD=http://127.0.0.1:$etcd_port
  tests ./test/e2e "$@" || status=$?
  if [ -z "$before" ] || [ -n "${NISSE_E2E_LAST:-}" ]; then
    tests ./test/e2e/last "$@" || status=$?
  fi
  return $status
}

tests() { (cd "$root" && go test -tags goolm -count=1 -timeout 40m -v "$@"); }

take_down() { "$demo_scripts/down.sh" || true; }

main "$@"
