#!/usr/bin/env bash
# Every relative link of every Markdown file leads somewhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0
while IFS= read -r file; do
  while IFS= read -r link; do
    target=${link%%#*}
    [ -z "$target" ] && continue
    [ -e "$(dirname "$file")/$target" ] || { echo "$file: $link leads nowhere" >&2; status=1; }
  done < <(grep -oE '\]\([^)[:space:]]+\)' "$file" | sed -E 's/^\]\(//; s/\)$//' | grep -vE '^(https?:|mailto:|#)' || true)
done < <(git ls-files '*.md')
exit $status
