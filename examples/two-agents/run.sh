#!/bin/sh
# Two agents: tools of both on one URL, and of each on its own.
. "$(dirname "$0")/../prepare.sh"

start weather 'Ctrl-C' "$GATEWAY" demo --agent-only --agent-port 9999
start helpdesk 'Ctrl-C' "$GATEWAY" demo --agent-only --agent-port 9998
start gateway 'gateway started' "$GATEWAY" serve --config gateway.yaml

echo "Both agents on /mcp:"
tool weather_echo '{"text":"Hello, weather"}'
tool ask_helpdesk '{"text":"echo Hello, helpdesk"}'
echo "One agent on /mcp/weather, where its tools have no prefix:"
MCP=http://127.0.0.1:8080/mcp/weather tool echo '{"text":"Hello again"}'
echo "An agent by what it can do:"
tool find_agent '{"query":"countdown"}'
