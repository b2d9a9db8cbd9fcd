# Synapse: its configuration and its command line; sourced by run.sh, which has set the variables used here.

# synapse_configure writes everything Synapse reads. JSON lists are YAML lists, so the shell only has to quote once.
synapse_configure() {
    # The key file is "<algorithm> <version> <seed>"; making it here saves the seconds --generate-keys takes.
    if [ ! -s "$dir/signing.key" ]; then
        printf 'ed25519 a_%s %s\n' "$(openssl rand -hex 2)" "$(openssl rand -base64 32 | tr -d =)" >"$dir/signing.key"
    fi
    synapse_main >"$dir/homeserver.yaml"
    synapse_limits >"$dir/ratelimits.yaml"
    synapse_logging >"$dir/logging.yaml"
}

synapse_main() {
    cat <<EOF
server_name: "$server_name"
public_baseurl: "$url/"
listeners:
- {type: http, port: $port, bind_addresses: $(json_list "${listen[@]}"), tls: false, x_forwarded: false, resources: [{names: [client, media]}]}
database: {name: sqlite3, args: {database: "$dir/homeserver.db"}}
signing_key_path: "$dir/signing.key"
media_store_path: "$dir/media"
log_config: "$dir/logging.yaml"
registration_shared_secret: "$registration_secret"
macaroon_secret_key: "$macaroon_secret"
form_secret: "$form_secret"

# It knows nobody but itself, and asks nobody outside.
federation_domain_whitelist: []
trusted_key_servers: []
suppress_key_server_warning: true
report_stats: false
enable_registration: false
url_preview_enabled: false
default_identity_server: null

# A rig's passwords guard nothing; hashing them hard would only slow every login of every test.
bcrypt_rounds: 4
presence: {enabled: false}
# So that a person finds the agent's account when inviting it in Element.
user_directory: {enabled: true, search_all_users: true}
EOF
}

synapse_limits() {
    local all few
    all='{per_second: 1000, burst_count: 10000}'
    few=$all
    # Low enough that a handful of messages in a row meets a 429 with retry_after_ms; logging in stays free, since
    # every test does it and none means to test it.
    [ "$rate_limits" != tight ] || few='{per_second: 1, burst_count: 3}'
    cat <<EOF
rc_message: $few
rc_joins: {local: $few, remote: $few}
rc_joins_per_room: $all
rc_invites: {per_room: $few, per_user: $few, per_issuer: $few}
rc_room_creation: $all
rc_registration: $all
rc_login: {address: $all, account: $all, failed_attempts: $all}
rc_admin_redaction: $all
rc_media_create: $all
rc_presence: {per_user: $all}
rc_user_directory: $all
rc_profile: $all
EOF
}

synapse_logging() {
    cat <<EOF
version: 1
formatters: {line: {format: '%(asctime)s %(levelname)s %(name)s %(request)s %(message)s'}}
filters: {context: {(): synapse.logging.context.LoggingContextFilter, request: ""}}
handlers:
  file:
    class: logging.handlers.RotatingFileHandler
    filename: "$dir/homeserver.log"
    maxBytes: 10000000
    backupCount: 3
    formatter: line
    filters: [context]
loggers:
  # Says at level CRITICAL or WARNING what a rig means to do (SQLite, no key servers).
  synapse.storage.SQL: {level: WARNING}
root: {level: INFO, handlers: [file]}
disable_existing_loggers: false
EOF
}

synapse_exec() {
    cd "$dir"
    exec "$SYNAPSE_HOME/bin/python" -m synapse.app.homeserver \
        --config-path "$dir/homeserver.yaml" --config-path "$dir/ratelimits.yaml"
}
