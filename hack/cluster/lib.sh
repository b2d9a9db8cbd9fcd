# Shared by up.sh and down.sh: running programs in the background, each known by a pid file that cannot name a stranger.

pids=$cluster_dir/pid
logs=$cluster_dir/log
began=${EPOCHREALTIME/[.,]/}

say() { # the time since the script began, and what has just been done
  local now=${EPOCHREALTIME/[.,]/}
  printf '%5d.%01d s  %s\n' $(((now - began) / 1000000)) $(((now - began) / 100000 % 10)) "$*"
}

fail() {
  printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2
  exit 1
}

# started PID : when a process began, in clock ticks since boot. A pid is reused, a pid with its start time is not. One that has
# ended counts as gone even while its parent has not asked for its exit code.
started() {
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  set -- ${stat##*) }
  case $1 in Z | X) return 1 ;; esac
  echo "${20}"
}

# alive NAME : is the process that start() began still there; sets $pid
alive() {
  local since now
  { read -r pid since _ <"$pids/$1"; } 2>/dev/null || return 1
  now=$(started "$pid") && [ "$now" = "$since" ]
}

# start NAME COMMAND... : run in the background, unless it runs already with these very arguments
start() {
  local name=$1 key since
  shift
  key=$(printf '%s\n' "$@" | sha256sum | cut -c1-16)
  if alive "$name"; then
    read -r _ _ since <"$pids/$name"
    [ "$since" != "$key" ] || return 0
    stop "$name"
  fi
  [ ! -f "$logs/$name.log" ] || mv -f "$logs/$name.log" "$logs/$name.log.1"
  # The lock of the caller (9) must not live on in a daemon.
  setsid "$@" >"$logs/$name.log" 2>&1 </dev/null 9>&- &
  printf '%s %s %s\n' $! "$(started $! || echo 0)" "$key" >"$pids/$name"
}

# stop NAME... : ask all to end, wait, then insist. Processes that are not ours are left alone.
stop() {
  local name pid
  for name; do
    if alive "$name"; then kill -TERM "$pid" 2>/dev/null || true; fi
  done
  for name; do
    if alive "$name" && ! until_true 150 gone "$name" && alive "$name"; then
      kill -KILL "$pid" 2>/dev/null || true
      until_true 50 gone "$name" || fail "cannot end $name (pid $pid); see $logs/$name.log"
    fi
    rm -f "$pids/$name"
  done
}

gone() { ! alive "$1"; }

# until_true TENTHS COMMAND... : try every tenth of a second
until_true() {
  local tries=$1
  shift
  until "$@" >/dev/null 2>&1; do
    ((tries-- > 0)) || return 1
    sleep 0.1
  done
}

# expect NAME SECONDS COMMAND... : wait for a sign of life of a program, and show its last words if it dies instead
expect() {
  local name=$1 tries=$(($2 * 10))
  shift 2
  until "$@" >/dev/null 2>&1; do
    alive "$name" || { tail -n 15 "$logs/$name.log" >&2; fail "$name ended; its whole log is $logs/$name.log"; }
    ((tries-- > 0)) || { tail -n 15 "$logs/$name.log" >&2; fail "$name is not ready in time ($*); see $logs/$name.log"; }
    sleep 0.1
  done
}

containers() { ctr --address "$CONTAINERD_SOCKET" --namespace k8s.io "$@"; }

# exclusively : one up or down at a time
exclusively() {
  mkdir -p "$NISSE_RUN"
  lock "$NISSE_RUN/cluster.lock" 300 "another up or down"
}

# lock FILE SECONDS WHO : on descriptor 9, until this script ends. A wipe removes the file: whoever waited for that one then
# has a lock that nobody else can see, and takes the new one instead.
lock() {
  local deadline=$((SECONDS + $2))
  until [ "$1" -ef /proc/self/fd/9 ]; do
    mkdir -p "$(dirname "$1")"
    exec 9>"$1"
    flock -w $((deadline > SECONDS ? deadline - SECONDS : 0)) 9 || fail "$3 holds $1"
  done
}
