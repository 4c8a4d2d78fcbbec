#!/bin/sh
# A2A clients of three versions before one agent of 1.0.
. "$(dirname "$0")/../prepare.sh"

start agent 'Ctrl-C' "$GATEWAY" demo --agent-only --agent-port 9999
start gateway 'gateway started' "$GATEWAY" serve --config gateway.yaml

send() { # VERSION BODY
  curl -sS http://127.0.0.1:8080/a2a/demo -H 'Content-Type: application/json' -H "A2A-Version: $1" -d "$2"
  echo
}
echo "The card, for clients of every version:"
curl -sS http://127.0.0.1:8080/a2a/demo/.well-known/agent-card.json |
  python3 -c 'import json, sys; card = json.load(sys.stdin); print(card["name"], "at", card["url"])'
echo "1.0:"
send 1.0 '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"echo Hello from 1.0"}]}}}'
echo "0.3:"
send 0.3 '{"jsonrpc":"2.0","id":2,"method":"message/send","params":{"message":{"kind":"message","messageId":"m-2","role":"user","parts":[{"kind":"text","text":"echo Hello from 0.3"}]}}}'
echo "0.1:"
send 0.1 '{"jsonrpc":"2.0","id":3,"method":"tasks/send","params":{"id":"my-task","message":{"role":"user","parts":[{"type":"text","text":"echo Hello from 0.1"}]}}}'
echo "All agents:"
curl -sS http://127.0.0.1:8080/a2a
