# The story, as a person with a Matrix client lives it. Sourced by up.sh.

request="Write the disk usage of the machine into $files/report.txt"

# play_story : ends early where another work item has the agent, since the story would only queue behind it
play_story() {
  local other
  other=$(other_item)
  if [ -n "$other" ]; then
    printf '%s %-12s not played: %s\n' "$tick" story "${other//$'\n'/$'\n'               }"
    return
  fi
  step request write_request
  step plan wait_for_gate
  step approval approve
  step result wait_for_result
  show_story
}

# other_item : what to do about the work that ops is on, if that is not the story; empty where there is none
other_item() {
  local state title
  IFS=$'\t' read -r state title < <(kube get workitems --sort-by=.metadata.creationTimestamp -o \
    'jsonpath={range .items[?(@.spec.agent=="ops")]}{.status.state}{"\t"}{.spec.source.matrix.eventID}{"\t"}{.spec.title}{"\n"}{end}' |
    awk -F '\t' -v story="$(recall asked)" '$1 != "Closed" {if ($2 == "" || $2 != story) print ($1 == "" ? "Open" : $1) "\t" $3; exit}' |
    tr -d '\r\033') || return 0
  case $state in
    AwaitingApproval) printf '"%s" waits for you,\nand ops works on one thing at a time. In its thread, type "approve rev-1" (or the revision that it shows), or "reject" and why' "$title" ;;
    AwaitingInput) printf '"%s" waits for you,\nand ops works on one thing at a time. In its thread, answer what it asks; where it has stopped, type "continue" or "abandon"' "$title" ;;
    *) printf '"%s" is not finished,\nand ops works on one thing at a time. To end it, type "stop" in its thread, and then "abandon"' "$title" ;;
  esac
  printf '.\nThen run make demo again.'
}

# write_request : a story that was begun and not ended is gone on with
write_request() {
  local asked
  hint "is the homeserver up? hack/homeserver/up.sh"
  asked=$(recall asked)
  if [ -n "$asked" ] && [ -z "$(recall "told-in-$asked")" ] && [ -n "$(item_of "$asked")" ]; then
    tell "of the last time, not finished yet"
    return
  fi
  rm -f "$demo_dir"/fact-told-in-* "$demo_dir"/fact-decided-*
  asked=$(person -as "$person_account" -password "$(recall password)" say -room "$(recall room)" "$request")
  remember asked "$asked"
  tell "\"$request\""
}

# item_of EVENT : the WorkItem that the message became
item_of() {
  kube get workitems -o 'jsonpath={range .items[*]}{.spec.source.matrix.eventID}{" "}{.metadata.name}{"\n"}{end}' | awk -v e="$1" '$1 == e {print $2}'
}

# heard ARG... : wait for a message in the story's thread
heard() {
  person -as "$person_account" -password "$(recall password)" wait -room "$(recall room)" -thread "$(recall asked)" "$@"
}

# An own model may take its time, and is not bound to make exactly this plan.
patience=3m
[ -z "${LLM_BASE_URL:-}" ] || patience=15m

wait_for_gate() {
  hint "look at: kubectl -n $agents_namespace get nisse; kubectl -n $agents_namespace logs agent-ops-0; the room"
  heard -from "@nisse-gates:$server_name" -match 'rev-[0-9]+' -timeout "$patience"
  tell "shown by @nisse-gates:$server_name, rendered from the steps"
}

approve() {
  local asked revision
  asked=$(recall asked)
  hint "look at: kubectl -n $agents_namespace get gates,approvals"
  if [ -z "$(recall "decided-$asked")" ]; then
    revision=$(kube get workitem "$(item_of "$asked")" -o 'jsonpath={.status.plan.revision}')
    person -as "$person_account" -password "$(recall password)" say -room "$(recall room)" -thread "$asked" "approve rev-$revision" >/dev/null
    remember "decided-$asked" "rev-$revision"
  fi
  kube wait "gate/$(item_of "$asked")-$(recall "decided-$asked")" --for='jsonpath={.status.outcome}=Approved' --timeout=60s
  tell "you wrote \"approve $(recall "decided-$asked")\""
}

wait_for_result() {
  local asked item
  asked=$(recall asked)
  item=$(item_of "$asked")
  hint "look at: kubectl -n $agents_namespace describe workitem $item; kubectl -n $agents_namespace get devicejobs"
  kube wait "workitem/$item" --for='jsonpath={.status.state}=Closed' --timeout="$patience"
  [ -s "$files/report.txt" ] || { echo "$item is closed, and there is no $files/report.txt"; return 1; }
  as_device audit verify --config "$device_dir/config.yaml"
  remember "told-in-$asked" yes
  tell "the work item is closed, the file is written, the audit chain is whole"
}

show_story() {
  printf '\nIn #ops:%s:\n\n' "$server_name"
  person -as "$person_account" -password "$(recall password)" show -thread "$(recall asked)" "$(recall room)" | sed 's/^/    /'
  run kubectl -n "$agents_namespace" get nisse
  run cat "$files/report.txt"
  printf '\n$ nisse-device audit verify --config %s\n' "$device_dir/config.yaml"
  as_device audit verify --config "$device_dir/config.yaml" | sed 's/^/    /'
}

run() {
  printf '\n$ %s\n' "$*"
  "$@" | sed 's/^/    /'
}

what_next() {
  cat <<EOF

All of it goes on running.
  Talk to it       Element Desktop (a web Element only if it is itself served by http): homeserver $(recall matrix-url),
                   @$person_account:$server_name / $(recall password), room #ops:$server_name. Try: "what is in $files?"
                   From another computer: ssh -L $matrix_port:127.0.0.1:$matrix_port THIS-MACHINE, then http://127.0.0.1:$matrix_port
  Without Element  you="$bin/person -home $NISSE_RUN/homeserver -as $person_account"
                   \$you say -room '#ops:$server_name' "what is in $files?"
                   \$you show '#ops:$server_name' | tail     # once more until the answer is there
  Look at it       . hack/cluster/env.sh && kubectl -n $agents_namespace get nisse
  Decide by it     as lucas, the person whom ops knows as @$person_account:$server_name: kubectl --as lucas, see README.md
  Stop it          make demo-down   (WIPE=1 removes its state too)
EOF
}
