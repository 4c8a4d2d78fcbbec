"""The suite of traces: from an instrumented MCP client through the gateway to an instrumented A2A agent, as one trace.

All three export over OTLP, by gRPC in one run and over HTTP in the other, to a receiver made of the official
`opentelemetry-proto`. Client, agent and receiver are of the official SDKs (`traces/`).
"""

import json
import time

import harness
from harness import HERE, python

PYTHON = python("traces")
LIMIT = 60  # seconds for the client
ARRIVAL = 20  # seconds until all spans have arrived
SERVER, CLIENT = 2, 3
GATEWAY = "mcp-a2a-gateway"


class Cell:
    """The checks of one protocol."""

    def __init__(self, name):
        self.name = name
        self.passed = 0
        self.failures = []
        self.omitted = []

    def check(self, holds, what):
        if holds:
            self.passed += 1
        else:
            self.failures.append(f"FAILED {what}")

    def __str__(self):
        return f"{self.passed}/{self.passed + len(self.failures)}"


def one(spans, service, kind, **parent):
    found = [span for span in spans if span["service"] == service and span["kind"] == kind]
    return [span for span in found if all(span[name] == value for name, value in parent.items())]


def arrived(file, trace):
    """The spans of the trace, once client, gateway and agent have sent theirs."""
    deadline = time.monotonic() + ARRIVAL
    while True:
        spans = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        spans = [span for span in spans if span["trace"] == trace]
        calls = [span for span in one(spans, GATEWAY, SERVER) if span["name"].startswith("tools/call")]
        is_whole = calls and one(spans, GATEWAY, CLIENT, parent=calls[0]["span"]) and one(spans, "agent", SERVER)
        if (is_whole and one(spans, "client", CLIENT)) or time.monotonic() > deadline:
            return spans
        time.sleep(0.2)


def judge(cell, protocol, spans):
    services = {span["service"] for span in spans}
    cell.check(services == {"client", GATEWAY, "agent"}, f"services of the trace: {services}")
    cell.check({span["protocol"] for span in spans} == {protocol}, f"not all came by {protocol}")
    calls = [span for span in one(spans, GATEWAY, SERVER) if span["name"].startswith("tools/call")]
    cell.check(len(calls) == 1, f"spans of the call at the gateway: {calls}")
    if not calls:
        return
    call = calls[0]
    senders = [span for span in spans if span["service"] == "client" and span["span"] == call["parent"]]
    cell.check(len(senders) == 1, f"the parent of {call} is no span of the client")
    cell.check(call["attributes"].get("mcp.method.name") == "tools/call", call)
    cell.check(call["attributes"].get("gen_ai.tool.name", "").endswith("echo"), call)
    cell.check(call["resource"].get("deployment.environment.name") == "interop", call)
    exchanges = one(spans, GATEWAY, CLIENT, parent=call["span"])
    cell.check(len(exchanges) == 1, f"exchanges of the call: {exchanges}")
    served = [span for exchange in exchanges for span in one(spans, "agent", SERVER, parent=exchange["span"])]
    cell.check(len(served) == 1, "no span of the agent is below the exchange")


def run(_clients, _agents, verbose):
    cells = []
    for protocol in ("grpc", "http"):
        cell = Cell(protocol)
        cells.append(cell)
        with harness.Processes(f"traces-{protocol}", needs=PYTHON) as processes:
            file = processes.logs / "spans.jsonl"
            urls = processes.agent("collector", [PYTHON, HERE / "traces" / "collector.py", file]).split()
            endpoint = urls[1] if protocol == "grpc" else urls[0]
            agent = processes.agent("agent", [PYTHON, HERE / "traces" / "agent.py", protocol, endpoint])
            tracing = {
                "endpoint": endpoint,
                "protocol": protocol,
                "resource": {"deployment.environment.name": "interop"},
            }
            card = f"{agent}.well-known/agent-card.json"
            port = processes.gateway({"tracing": tracing, "agents": {"py1": {"card": card}}})
            client = [PYTHON, HERE / "traces" / "client.py", protocol, endpoint]
            url = f"http://127.0.0.1:{port}/mcp"
            code, output = harness.run_limited([*client, url, "py1_echo"], LIMIT)
            traces = [line.split()[1] for line in output.splitlines() if line.startswith("trace ")]
            cell.check(code == 0 and len(traces) == 1, f"the client ended with {code}: {output[-1500:]}")
            if traces:
                spans = arrived(file, traces[0])
                judge(cell, protocol, spans)
                if cell.failures or verbose:
                    print(json.dumps(spans, indent=1))
            if cell.failures:
                print(harness.tail(processes.logs / "gateway.log"))
        print(f"traces over {protocol}: {cell}", *cell.failures, sep="\n  ", flush=True)
    return cells


SUITES = {"traces": run}
