# What the demo consists of, one function a part; each may run again at any time and changes only what is missing or old.
# Sourced by up.sh. The accounts at the homeserver:
person_account=you
agent_accounts=(nisse-ops nisse-gates nisse-e2e nisse-e2e-2 nisse-e2e-3) # the last three for the end-to-end tests

bring_cluster() {
  local version
  needs curl:curl openssl:openssl setpriv:util-linux useradd:passwd flock:util-linux
  hint "is the kernel a full one (not a container's)? docs/development/cluster.md tells what each message means"
  if [ "${NISSE_CLUSTER:-}" = existing ]; then
    hint "is KUBECONFIG right, and is NODEIP an address of this machine?"
    version=$(kubectl get --raw /version | sed -n 's/.*"gitVersion": "v\([^"]*\)".*/\1/p')
    ip -brief address | grep -qF " $NODEIP/" || { echo "NODEIP=$NODEIP is no address of this machine"; return 1; }
    tell "$(kubectl config current-context), Kubernetes $version"
    return
  fi
  [ -d "$cluster_dir/etcd" ] || ours cluster-state
  kubectl get --raw /readyz >/dev/null 2>&1 || ours cluster
  "$root/hack/cluster/up.sh"
  version=$(kubectl get --raw /version | sed -n 's/.*"gitVersion": "v\([^"]*\)".*/\1/p')
  tell "one node, Kubernetes $version, at $NODEIP (programs in $NISSE_CACHE)"
}

bring_homeserver() {
  local listen=127.0.0.1,$NODEIP implementation account
  # With it Synapse can be installed; without, a homeserver in Go is taken.
  python3 -c 'import ensurepip' 2>/dev/null || install_packages python3 python3-venv || echo "no Python with venv"
  hint "see hack/homeserver/README.md"
  implementation=${NISSE_HOMESERVER:-$(cut -d' ' -f1 "$NISSE_RUN/homeserver/identity" 2>/dev/null || true)} # the one whose rooms are there
  implementation=$("$root/hack/homeserver/install.sh" ${implementation:+--impl "$implementation"})
  # Dendrite listens on one address or on all of them.
  [ "$implementation" != dendrite ] || listen=$NODEIP
  [ -s "$NISSE_RUN/homeserver/identity" ] || ours homeserver-state
  curl --silent --fail --max-time 2 --output /dev/null "http://$NODEIP:$matrix_port/_matrix/client/versions" || ours homeserver
  "$root/hack/homeserver/up.sh" --impl "$implementation" --listen "$listen" --port "$matrix_port" --server-name "$server_name"
  remember matrix-url "http://${listen%%,*}:$matrix_port"

  compile ./hack/homeserver/person person
  [ -s "$demo_dir/fact-password" ] || remember password "$(openssl rand -hex 8)"
  chmod 0600 "$demo_dir/fact-password"
  person -as "$person_account" -password "$(recall password)" register -admin
  mkdir -p "$demo_dir/accounts"
  chmod 0700 "$demo_dir/accounts"
  for account in "${agent_accounts[@]}"; do
    [ -s "$demo_dir/accounts/$account.json" ] ||
      printf '{"userID": "@%s:%s", "password": "%s"}\n' "$account" "$server_name" "$(openssl rand -hex 16)" >"$demo_dir/accounts/$account.json"
    person -as "$account" -password "$(sed 's/.*"password": "\([^"]*\)".*/\1/' "$demo_dir/accounts/$account.json")" register
  done
  remember room "$(person -as "$person_account" -password "$(recall password)" create-room -alias ops -name ops "@nisse-ops:$server_name" "@nisse-gates:$server_name")"
  tell "matrix on $(recall matrix-url)   you are @$person_account:$server_name / $(recall password)"
}

# bring_model : pods see the same address whichever it is
bring_model() {
  hint "port $model_port on $NODEIP may be taken; choose another with MODEL_PORT"
  if [ -n "${LLM_BASE_URL:-}" ]; then
    [ -n "${LLM_MODEL:-}" ] || { hint "set LLM_MODEL too"; echo "LLM_BASE_URL is set and LLM_MODEL is not"; return 1; }
    stop model
    compile ./hack/demo/relay relay
    restart_if_new relay "$bin/relay"
    start relay "${unprivileged[@]}" "$bin/relay" -listen "$NODEIP:$model_port" -to "$LLM_BASE_URL"
    expect relay 10 listens relay
    hint "is LLM_BASE_URL the base of an OpenAI-compatible API (with /v1 if it has one), and are LLM_MODEL and LLM_API_KEY right?"
    # One question shows that address, model and key are right, before anybody waits for a plan.
    curl --silent --show-error --fail-with-body --max-time 180 -H 'Content-Type: application/json' -H "Authorization: Bearer ${LLM_API_KEY:-none}" \
      --data "{\"model\": \"$LLM_MODEL\", \"messages\": [{\"role\": \"user\", \"content\": \"Answer with the word ok.\"}]}" \
      "http://$NODEIP:$model_port/chat/completions"
    remember model-url "http://$NODEIP:$model_port"
    remember model-name "$LLM_MODEL"
    remember model-key "${LLM_API_KEY:-none}"
    tell "$LLM_MODEL at $LLM_BASE_URL, through $NODEIP:$model_port"
  else
    stop relay
    compile ./test/scriptedmodel/cmd scriptedmodel
    [ "$(recall model-name)" = scripted ] && [ -s "$demo_dir/fact-model-key" ] || remember model-key "$(openssl rand -hex 16)"
    restart_if_new model "$bin/scriptedmodel" "$demo_dir/fact-model-key"
    SCRIPTEDMODEL_API_KEY=$(recall model-key)
    export SCRIPTEDMODEL_API_KEY
    start model "${unprivileged[@]}" "$bin/scriptedmodel" -listen "$NODEIP:$model_port"
    expect model 10 listens model
    remember model-url "http://$NODEIP:$model_port/v1"
    remember model-name scripted
    tell "scripted (set LLM_BASE_URL, LLM_MODEL, LLM_API_KEY for your own)"
  fi
  chmod 0600 "$demo_dir/fact-model-key"
}

unprivileged=(setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs)

# restart_if_new NAME FILE... : stop a program whose files differ from those it was started with
restart_if_new() {
  local name=$1 sum
  shift
  sum=$(cat "$@" | sha256sum)
  if [ "$(recall "files-of-$name")" != "$sum" ]; then
    stop "$name"
    remember "files-of-$name" "$sum"
  fi
}

# listens NAME : the program has said its address
listens() { grep -q http:// "$logs/$1.log"; }

# bring_images : tags name the content, so that a changed image changes the pods
bring_images() {
  local out=$demo_dir/images key
  if [ "${NISSE_CLUSTER:-}" = existing ] && [ -n "${NISSE_IMAGES:-}" ]; then
    remember image "$NISSE_IMAGES/nisse:${NISSE_TAG:-dev}"
    remember agent-image "$NISSE_IMAGES/nisse-agent:${NISSE_TAG:-dev}"
    tell "$(recall image), $(recall agent-image)"
    return
  fi
  hint "compiling takes a minute or two; if it fails: git status, git log"
  # Linking and packing take their time even when nothing has changed.
  key=$(sources)
  if [ -z "$key" ] || [ "$(recall images-of)" != "$key" ] || ! ls "$out"/*.tar >/dev/null 2>&1; then
    (cd "$root" && go run ./hack/images -out "$out" -tags goolm -tag digest) | tee "$demo_dir/images.txt"
    remember images-of "$key"
  fi
  remember image "$(awk '$2 ~ /\/nisse:/ {print $2}' "$demo_dir/images.txt")"
  remember agent-image "$(awk '$2 ~ /\/nisse-agent:/ {print $2}' "$demo_dir/images.txt")"
  if [ "${NISSE_CLUSTER:-}" = existing ]; then
    hint "give the cluster's nodes the images in $out, or set NISSE_IMAGES to where they find them"
    kind load image-archive --name "$(kubectl config current-context | sed 's/^kind-//')" "$out"/*.tar
  else
    "$root/hack/cluster/load.sh" "$out"/*.tar
  fi
  tell "$(awk '{sub(".*/", "", $2); printf "%s%s %s MB", (NR > 1 ? ", " : ""), $2, $4}' "$demo_dir/images.txt")"
}

# sources : changes whenever what the images are built from may have; empty where that cannot be told
sources() {
  git -C "$root" rev-parse HEAD >/dev/null 2>&1 || return 0
  (
    cd "$root"
    git rev-parse HEAD
    git diff HEAD
    git ls-files --others --exclude-standard -z | xargs -0 -r sha256sum
    go version
  ) | sha256sum
}

bring_nisse() {
  local account entries=()
  hint "look at: kubectl -n $system_namespace get pods,events"
  ensure_helm
  kubectl create namespace "$system_namespace" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  for account in "${agent_accounts[@]}"; do entries+=("--from-file=$demo_dir/accounts/$account.json"); done
  kubectl --namespace "$system_namespace" create secret generic nisse-matrix "${entries[@]}" --dry-run=client -o yaml |
    kubectl apply --server-side --force-conflicts -f - >/dev/null
  cat >"$demo_dir/values.yaml" <<EOF
image: {repository: "$(repository image)", tag: "$(tag image)"}
agentImage: {repository: "$(repository agent-image)", tag: "$(tag agent-image)"}
matrix: {homeserverURL: "http://$NODEIP:$matrix_port", approvalsUser: "@nisse-gates:$server_name"}
agents: {namespace: $agents_namespace}
gateway: {podAnnotations: {checksum/accounts: "$(cat "$demo_dir"/accounts/*.json | sha256sum | cut -c1-16)"}}
EOF
  if ! helm upgrade --install nisse "$root/charts/nisse" --namespace "$system_namespace" --values "$demo_dir/values.yaml" --wait --timeout 4m; then
    # What a person would ask next.
    kubectl --namespace "$system_namespace" get pods
    kubectl --namespace "$system_namespace" get events --sort-by=.lastTimestamp | tail -n 5
    for account in manager gateway broker; do
      kubectl --namespace "$system_namespace" logs --tail=3 --prefix -l "app.kubernetes.io/component=$account" || true
    done
    return 1
  fi
  tell "charts/nisse $(sed -n 's/^version: //p' "$root/charts/nisse/Chart.yaml") in $system_namespace, agents in $agents_namespace"
}

ensure_helm() {
  command -v helm >/dev/null || PATH=$("$root/hack/cluster/build.sh" helm):$PATH
}

repository() { recall "$1" | sed 's/:[^:/]*$//'; }
tag() { recall "$1" | sed 's/.*://'; }

# bring_device : nisse-device on this machine, as a user who may write to one directory
bring_device() {
  hint "port $device_port on $NODEIP may be taken; choose another with DEVICE_PORT"
  if ! id "$device_user" >/dev/null 2>&1; then
    ours user
    useradd --system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$device_user"
  fi
  if [ ! -d "$files" ]; then
    ours files
    mkdir -p "$files"
    chown "$device_user:" "$files"
  fi
  compile ./cmd/nisse-device nisse-device
  mkdir -p "$device_dir"
  install -d -m 0700 -o "$device_user" -g "$(id -gn "$device_user")" "$device_dir/state"
  [ -s "$device_dir/state/device.key" ] || as_device init --dir "$device_dir/state"

  # The root key stays here: the cluster never sees it, only what it signed.
  compile ./cmd/kubectl-nisse kubectl-nisse
  [ -s "$demo_dir/root.key" ] || remember root-key "$("$bin/kubectl-nisse" keygen --out "$demo_dir/root.key" | sed -n 's/^rootKey: //p')"
  sed -e "s|^listen: .*|listen: [\"$NODEIP:$device_port\"]|; s|^stateDir: .*|stateDir: $device_dir/state|" \
    -e "s|^device: .*|device: web1|; s|^rootKey: .*|rootKey: $(recall root-key)|; s|^key: .*|key: $device_dir/state/device.key|" \
    "$root/config/device/config.yaml" >"$device_dir/config.yaml"
  chmod 0644 "$device_dir/config.yaml"

  restart_if_new device "$bin/nisse-device" "$device_dir/config.yaml"
  start device "${device_identity[@]}" "$bin/nisse-device" run --config "$device_dir/config.yaml"
  expect device 10 device_listens
  as_device id --config "$device_dir/config.yaml" | tee "$device_dir/id.txt"
  remember device-key "$(id_field publicKey)"
  [ -n "$(recall device-key)" ] && [ -n "$(recall root-key)" ]
  sign_manifest
  tell "this machine, as user $device_user, allowed: $files (root key: $demo_dir/root.key)"
}

# sign_manifest : what the machine allows, by the keys of this very installation; signed again only when it says something else
sign_manifest() {
  local request approval wanted=$device_dir/unsigned.yaml signed=$device_dir/manifest.yaml
  request=$(kubectl --namespace "$system_namespace" get configmap nisse-public-keys -o 'jsonpath={.data.request}')
  approval=$(kubectl --namespace "$system_namespace" get configmap nisse-public-keys -o 'jsonpath={.data.approval}')
  sed -e "s|^\( *\)request: .*|\1request: [\"$request\"]|; s|^\( *\)approval: .*|\1approval: [\"$approval\"]|" \
    -e "s|namespace: nisse}|namespace: $agents_namespace}|" "$root/config/device/manifest.yaml" >"$wanted"
  [ ! -s "$signed" ] || [ "$(recall signed-of)" != "$(sha256sum <"$wanted")" ] || return 0
  sed -e "s|^  expiresAt: .*|  expiresAt: \"$(date --utc --date '+365 days' +%Y-%m-%dT00:00:00Z)\"|" "$wanted" |
    "$bin/kubectl-nisse" manifest sign -f - --key "$demo_dir/root.key" >"$signed.new"
  mv "$signed.new" "$signed"
  remember signed-of "$(sha256sum <"$wanted")"
}

device_identity=(setpriv --reuid="$device_user" --regid="$device_user" --init-groups --no-new-privs)
as_device() { "${device_identity[@]}" "$bin/nisse-device" "$@"; }
id_field() { sed -n "s/^ *$1: *\"\{0,1\}\([^\" ]*\)\"\{0,1\} *\$/\1/p" "$device_dir/id.txt"; }
device_listens() { (exec 3<>"/dev/tcp/$NODEIP/$device_port"); }

# bring_agent : the samples, with this machine's values in them
bring_agent() {
  local dir=$demo_dir/objects
  rm -rf "$dir"
  mkdir -p "$dir"
  cp "$root"/config/samples/*.yaml "$dir"
  cat >>"$dir/kustomization.yaml" <<EOF
patches:
- target: {kind: Person, name: lucas}
  patch: '[{"op": "replace", "path": "/spec/identities/matrix", "value": "@$person_account:$server_name"}]'
- target: {kind: Device, name: web1}
  patch: |
    [{"op": "replace", "path": "/spec/url", "value": "https://$NODEIP:$device_port"},
     {"op": "replace", "path": "/spec/publicKey", "value": "$(recall device-key)"},
     {"op": "replace", "path": "/spec/rootKey", "value": "$(recall root-key)"}]
- target: {kind: Secret, name: model-ops}
  patch: '[{"op": "replace", "path": "/stringData/token", "value": "$(recall model-key)"}]'
- target: {kind: Agent, name: ops}
  patch: |
    [{"op": "replace", "path": "/spec/conversation/matrix", "value": {"userID": "@nisse-ops:$server_name", "room": "#ops:$server_name"}},
     {"op": "replace", "path": "/spec/models/endpoint/url", "value": "$(recall model-url)"},
     {"op": "replace", "path": "/spec/models/roles/executor/model", "value": "$(recall model-name)"}]
EOF
  hint "look at: kubectl -n $agents_namespace describe agent ops"
  # Server-side: a client-side apply would copy the token into an annotation.
  kubectl apply --server-side --force-conflicts -k "$dir"
  kubectl apply --server-side --force-conflicts -f "$device_dir/manifest.yaml"
  if ! { awaits device/web1 Online && awaits agent/ops Connected && awaits agent/ops Ready; }; then
    kube get agent ops -o 'jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'
    kube get device web1 -o 'jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'
    kube get pods
    kube logs --tail=5 agent-ops-0 || true
    return 1
  fi
  tell "ops in #ops:$server_name, for lucas (@$person_account:$server_name)"
}

awaits() { kube wait "$1" --for="condition=$2" --timeout=180s; }
