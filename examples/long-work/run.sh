#!/bin/sh
# A task that takes longer than its client waits, and a gateway that is killed meanwhile.
. "$(dirname "$0")/../prepare.sh"
cp gateway.yaml "$WORK"          # its data directory is beside it

start agent 'Ctrl-C' "$GATEWAY" demo --agent-only --agent-port 9999
start gateway 'gateway started' "$GATEWAY" serve --config "$WORK/gateway.yaml"
echo "A call that takes three seconds, with a client that waits one:"
tool demo_countdown '{"text":"3"}' | tee "$WORK/handle"
task=$(sed -n 's/.*taskId="\([^"]*\)".*/\1/p' "$WORK/handle")

echo "The gateway is killed and started again:"
stop
start restarted 'agent card' "$GATEWAY" serve --config "$WORK/gateway.yaml"
result="The agent is still working"
while case $result in *"still working"*) true ;; *) false ;; esac; do
  result=$(tool subagent_wait '{"taskId":"'"$task"'"}')
  echo "$result"
done
