#!/usr/bin/env bash
# The whole product on this machine: cluster, homeserver, model, Nisse, a device and an agent; then the story, played by a
# person with a Matrix client. Everything is left running; run it again at any time, it goes on from where it stood.
#
#   hack/demo/up.sh [--no-story]        also: make demo
#
#   LLM_BASE_URL, LLM_MODEL, LLM_API_KEY   your own OpenAI-compatible model instead of the scripted one
#   NISSE_HOMESERVER=synapse|dendrite      the homeserver; Synapse where it can be had
#   NISSE_CLUSTER=existing                 the cluster that KUBECONFIG names instead of one on this machine; then also
#                                          NODEIP (an address of this machine that its pods reach) and, unless the cluster is
#                                          kind's, NISSE_IMAGES (where its nodes find the images, such as registry.example.org/nisse)
#
# Nothing listens beyond loopback and the address NODEIP, which sits on a bridge of its own.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$demo_scripts/parts.sh"
. "$demo_scripts/story.sh"

main() {
  local story=yes
  case ${1:-} in
    "") ;;
    --no-story) story= ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
  esac
  [ "$(id -u)" = 0 ] || fail "needs root: it starts a cluster and runs the device as another user"
  command -v go >/dev/null || fail "needs Go, see https://go.dev/dl"
  exclusively
  rm -f "$demo_dir"/fact-ready

  step cluster bring_cluster
  step homeserver bring_homeserver
  step model bring_model
  step images bring_images
  step nisse bring_nisse
  step device bring_device
  step agent bring_agent
  remember ready "$(date +%s)"
  [ -n "$story" ] || return 0

  play_story
  what_next
}

main "$@"
