#!/bin/sh
# An agent that pushes the end of its task, so that no stream stays open for it.
. "$(dirname "$0")/../prepare.sh"

start agent 'agent ready' python3 agent.py
start gateway 'gateway started' "$GATEWAY" serve --config gateway.yaml
echo "A call with a client that waits one second:"
tool reports_write '{"text":"Write the report."}' | tee "$WORK/handle"
task=$(sed -n 's/.*taskId="\([^"]*\)".*/\1/p' "$WORK/handle")

echo "The agent reports:"
until grep 'pushed' "$WORK/agent.log"; do sleep 0.05; done
echo "The result:"
tool subagent_wait '{"taskId":"'"$task"'"}'
