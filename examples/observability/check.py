"""Checks dashboard and rules against a running gateway and a real Prometheus.

Usage: check.py METRICS_URL PROMETHEUS_URL. Every metric that an expression names is at METRICS_URL, or is made by a
recording rule; every expression of the dashboard is one for Prometheus; every rule is evaluated without an error.
"""

import json
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
# Not the names that recording rules make, which have colons.
NAME = re.compile(r"(?<![:\w])(?:mcp_a2a_gateway|process)_\w+(?![:\w])")
# A counter or gauge with labels has no line before it is first counted; its HELP comes with the first.
OF_FEATURES = {
    "mcp_a2a_gateway_agent_certificate_expiry_timestamp_seconds",
    "mcp_a2a_gateway_tls_expiry_timestamp_seconds",
    "mcp_a2a_gateway_tls_handshakes_total",
    "mcp_a2a_gateway_open_streams",
    "mcp_a2a_gateway_trace_spans_total",
    "mcp_a2a_gateway_queued_calls",
    "mcp_a2a_gateway_queue_wait_seconds_bucket",
    "mcp_a2a_gateway_transport_errors_total",
    "mcp_a2a_gateway_endpoint_ejections_total",
}


def get(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def expressions():
    """The expressions of the dashboard."""
    dashboard = json.loads((HERE / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m").replace("$agent", ".*")


def names_of_rules():
    for file in ("recording-rules.yml", "alert-rules.yml"):
        for name in NAME.findall((HERE / file).read_text()):
            yield file, name


def main():
    metrics_url, prometheus = sys.argv[1:]
    page = get(metrics_url)
    known = {line.split("{")[0].split(" ")[0] for line in page.splitlines() if line and not line.startswith("#")}
    documented = (HERE / "../../docs/reference/metrics.md").resolve()
    # Metrics of features that the example does not use are in the reference, which is made from the source.
    reference = set(NAME.findall(documented.read_text())) if documented.exists() else set()
    problems = []
    base = re.compile(r"_(bucket|sum|count)$")
    named = [(title, name) for title, expr in expressions() for name in NAME.findall(expr)]
    named += names_of_rules()
    for place, name in named:
        is_shown = name in known or (name in OF_FEATURES and base.sub("", name) in reference)
        if not is_shown:
            problems.append(f"{place}: {name} is not in the metrics")
    for title, expr in expressions():
        query = urllib.parse.urlencode({"query": expr})
        try:
            answer = json.loads(get(f"{prometheus}/api/v1/query?{query}"))
            if answer["status"] != "success":
                problems.append(f"{title}: {answer}")
        except OSError as error:
            problems.append(f"{title}: {expr}: {error}")
    deadline = time.monotonic() + 60
    while True:
        groups = json.loads(get(f"{prometheus}/api/v1/rules"))["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        if all(rule["health"] == "ok" for rule in rules) or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    problems += [f"{rule['name']}: {rule['health']} {rule.get('lastError', '')}" for rule in rules if rule["health"] != "ok"]
    query = urllib.parse.urlencode({"query": 'sum(mcp_a2a_gateway_requests_total{outcome="ok"})'})
    if not json.loads(get(f"{prometheus}/api/v1/query?{query}"))["data"]["result"]:
        problems.append("Prometheus has no requests of the gateway")
    if not rules or not named:
        problems.append("there is nothing to check")
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"{len(named)} metrics, {len(list(expressions()))} panels' expressions and {len(rules)} rules fit the gateway")


main()
