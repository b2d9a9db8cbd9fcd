#!/usr/bin/env bash
# Brings up a real Matrix homeserver on this machine and leaves it running.
#
#   up.sh [--impl synapse|dendrite] [--dir DIR] [--listen ADDR[,ADDR…]]… [--port N] [--server-name NAME]
#         [--rate-limits generous|tight]
#
# Defaults: Synapse, ${NISSE_RUN:-/var/lib/nisse-dev}/homeserver, 127.0.0.1, 8008, nisse.local, generous. Users are made
# with the registration secret in DIR/env (see hack/homeserver/person). Running it again changes nothing while the
# options are the same, and restarts the server where they are not.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

read_options "$@"
check_identity
# Installing takes a minute when the cache is cold: do it before there is a time limit on readiness.
impl=$("$HERE/install.sh" ${impl:+--impl "$impl"})

options="$impl ${listen[*]} $port $server_name $rate_limits $(cat "$HERE"/*.sh "$HERE/versions.env" | sha256sum)"
if pid=$(running_pid "$dir"); then
    if [ "$(cat "$dir/options" 2>/dev/null)" = "$options" ] && answers "$url"; then
        say "$impl is up at $url (pid $pid)"
        exit 0
    fi
    say "restarting with other options"
    "$HERE/down.sh" --dir "$dir"
fi
if answers "$url"; then
    die "another homeserver already answers at $url." "stop it, or choose another --port"
fi

say "starting $impl for $server_name at $url; state and logs in $dir"
out=$dir/homeserver.out
[ ! -e "$out" ] || mv "$out" "$out.1"
setsid "$HERE/run.sh" --impl "$impl" --dir "$dir" --port "$port" --server-name "$server_name" \
    --rate-limits "$rate_limits" --listen "$(IFS=,; echo "${listen[*]}")" >"$out" 2>&1 </dev/null &
pid=$!
printf '%s %s\n' "$pid" "$(start_time "$pid")" >"$dir/homeserver.pid"

deadline=$((SECONDS + 90))
until answers "$url"; do
    if ! running_pid "$dir" >/dev/null; then
        rm -f "$dir/homeserver.pid"
        tail -n 5 "$out" >&2
        next="read $out and $dir/homeserver.log"
        ! grep -qs 'ddress already in use' "$out" "$dir/homeserver.log" || next="port $port is taken: stop what holds it, or choose another --port"
        ! grep -qsi 'cannot assign requested address' "$out" "$dir/homeserver.log" || next="one of these is no address of this machine (see: ip -brief address): ${listen[*]}"
        die "$impl stopped while starting." "$next"
    fi
    [ $SECONDS -lt $deadline ] || die "$impl runs but does not answer at $url after 90 s." "read $out and $dir/homeserver.log"
    sleep 0.2
done
for address in "${listen[@]}"; do
    answers "http://$(url_host "$address"):$port" ||
        die "$impl does not answer on $address." "is it an address of this machine? see: ip -brief address"
done
printf '%s\n' "$options" >"$dir/options"
say "$impl is up at $url (pid $pid)"
