#!/usr/bin/env bash
# Ends what up.sh started, and nothing else.
#   hack/demo/down.sh         programs stop; objects, rooms, keys and the device's audit stay, and up.sh goes on with them
#   hack/demo/down.sh wipe    removes all that too
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

main() {
  local wipe=
  case ${1:-} in "") ;; wipe) wipe=yes ;; *) fail "unknown argument $1; the only one is wipe" ;; esac
  [ "$(id -u)" = 0 ] || fail "needs root, as up.sh did"
  [ -d "$demo_dir" ] || { echo "no demo in $demo_dir"; return; }
  exclusively
  stop device model relay
  echo "device and model stopped"
  if ! is_ours cluster && kubectl get --raw /readyz >/dev/null 2>&1; then leave_cluster "$wipe"; fi
  if is_ours cluster; then
    "$root/hack/cluster/down.sh" ${wipe:+wipe} 9>&-
    not_ours cluster
  fi
  if is_ours homeserver; then
    "$root/hack/homeserver/down.sh" ${wipe:+wipe} 9>&-
    not_ours homeserver
  fi
  [ -n "$wipe" ] || return 0
  if is_ours files; then rm -rf "${files:?}"; fi
  if is_ours user; then userdel nisse; fi
  rm -rf "${demo_dir:?}"
  rmdir "$NISSE_RUN" 2>/dev/null || true
  echo "state removed"
}

# leave_cluster WIPE : somebody else's cluster goes on, without Nisse
leave_cluster() {
  command -v helm >/dev/null || PATH=$("$root/hack/cluster/build.sh" helm):$PATH
  if [ -n "$1" ]; then
    kubectl delete namespace "$agents_namespace" --ignore-not-found --timeout=120s
  fi
  helm --namespace "$system_namespace" status nisse >/dev/null 2>&1 && helm --namespace "$system_namespace" uninstall nisse --wait
  [ -n "$1" ] || return 0
  kubectl get crds -o name | grep '\.nisse\.io$' | xargs -r kubectl delete
  kubectl delete namespace "$system_namespace" --ignore-not-found --timeout=120s
}

main "$@"
