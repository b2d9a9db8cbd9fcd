#!/usr/bin/env bash
# Measures nisse-device as it is shipped, on this machine: one call of exec /bin/true over loopback, verified and audited with fsync, beside
# ssh with a warm ControlMaster in the same run; calls a second; memory at rest; sizes of the static binaries. Prints the tables of
# docs/performance.md, section Devices. No test waits for these figures.
#
#   CALLS=500          calls of each kind, in turns
#   SECONDS_EACH=10    for how long calls a second are counted
#   REST_SECONDS=180   of rest before memory is read; Go gives memory back within some minutes
#   BENCH_DIR=/var/tmp where the device's state is: on a disk, not in memory
#
# It needs sshd. Where that is missing it is installed with apt, and not started.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CALLS=${CALLS:-500} SECONDS_EACH=${SECONDS_EACH:-10} REST_SECONDS=${REST_SECONDS:-180} BENCH_DIR=${BENCH_DIR:-/var/tmp} CGO_ENABLED=0
dir=$(mktemp -d "$BENCH_DIR/nisse-bench-XXXXXX")
export BENCH_DIR=$dir
sshd_pid=
policy=
ssh=
finish() {
  [ -z "$ssh" ] || $ssh -O exit >/dev/null 2>&1 || true
  [ -z "$sshd_pid" ] || kill "$sshd_pid" 2>/dev/null || true
  [ -z "$policy" ] || rm -f "$policy"
  rm -rf "$dir"
}
trap finish EXIT

sshd=$(PATH=$PATH:/usr/sbin command -v sshd || true)
if [ -z "$sshd" ] || ! command -v ssh >/dev/null; then
  # Nothing that listens is started by being installed, now or when the machine starts again.
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    policy=/usr/sbin/policy-rc.d
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 0755 "$policy"
  fi
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openssh-server openssh-client; } >"$dir/apt.log" 2>&1 ||
    { tail -n 5 "$dir/apt.log" >&2; echo "bench-device: install openssh-server first" >&2; exit 1; }
  systemctl disable ssh.service ssh.socket >/dev/null 2>&1 || true
  sshd=/usr/sbin/sshd
fi
ssh-keygen -q -t ed25519 -N '' -f "$dir/host"
ssh-keygen -q -t ed25519 -N '' -f "$dir/user"
[ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
# SHLVL keeps bash from reading the account's .bashrc, as it does under sshd: what somebody has in there is not ssh's time.
cat >"$dir/sshd_config" <<CONFIG
SetEnv SHLVL=2
ListenAddress 127.0.0.1:$port
HostKey $dir/host
AuthorizedKeysFile $dir/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
CONFIG
"$sshd" -D -e -f "$dir/sshd_config" 2>"$dir/sshd.log" &
sshd_pid=$!
ssh="ssh -F none -p $port -i $dir/user -o ControlPath=$dir/master -o UserKnownHostsFile=$dir/known -o StrictHostKeyChecking=accept-new -o LogLevel=ERROR $(id -un)@127.0.0.1"
for _ in $(seq 50); do
  $ssh -o ControlMaster=yes -o ControlPersist=3600 -o ConnectTimeout=2 -fN 2>"$dir/ssh.log" && break
  sleep 0.1
done
$ssh -O check >/dev/null 2>&1 || { cat "$dir/ssh.log" "$dir/sshd.log" >&2; echo "bench-device: ssh does not get in" >&2; exit 1; }

version=$(git describe --always --dirty 2>/dev/null || echo unknown)
for arch in amd64 arm64; do
  GOARCH=$arch GOFLAGS=-tags=goolm go build -trimpath -ldflags "-s -w" -o "$dir/nisse-device-$arch" ./cmd/nisse-device
done
export BENCH_DEVICE="$dir/nisse-device-$(GOFLAGS='' go env GOHOSTARCH)" BENCH_SSH="$ssh"
loads() { cut -d' ' -f1-3 /proc/loadavg; }
printf '%s, %s CPUs (%s), Linux %s, %s, %s, commit %s, load %s' "$(date -u +%F)" "$(nproc)" "$(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)" \
  "$(uname -r | cut -d- -f1)" "$(go env GOVERSION)" "$(ssh -V 2>&1 | cut -d, -f1)" "$version" "$(loads)"
go test -c -tags 'goolm bench' -o "$dir/bench" ./test/bench/device
(cd test/bench/device && "$dir/bench" -test.run '^TestDevice$' -test.timeout 60m) >"$dir/out" || { cat "$dir/out" >&2; exit 1; }
printf ' → %s\n\n' "$(loads)"
grep -Ev '^(PASS|ok  )' "$dir/out"
printf '\n| static binary | MB |\n|---|---|\n'
for arch in amd64 arm64; do
  printf '| linux/%s | %s |\n' "$arch" "$(stat -c %s "$dir/nisse-device-$arch" | awk '{printf "%.1f", $1/1e6}')"
done
