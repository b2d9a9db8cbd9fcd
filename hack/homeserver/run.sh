#!/usr/bin/env bash
# Writes a homeserver's configuration and becomes that homeserver, in the foreground. up.sh starts it in the background;
# tests start it as their child.
#
#   run.sh [--impl synapse|dendrite] [--dir DIR] [--listen ADDR[,ADDR…]]… [--port N] [--server-name NAME]
#          [--rate-limits generous|tight]
#
# DIR keeps everything the server must remember; DIR/env tells others how to reach it and how to register users.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=synapse.sh
. "$HERE/synapse.sh"
# shellcheck source=dendrite.sh
. "$HERE/dendrite.sh"

read_options "$@"
umask 077

# Held by the server for as long as it lives: two servers on one database would ruin it.
exec 8>"$dir/lock"
flock --nonblock 8 || die "a homeserver is already running on $dir." "down.sh --dir $dir"

check_identity
impl=$("$HERE/install.sh" ${impl:+--impl "$impl"})
printf '%s %s\n' "$impl" "$server_name" >"$dir/identity"

if [ ! -s "$dir/secrets" ]; then
    for name in registration_secret macaroon_secret form_secret; do
        printf '%s=%s\n' "$name" "$(openssl rand -hex 24)"
    done >"$dir/secrets.new"
    mv "$dir/secrets.new" "$dir/secrets"
fi
# shellcheck disable=SC1091
. "$dir/secrets"

cat >"$dir/env.new" <<EOF
HOMESERVER_IMPL=$impl
HOMESERVER_URL=$url
HOMESERVER_NAME=$server_name
HOMESERVER_REGISTRATION_SECRET=$registration_secret
EOF
mv "$dir/env.new" "$dir/env"

mkdir -p "$dir/media"
"${impl}_configure"
"${impl}_exec"
