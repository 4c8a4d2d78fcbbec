#!/bin/sh
# A gateway, a few calls, and a real Prometheus that scrapes it: dashboard and rules fit the metrics.
. "$(dirname "$0")/../prepare.sh"

for tool in promtool prometheus; do
  command -v $tool >/dev/null || { echo "needs $tool (Debian package prometheus)" >&2; exit 1; }
done
promtool check rules recording-rules.yml alert-rules.yml
promtool test rules rules-test.yml
promtool check config prometheus.yml

start agent 'Ctrl-C' "$GATEWAY" demo --agent-only --agent-port 9999
start gateway 'gateway started' "$GATEWAY" serve --config gateway.yaml
tool demo_echo '{"text":"Hello, agent"}'
tool no_such_tool '{}'
METRICS=http://127.0.0.1:9090/metrics
curl -sS "$METRICS" | promtool check metrics

# Every second instead of every 15: the example is over soon.
sed 's/: 15s/: 1s/' prometheus.yml >"$WORK/prometheus.yml"
cp recording-rules.yml alert-rules.yml "$WORK"
start prometheus 'Server is ready' prometheus --config.file="$WORK/prometheus.yml" --storage.tsdb.path="$WORK/data" \
  --web.listen-address=127.0.0.1:9091
until curl -sS 'http://127.0.0.1:9091/api/v1/query?query=mcp_a2a_gateway_requests_total' | grep -q demo; do sleep 0.2; done
python3 check.py "$METRICS" http://127.0.0.1:9091
