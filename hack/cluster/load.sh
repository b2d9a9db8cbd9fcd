#!/usr/bin/env bash
# Gives image files to the cluster's node:
#   hack/cluster/load.sh dist/images/*.tar
# A file that has not changed since it was loaded is passed over.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
. "$cluster_scripts/lib.sh"

[ $# -gt 0 ] || fail "name the image files, as hack/images writes them"
alive containerd || fail "no cluster runs here; start it with hack/cluster/up.sh"
mkdir -p "$cluster_dir/loaded"
present=$(containers images list -q)
for file; do
  name=$(tar -xOf "$file" manifest.json | sed -n 's/.*"RepoTags":\["\([^"]*\)".*/\1/p') || fail "cannot read $file"
  [ -n "$name" ] || fail "$file names no image"
  mark=$cluster_dir/loaded/${name//\//_} # what this name was loaded from
  sum=$(sha256sum "$file" | cut -d' ' -f1)
  if [ "$(cat "$mark" 2>/dev/null)" = "$sum" ] && grep -qxF "$name" <<<"$present"; then
    say "unchanged  $name"
    continue
  fi
  containers images import "$file" >/dev/null
  echo "$sum" >"$mark"
  say "loaded     $name"
done
