# Shared by the scripts beside it; sourced, never run.

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=versions.env
. "$HERE/versions.env"

CACHE=${NISSE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nisse}
SYNAPSE_HOME=$CACHE/synapse-$SYNAPSE_VERSION
DENDRITE_HOME=$CACHE/dendrite-$DENDRITE_VERSION
DEFAULT_DIR=${NISSE_RUN:-/var/lib/nisse-dev}/homeserver

say() { printf 'homeserver: %s\n' "$*" >&2; }

# die MESSAGE [NEXT STEP]: what failed, and the one thing to do about it.
die() {
    say "$1"
    [ $# -lt 2 ] || say "→ $2"
    exit 1
}

# start_time PID prints the process's start in clock ticks since boot. A pid alone may have been given to somebody else
# since it was written down; a pid and its start time together name one process.
start_time() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The second field is the program's name in parentheses and may hold blanks: count from behind it.
    set -- ${stat##*) }
    printf '%s\n' "${20}"
}

# running_pid DIR prints the pid of the server that DIR's pid file names, or fails if it is gone.
running_pid() {
    local pid started
    [ -r "$1/homeserver.pid" ] || return 1
    read -r pid started <"$1/homeserver.pid" || return 1
    [ -n "${pid:-}" ] && [ -n "${started:-}" ] || return 1
    [ "$(start_time "$pid")" = "$started" ] || return 1
    printf '%s\n' "$pid"
}

# answers URL: the client API answers there.
answers() { curl --silent --fail --noproxy '*' --max-time 2 --output /dev/null "$1/_matrix/client/versions"; }

# url_host ADDR brackets an IPv6 address, as URLs want it.
url_host() { case $1 in *:*) printf '[%s]\n' "$1" ;; *) printf '%s\n' "$1" ;; esac; }

# json_list A B… prints ["A", "B"].
json_list() {
    local IFS=, quoted=() item
    for item in "$@"; do quoted+=("\"$item\""); done
    printf '[%s]\n' "${quoted[*]}"
}

# read_options "$@" sets impl, dir, listen, port, server_name, rate_limits, url: the options up.sh and run.sh share.
read_options() {
    impl= dir=$DEFAULT_DIR listen=() port=8008 server_name=nisse.local rate_limits=generous
    local address
    while [ $# -gt 0 ]; do
        [ $# -gt 1 ] || die "$1 wants a value, or is no option of this script." "read the first lines of $0"
        case $1 in
        --impl) impl=$2 ;;
        --dir) dir=$2 ;;
        --listen) IFS=, read -r -a address <<<"$2" && listen+=("${address[@]}") ;;
        --port) port=$2 ;;
        --server-name) server_name=$2 ;;
        --rate-limits) rate_limits=$2 ;;
        *) die "$0 does not know the option $1" "read the first lines of $0" ;;
        esac
        shift 2
    done
    [ ${#listen[@]} -gt 0 ] || listen=(127.0.0.1)
    # These end up inside YAML and URLs.
    for address in "${listen[@]}"; do
        [[ $address =~ ^[0-9a-fA-F.:]+$ ]] || die "--listen $address is no IP address." "name addresses of this machine, see: ip -brief address"
    done
    [[ $port =~ ^[0-9]+$ ]] && [ "$port" -ge 1 ] && [ "$port" -le 65535 ] || die "--port $port is no port." "a number from 1 to 65535"
    [[ $server_name =~ ^[a-zA-Z0-9.-]+(:[0-9]+)?$ ]] || die "--server-name $server_name is no server name." "for example nisse.local"
    case $rate_limits in generous | tight) ;; *) die "--rate-limits is generous or tight, not $rate_limits." ;; esac
    case $impl in '' | synapse | dendrite) ;; *) die "there is no homeserver called $impl here." "--impl synapse or --impl dendrite" ;; esac
    [[ $dir != *['"\']* ]] || die "--dir $dir holds a quote or a backslash." "choose a plainer path"
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    url=http://$(url_host "${listen[0]}"):$port
    case ${listen[0]} in 0.0.0.0 | ::) url=http://127.0.0.1:$port ;; esac
}

# check_identity refuses to open DIR's database with another program or under another name than made it, and settles impl
# where DIR has one and nobody named any.
check_identity() {
    [ -s "$dir/identity" ] || return 0
    local kept_impl kept_name
    read -r kept_impl kept_name <"$dir/identity"
    impl=${impl:-$kept_impl}
    [ "$impl" = "$kept_impl" ] || die "$dir holds the state of $kept_impl, not $impl." "down.sh --dir $dir wipe, or another --dir"
    [ "$server_name" = "$kept_name" ] ||
        die "$dir holds the rooms of $kept_name, not $server_name." "down.sh --dir $dir wipe, or another --dir"
}
