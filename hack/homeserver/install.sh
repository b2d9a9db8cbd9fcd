#!/usr/bin/env bash
# Puts a homeserver into the cache and prints its name: synapse or dendrite.
#
#   install.sh [--impl synapse|dendrite]
#
# Synapse is what people run, so it is the first choice. Where it cannot be had (no Python 3.10, no package index) and
# nobody insisted on it, Dendrite is built from its Go module instead. Safe to run at the same time as itself.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

impl=
while [ $# -gt 0 ]; do
    case $1 in
    --impl) impl=${2:?--impl wants synapse or dendrite}; shift 2 ;;
    *) die "install.sh does not know the option $1" "install.sh [--impl synapse|dendrite]" ;;
    esac
done

find_python() {
    local candidate
    for candidate in ${NISSE_PYTHON:-} python3 python3.13 python3.12 python3.11 python3.10; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
    say "Synapse $SYNAPSE_VERSION needs Python 3.10 or later, and none was found."
    return 1
}

install_synapse() {
    local want python
    want=$(sha256sum "$HERE/requirements.txt" | cut -d' ' -f1)
    [ "$(cat "$SYNAPSE_HOME/.complete" 2>/dev/null)" != "$want" ] || return 0
    python=$(find_python) || return 1
    say "installing Synapse $SYNAPSE_VERSION into $SYNAPSE_HOME (once, about a minute)"
    if ! "$python" -m venv --clear "$SYNAPSE_HOME" >"$SYNAPSE_HOME.log" 2>&1; then
        say "$python cannot make a virtual environment; on Debian: apt-get install python3-venv. See $SYNAPSE_HOME.log"
        return 1
    fi
    # Wheels only: building from source would want Rust and a C compiler, and fail after minutes rather than at once.
    if ! "$SYNAPSE_HOME/bin/pip" install --no-input --disable-pip-version-check --only-binary=:all: \
        --requirement "$HERE/requirements.txt" >>"$SYNAPSE_HOME.log" 2>&1; then
        say "pip could not install Synapse; its last words:"
        tail -n 3 "$SYNAPSE_HOME.log" >&2
        say "the whole log is $SYNAPSE_HOME.log; a mirror can be named with PIP_INDEX_URL"
        return 1
    fi
    printf '%s\n' "$want" >"$SYNAPSE_HOME/.complete"
}

install_dendrite() {
    [ ! -x "$DENDRITE_HOME/dendrite" ] || return 0
    if ! command -v go >/dev/null; then
        say "Dendrite is built with Go, and no go is on the PATH."
        return 1
    fi
    say "building Dendrite $DENDRITE_VERSION into $DENDRITE_HOME (once, about two minutes)"
    mkdir -p "$DENDRITE_HOME/build"
    # Outside any module, and without cgo, for which it brings an SQLite of its own.
    if ! (cd / && GOBIN="$DENDRITE_HOME/build" GOFLAGS=-trimpath GOWORK=off CGO_ENABLED=0 \
        go install "github.com/matrix-org/dendrite/cmd/dendrite@$DENDRITE_VERSION") >"$DENDRITE_HOME.log" 2>&1; then
        say "Dendrite did not build; its last words:"
        tail -n 3 "$DENDRITE_HOME.log" >&2
        say "the whole log is $DENDRITE_HOME.log; another module proxy can be named with GOPROXY"
        return 1
    fi
    mv "$DENDRITE_HOME/build/dendrite" "$DENDRITE_HOME/dendrite" # whole or absent, never half
}

mkdir -p "$CACHE"
exec 9>"$CACHE/homeserver.lock"
flock 9

case $impl in
synapse)
    install_synapse || die "Synapse could not be installed." "mend what is said above, or use --impl dendrite"
    ;;
dendrite)
    install_dendrite || die "Dendrite could not be built." "mend what is said above, or use --impl synapse"
    ;;
'')
    if install_synapse; then
        impl=synapse
    else
        say "taking Dendrite instead"
        install_dendrite || die "neither Synapse nor Dendrite could be had." "see the two logs named above"
        impl=dendrite
    fi
    ;;
*) die "there is no homeserver called $impl here." "--impl synapse or --impl dendrite" ;;
esac
printf '%s\n' "$impl"
