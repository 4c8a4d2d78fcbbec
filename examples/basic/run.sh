#!/bin/sh
# One agent, one call.
. "$(dirname "$0")/../prepare.sh"

start agent 'Ctrl-C' "$GATEWAY" demo --agent-only --agent-port 9999
start gateway 'gateway started' "$GATEWAY" serve --config gateway.yaml

echo "The tools of the agent:"
"$GATEWAY" agents --config gateway.yaml
echo "A call of demo_echo:"
tool demo_echo '{"text":"Hello, agent"}'
