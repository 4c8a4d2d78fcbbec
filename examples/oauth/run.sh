#!/bin/sh
# Callers with bearer tokens, and rules by scope.
. "$(dirname "$0")/../prepare.sh"
export INTROSPECTION_SECRET=a-secret-of-the-example

start tokens 'ready' python3 token_server.py
start agent 'Ctrl-C' "$GATEWAY" demo --agent-only --agent-port 9999
start gateway 'gateway started' "$GATEWAY" serve --config gateway.yaml

token() { # SCOPE
  curl -sS http://127.0.0.1:9998/token -d grant_type=client_credentials -d client_id=alice -d "scope=$1" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["access_token"])'
}
echo "Without a token, the challenge tells a client where to get one:"
curl -sS -o /dev/null -D - http://127.0.0.1:8080/mcp -H 'Content-Type: application/json' -d '{}' | grep -i www-authenticate
echo "With the scope agents.read:"
reader=$(token agents.read)
tool demo_echo '{"text":"Hello, alice"}' -H "Authorization: Bearer $reader"
tool demo_countdown '{"text":"1"}' -H "Authorization: Bearer $reader"
echo "With the scope agents.write:"
tool demo_countdown '{"text":"1"}' -H "Authorization: Bearer $(token agents.write)"
