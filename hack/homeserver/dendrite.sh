# Dendrite: its configuration and its command line; sourced by run.sh, which has set the variables used here.

dendrite_configure() {
    # A PEM block around an Ed25519 seed, with the key's name in a header; what its generate-keys makes.
    if [ ! -s "$dir/signing.key" ]; then
        printf -- '-----BEGIN MATRIX PRIVATE KEY-----\nKey-ID: ed25519:%s\n\n%s\n-----END MATRIX PRIVATE KEY-----\n' \
            "$(openssl rand -hex 3)" "$(openssl rand -base64 32)" >"$dir/signing.key"
    fi
    dendrite_main >"$dir/homeserver.yaml"
}

dendrite_main() {
    local limits='{enabled: false}'
    [ "$rate_limits" != tight ] || limits='{enabled: true, threshold: 3, cooloff_ms: 1000}'
    cat <<EOF
version: 2
global:
  server_name: "$server_name"
  private_key: "$dir/signing.key"
  well_known_client_name: "$url"
  disable_federation: true
  presence: {enable_inbound: false, enable_outbound: false}
  report_stats: {enabled: false}
  cache: {max_size_estimated: 64mb, max_age: 1h}
  jetstream: {storage_path: "$dir/jetstream", topic_prefix: Dendrite}
app_service_api: {database: {connection_string: "file:$dir/appservice.db"}}
client_api:
  registration_disabled: true
  guests_disabled: true
  registration_shared_secret: "$registration_secret"
  rate_limiting: $limits
federation_api: {database: {connection_string: "file:$dir/federation.db"}, key_perspectives: []}
key_server: {database: {connection_string: "file:$dir/keys.db"}}
media_api: {base_path: "$dir/media", database: {connection_string: "file:$dir/media.db"}}
mscs: {mscs: [], database: {connection_string: "file:$dir/mscs.db"}}
relay_api: {database: {connection_string: "file:$dir/relay.db"}}
room_server: {database: {connection_string: "file:$dir/rooms.db"}}
sync_api: {search: {enabled: false}, database: {connection_string: "file:$dir/sync.db"}}
user_api:
  # A rig's passwords guard nothing; hashing them hard would only slow every login of every test.
  bcrypt_cost: 4
  account_database: {connection_string: "file:$dir/users.db"}
  device_database: {connection_string: "file:$dir/devices.db"}
logging: [{type: std, level: warn}]
EOF
}

dendrite_exec() {
    local bind
    # It listens on one address or on all of them.
    bind=$(url_host "${listen[0]}"):$port
    if [ ${#listen[@]} -gt 1 ]; then
        bind=:$port
        say "Dendrite cannot listen on a list of addresses: it listens on ALL of this machine's, port $port"
    fi
    cd "$dir"
    exec "$DENDRITE_HOME/dendrite" --config "$dir/homeserver.yaml" --http-bind-address "$bind" \
        --https-bind-address 127.0.0.1:0
}
