#!/usr/bin/env bash
# Stops the homeserver that up.sh started; with "wipe" also forgets its rooms, users and logs.
#
#   down.sh [--dir DIR] [wipe]
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

dir=$DEFAULT_DIR wipe=
while [ $# -gt 0 ]; do
    case $1 in
    --dir) dir=${2:?--dir wants a directory}; shift 2 ;;
    wipe) wipe=yes; shift ;;
    *) die "down.sh does not know $1" "down.sh [--dir DIR] [wipe]" ;;
    esac
done

if pid=$(running_pid "$dir"); then
    kill "$pid"
    deadline=$((SECONDS + 15))
    while running_pid "$dir" >/dev/null; do
        if [ $SECONDS -ge $deadline ]; then
            say "pid $pid did not stop in 15 s; killing it"
            kill -9 "$pid"
            deadline=$((SECONDS + 15))
        fi
        sleep 0.1
    done
    say "stopped (pid $pid)"
else
    say "nothing runs on $dir"
fi
rm -f "$dir/homeserver.pid" "$dir/options"

[ -n "$wipe" ] && [ -d "$dir" ] || exit 0
# Only what run.sh marked as its own is removed: a mistyped --dir must not cost anybody their files.
[ -s "$dir/identity" ] || die "$dir holds no homeserver; nothing was removed." "check --dir"
rm -rf "${dir:?}"
say "wiped $dir"
