# Shared by up.sh and down.sh; sourced, never run. Steps that show their progress and say what failed, and the facts that
# outlive a run.

demo_scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export CGO_ENABLED=0 GOWORK=off
root=$(cd "$demo_scripts/../.." && pwd)
# The caller's own cluster, before env.sh names the one on this machine.
callers_kubeconfig=${KUBECONFIG:-}
. "$root/hack/cluster/env.sh"
. "$root/hack/cluster/lib.sh"

# As cluster/lib.sh says: start, stop, alive and expect keep pid files and logs here.
demo_dir=$NISSE_RUN/demo
pids=$demo_dir/pid
logs=$demo_dir/log
bin=$demo_dir/bin
device_dir=$demo_dir/device

system_namespace=nisse-system
agents_namespace=nisse
server_name=nisse.local
matrix_port=${MATRIX_PORT:-8008}
model_port=${MODEL_PORT:-8009}
device_port=${DEVICE_PORT:-7443}
device_user=nisse
files=/srv/nisse

if [ "${NISSE_CLUSTER:-}" = existing ]; then
  if [ -n "$callers_kubeconfig" ]; then export KUBECONFIG=$callers_kubeconfig; else unset KUBECONFIG; fi
fi

# exclusively : one up or down of the demo at a time. Steps close the descriptor, so that no daemon holds the lock.
exclusively() {
  lock "$demo_dir/lock" 600 "another make demo"
  mkdir -p "$pids" "$logs" "$bin"
  chmod 0755 "$NISSE_RUN" "$demo_dir" "$bin" # the device's user reads its program and manifest below
}

# --- facts --------------------------------------------------------------------------------------------------------------

# remember NAME VALUE, recall NAME : what a later step or a later run needs
remember() { printf '%s\n' "$2" >"$demo_dir/fact-$1"; }
recall() { cat "$demo_dir/fact-$1" 2>/dev/null || true; }

# ours WHAT : this demo started WHAT, so down.sh may end it; or made the state of it, so a wipe may remove it. is_ours asks.
ours() { : >"$demo_dir/ours-$1"; }
is_ours() { [ -e "$demo_dir/ours-$1" ]; }
not_ours() { rm -f "$demo_dir/ours-$1"; }

# --- steps --------------------------------------------------------------------------------------------------------------

# tell TEXT : what a person reads behind the step's tick
tell() { printf '%s\n' "$*" >"$demo_dir/told"; }
# hint TEXT : the one thing to do if the step fails from here on
hint() { printf '%s\n' "$*" >"$demo_dir/hint"; }

# step NAME FUNCTION ARG... : runs it with its output in log/step-NAME.log, shows that it goes on, and ends the script if it fails.
# It runs in a shell of its own, where the first command that fails ends it.
step() {
  local name=$1 log=$logs/step-$1.log begin=$SECONDS pid
  shift
  rm -f "$demo_dir/told" "$demo_dir/hint"
  : >"$log"
  (
    set -euo pipefail
    "$@"
  ) >>"$log" 2>&1 </dev/null 9>&- &
  pid=$!
  watch "$name" "$pid" "$log" "$begin"
  if wait "$pid"; then
    took=$((SECONDS - begin))
    printf '%s %-12s %-76s %4d s\n' "$tick" "$name" "$(cat "$demo_dir/told" 2>/dev/null)" "$took"
    return
  fi
  printf '%s %-12s failed after %d s:\n' "$cross" "$name" $((SECONDS - begin))
  tail -n 15 "$log" | sed 's/^/    /'
  printf '  → %s\n' "$(cat "$demo_dir/hint" 2>/dev/null || echo "read $log")"
  printf '  Then run it again: it goes on from here. The whole log: %s\n' "$log"
  exit 1
}

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then tick=$'\e[32m✓\e[0m' cross=$'\e[31m✗\e[0m'; else tick=✓ cross=✗; fi

# watch NAME PID LOG BEGIN : until the process ends, the last line of its log, or where that says nothing for a while what to
# look at; on a terminal in place, elsewhere now and then
watch() {
  local name=$1 pid=$2 log=$3 begin=$4 line due=$((SECONDS + 15)) width
  width=$(($(tput cols 2>/dev/null || echo 100) - 26))
  while kill -0 "$pid" 2>/dev/null; do
    line=$(tail -n 1 "$log" 2>/dev/null | tr -d '\r\033' | cut -c1-"$width") || true
    [ -n "$line" ] || [ $((SECONDS - begin)) -lt 15 ] || line="→ $(cut -c1-"$width" "$demo_dir/hint" 2>/dev/null)"
    if [ -t 1 ]; then
      printf '\r\e[K⏳ %-12s %4d s  %s' "$name" $((SECONDS - begin)) "$line"
    elif [ $SECONDS -ge $due ]; then
      printf '⏳ %-12s %4d s  %s\n' "$name" $((SECONDS - begin)) "$line"
      due=$((SECONDS + 30))
    fi
    sleep 0.2
  done
  [ ! -t 1 ] || printf '\r\e[K'
}

# needs PROGRAM:PACKAGE... : installs the Debian packages whose programs are missing
needs() {
  local pair missing=()
  for pair; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
  done
  [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
}

install_packages() {
  hint "install these yourself: $*"
  command -v apt-get >/dev/null || { echo "this machine lacks $*, and has no apt-get"; return 1; }
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -qq -y --no-install-recommends "$@"
}

# compile PACKAGE NAME : one of this repository's programs, into the demo's own directory
compile() { (cd "$root" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags goolm -o "$bin/$2" "$1"); }

person() { "$bin/person" -home "$NISSE_RUN/homeserver" "$@"; }

kube() { kubectl --namespace "$agents_namespace" "$@"; }
