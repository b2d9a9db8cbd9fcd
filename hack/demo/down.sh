#!/usr/bin/env bash
# Ends what up.sh started, and nothing else.
#   hack/demo/down.sh         programs stop; objects, rooms, keys and the device's audit stay, and up.sh goes on with them
#   hack/demo/down.sh wipe    removes all that too
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

main() {
  local wipe='' stays=''
  case ${1:-} in "") ;; wipe) wipe=yes ;; *) fail "unknown argument $1; the only one is wipe" ;; esac
  [ "$(id -u)" = 0 ] || fail "needs root, as up.sh did"
  [ -d "$demo_dir" ] || { echo "no demo in $demo_dir"; return; }
  exclusively
  stop device model relay
  echo "device and model stopped"
  # Where the cluster goes on, or keeps its state, Nisse is taken out of it.
  if ! is_ours "cluster${wipe:+-state}"; then leave_cluster "$wipe"; fi
  end cluster "$wipe"
  end homeserver "$wipe"
  [ -n "$wipe" ] || return 0
  if is_ours files; then rm -rf "${files:?}"; else stays=$files; fi
  if is_ours user; then userdel "$device_user"; else stays="${stays:+$stays, }user $device_user"; fi
  rm -rf "${demo_dir:?}"
  rmdir "$NISSE_RUN" 2>/dev/null || true
  echo "the demo's state is removed"
  echo "kept for the next time: the programs in $NISSE_CACHE"
  [ -z "$stays" ] || echo "kept because it was there before the demo: $stays"
}

# end WHAT WIPE : stop the cluster or the homeserver if the demo started it, and remove its state if the demo made that
end() {
  if [ -n "$2" ] && is_ours "$1-state"; then
    "$root/hack/$1/down.sh" wipe 9>&-
  elif is_ours "$1"; then
    "$root/hack/$1/down.sh" 9>&-
  fi
  not_ours "$1"
}

# leave_cluster WIPE : somebody else's cluster goes on, without Nisse
leave_cluster() {
  if ! kubectl get --raw /readyz >/dev/null 2>&1; then
    [ -z "$1" ] || echo "the cluster does not run: what Nisse left in it stays"
    return 0
  fi
  command -v helm >/dev/null || PATH=$("$root/hack/cluster/build.sh" helm):$PATH
  if [ -n "$1" ]; then
    kubectl delete namespace "$agents_namespace" --ignore-not-found --timeout=120s
  fi
  if helm --namespace "$system_namespace" status nisse >/dev/null 2>&1; then helm --namespace "$system_namespace" uninstall nisse --wait; fi
  [ -n "$1" ] || return 0
  kubectl get crds -o name | grep '\.nisse\.io$' | xargs -r kubectl delete
  kubectl delete namespace "$system_namespace" --ignore-not-found --timeout=120s
}

main "$@"
