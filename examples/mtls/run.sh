#!/bin/sh
# Only clients with a certificate of one authority, and of them only one by its name.
. "$(dirname "$0")/../prepare.sh"

certificate() { # NAME DNS-NAME USE
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" \
    -keyout "$WORK/$1.key" -out "$WORK/$1.csr" 2>/dev/null
  printf 'subjectAltName=DNS:%s\nextendedKeyUsage=%s\nkeyUsage=digitalSignature\n' "$2" "$3" >"$WORK/$1.ext"
  openssl x509 -req -days 2 -in "$WORK/$1.csr" -CA "$WORK/ca.pem" -CAkey "$WORK/ca.key" -CAcreateserial \
    -extfile "$WORK/$1.ext" -out "$WORK/$1.pem" 2>/dev/null
}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj '/CN=example authority' \
  -addext keyUsage=keyCertSign,cRLSign -keyout "$WORK/ca.key" -out "$WORK/ca.pem" 2>/dev/null
certificate server localhost serverAuth
certificate build build.example.com clientAuth
certificate guest guest.example.com clientAuth
export SERVER_CERTIFICATE="$WORK/server.pem" SERVER_TLS_KEY="$WORK/server.key" CLIENTS_CA="$WORK/ca.pem"

start agent 'Ctrl-C' "$GATEWAY" demo --agent-only --agent-port 9999
start gateway 'gateway started' "$GATEWAY" serve --config gateway.yaml

MCP=https://localhost:8443/mcp
as() { tool demo_echo '{"text":"Hello over mTLS"}' --cacert "$WORK/ca.pem" --cert "$WORK/$1.pem" --key "$WORK/$1.key"; }
echo "With the certificate of build.example.com:"
as build
echo "With the certificate of guest.example.com, which no rule allows:"
as guest
echo "Without a certificate:"
if curl -s --cacert "$WORK/ca.pem" "$MCP"; then exit 1; else echo "the handshake failed"; fi
