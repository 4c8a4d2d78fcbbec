#!/bin/sh
# Agents from a folder of ARDF manifests, with a secret from the environment.
. "$(dirname "$0")/../prepare.sh"
export SALES_API_KEY=a-key-of-the-example

start agent 'Ctrl-C' "$GATEWAY" demo --agent-only --agent-port 9999
start gateway 'gateway started' "$GATEWAY" serve --config gateway.yaml
echo "The tools, under the names of the manifest:"
"$GATEWAY" agents --config gateway.yaml
tool sales_repeat '{"text":"Hello, sales"}'
echo "The manifest as clients read it, with the reference in place of the secret:"
curl -sS http://127.0.0.1:8080/mcp -H 'Content-Type: application/json' \
  -d '{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a2a-agent://sales"}}' |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["result"]["contents"][0]["text"])'
