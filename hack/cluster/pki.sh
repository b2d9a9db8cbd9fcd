# Certificates and kubeconfigs, by openssl alone. Sourced by up.sh.

# make_pki : keeps what is there as long as it fits the addresses and lasts another week
make_pki() {
  local wanted="$NODE $NODEIP $APISERVICEIP"
  mkdir -p "$pki"
  chmod 0700 "$pki"
  if [ "$(cat "$pki/made-for" 2>/dev/null)" = "$wanted" ] && openssl x509 -in "$pki/admin.crt" -noout -checkend 604800 >/dev/null; then
    return
  fi
  rm -f "$pki/made-for"
  (
    cd "$pki"
    if [ ! -f ca.crt ]; then
      openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -keyout ca.key -out ca.crt.new -subj /CN=nisse-dev \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature 2>/dev/null
      mv ca.crt.new ca.crt
    fi
    # Service account keys outlive certificates: with a new one every token in the cluster would be void.
    [ -f sa.key ] || { openssl genrsa -out sa.key.new 2048 2>/dev/null && mv sa.key.new sa.key; }
    openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null

    certificate apiserver /CN=kube-apiserver serverAuth \
      "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:$APISERVICEIP,IP:$NODEIP,IP:127.0.0.1"
    certificate kubelet-server "/CN=$NODE" serverAuth "DNS:$NODE,IP:$NODEIP,IP:127.0.0.1"
    certificate kubelet-client /O=nisse-dev:kubelet-clients/CN=kube-apiserver clientAuth
    certificate controller-manager /CN=system:kube-controller-manager clientAuth
    certificate scheduler /CN=system:kube-scheduler clientAuth
    certificate kubelet "/O=system:nodes/CN=system:node:$NODE" clientAuth
    certificate proxy /CN=system:kube-proxy clientAuth
    certificate netpol /CN=nisse-dev:netpol clientAuth
    certificate provisioner /CN=nisse-dev:provisioner clientAuth
    certificate admin /O=system:masters/CN=admin clientAuth
  )
  local user
  for user in controller-manager scheduler kubelet proxy netpol provisioner admin; do kubeconfig "$user"; done
  echo "$wanted" >"$pki/made-for"
}

# certificate NAME SUBJECT USAGE [NAMES]
certificate() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
  {
    echo "basicConstraints=CA:FALSE"
    echo "keyUsage=digitalSignature,keyEncipherment"
    echo "extendedKeyUsage=$3"
    [ -z "${4:-}" ] || echo "subjectAltName=$4"
  } >"$1.ext"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out "$1.crt" -extfile "$1.ext" 2>/dev/null
  rm "$1.csr" "$1.ext"
}

# kubeconfig USER : whole in itself, so that it can be copied
kubeconfig() {
  (
    umask 077
    cat >"$cluster_dir/$1.conf" <<EOF
apiVersion: v1
kind: Config
clusters:
- name: nisse-dev
  cluster: {server: "https://$NODEIP:$api_port", certificate-authority-data: $(base64 -w0 "$pki/ca.crt")}
users:
- name: $1
  user: {client-certificate-data: $(base64 -w0 "$pki/$1.crt"), client-key-data: $(base64 -w0 "$pki/$1.key")}
contexts:
- name: nisse-dev
  context: {cluster: nisse-dev, user: $1}
current-context: nisse-dev
EOF
  )
}
