#!/bin/sh
# The gateway inside another Pingora proxy, which serves its own site on the same port.
. "$(dirname "$0")/../prepare.sh"

start site 'Serving HTTP' python3 -u -m http.server --directory "$PWD" --bind 127.0.0.1 3000
start agent 'Ctrl-C' "$GATEWAY" demo --agent-only --agent-port 9999
if [ -z "${EMBED:-}" ]; then
  cargo build --release --manifest-path "$ROOT/Cargo.toml" --example embed
  EMBED=$ROOT/target/release/examples/embed
fi
start host '' "$EMBED" gateway.yaml 127.0.0.1:8088 127.0.0.1:3000
until curl -s -o /dev/null http://127.0.0.1:8088/; do sleep 0.05; done

MCP=http://127.0.0.1:8088/mcp
echo "The host's own site:"
curl -sS http://127.0.0.1:8088/gateway.yaml | head -n 1
echo "The gateway, on the same port:"
until tool demo_echo '{"text":"Hello, embedded"}' | tee "$WORK/answer" | grep -v '^error'; do sleep 0.05; done
