"""The suites of resources: every row of the families by its URI, workflows, batches; and prompts.

Official MCP clients of both eras, before agents on the official A2A SDK (`agents/phases.py`). Each client has an API key
of its own, and the rules deny the families to one more caller.
Not here: agents of other versions, `suites.py`.
"""

import base64
import concurrent.futures
import hashlib
import json
import shutil

import cells
import harness
from harness import HERE, NODE, SCRATCH, python

AGENT = [python("agent1"), HERE / "agents" / "phases.py"]
PYTHON = {
    "py_auto": [python("clients"), HERE / "clients" / "py_resources.py", "auto"],
    "py_legacy": [python("clients"), HERE / "clients" / "py_resources.py", "legacy"],
}
ROWS_CLIENTS = {
    **PYTHON,
    "ts1": [NODE, SCRATCH / "js" / "ts1_resources.mjs"],
    "ts2_auto": [NODE, SCRATCH / "js" / "ts2_resources.mjs"],
}
FLOW_CLIENTS = {
    name: [python("clients"), HERE / "clients" / "py_flow.py", mode]
    for name, mode in (("py_auto", "auto"), ("py_legacy", "legacy"))
}
ASPECTS = ("listed", "read", "updated", "denied")
DENIED = "denied"
LIMIT = 120  # seconds for one client
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PROMPT = {
    "title": "Review",
    "arguments": [{"name": "text", "required": True}, {"name": "style", "values": ["short", "shorter", "long"]}],
    "messages": [
        {"text": "Review ({{style}}): {{text}}"},
        {"role": "assistant", "text": "Which part first?"},
        {"image": "pixel.png"},
        {"resource": {"uri": "docs://style/{{style}}", "text": "Be {{style}}."}},
    ],
}
TEMPLATE = {"template": {"goals": ["say what is wanted"]}, "guidelines": "be brief"}
STATIC = {"uri": "docs://pages/{page}", "name": "page", "mime_type": "application/json", "text": '{"page":"{{page}}"}'}
RULES = [
    {
        "name": "no families",
        "deny": True,
        "callers": [f"key:{DENIED}"],
        "resources": ["sparc://*", "memory://*", "batchtools://*", "a2a://agents/registry", "docs://*"],
    },
    {"callers": ["key:*"]},
]


def key_of(caller):
    return f"interop-key-of-{caller}-0123456789"


def configuration(processes, callers, agents):
    """All families, two kinds of callers, and a data directory."""
    (processes.logs / "pixel.png").write_bytes(PIXEL)
    (processes.logs / "specification.json").write_text(json.dumps(TEMPLATE))
    digests = {name: f"sha256:{hashlib.sha256(key_of(name).encode()).hexdigest()}" for name in (*callers, DENIED)}
    return {
        "seal_key": "0123456789abcdef0123456789abcdef",
        "auth": {"api_keys": {"keys": digests}},
        "rules": RULES,
        "mcp": {"page_size": 20},  # so that lists have several pages
        "cards": {"min_refresh": "1s", "max_refresh": "1s"},
        "tasks": {"data_dir": str(processes.logs / "data")},
        "prompts": {"review": PROMPT},
        "resources": {
            "agent_types": {"phases": "researcher"},
            "sparc": {"templates": {"specification": str(processes.logs / "specification.json")}},
            "memory": {},
            "batchtools": {},
            "static": [STATIC],
        },
        "agents": agents,
    }


class Group:
    """The lines of several clients about one thing, as a cell: how many clients found it as it should be."""

    def __init__(self, name, lines):
        self.name = name
        good = [line for line in lines if line.startswith("ok ")]
        self.passed = len(good)
        self.failures = [line for line in lines if line not in good] or ([] if lines else ["FAILED no check ran"])
        self.omitted = []

    def __str__(self):
        return f"{self.passed}/{self.passed + len(self.failures)}"


def finished(asked):
    """The lines that each client printed; one line of failure for a client that ended before."""
    said = {}
    for client, one in asked.items():
        code, output = one.result()
        lines = [line for line in output.splitlines() if line.startswith(("ok ", "FAILED "))]
        if code != 0 and not any(line.startswith("FAILED ") for line in lines):
            lines.append(f"FAILED exit code {code}: {output[-2000:]}")
        said[client] = lines
    return said


def rows(wanted, _, verbose):
    """Every row of the families: listed, read, updated and denied."""
    clients = {name: argv for name, argv in ROWS_CLIENTS.items() if not wanted or name in wanted}
    if not clients:
        return []
    harness.place_scripts("agents", "clients")
    shutil.copy(HERE / "clients" / "rows.json", SCRATCH / "js")
    names = [row["row"] for row in json.loads((HERE / "clients" / "rows.json").read_text())]
    with harness.Processes("resources") as processes:
        agent = processes.agent("phases", AGENT)
        config = configuration(processes, clients, {"phases": {"card": agent}})
        url = f"http://127.0.0.1:{processes.gateway(config)}/mcp"
        with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
            argv = {name: [*clients[name], url, agent, key_of(name), key_of(DENIED)] for name in clients}
            asked = {name: pool.submit(harness.run_limited, argv[name], LIMIT) for name in clients}
            said = finished(asked)
        if verbose:
            print(harness.tail(processes.logs / "gateway.log", 200))
    return row_table(names, said) + prompt_table(names, said)


def row_table(names, said):
    table = {}
    for name in names:
        for aspect in ASPECTS:
            about = f"{name} {aspect}"
            lines = [f"{line} ({client})" for client, lines in said.items() for line in lines if is_about(line, about)]
            missing = [f"FAILED {about}: no line ({client})" for client, lines in said.items()
                       if not any(is_about(line, about) for line in lines)]
            table[name, aspect] = Group(about, lines + missing)
    cells.show("resources", table, names, ASPECTS)
    return list(table.values())


def is_about(line, about):
    return line == f"ok {about}" or line.startswith(f"FAILED {about}:")


def prompt_table(names, said):
    """All other lines: prompts, completion, and clients that ended early."""
    others = {
        client: [line for line in lines if not any(is_about(line, f"{name} {aspect}") for name in names for aspect in ASPECTS)]
        for client, lines in said.items()
    }
    table = {("journey", client): Group(client, lines) for client, lines in others.items()}
    cells.show("prompts", table, ["journey"], list(said))
    return list(table.values())


def flow(name, agents, wanted, verbose, restarts):
    """One of the journeys of `py_flow.py`; with a restart, the gateway is started again on its data directory."""
    clients = {client: argv for client, argv in FLOW_CLIENTS.items() if not wanted or client in wanted}
    if not clients:
        return []
    with harness.Processes(name) as processes:
        urls = {agent: processes.agent(agent, argv) for agent, argv in agents.items()}
        config = configuration(processes, clients, {agent: {"card": url} for agent, url in urls.items()})
        said = {}
        for journey in (name, f"{name}_restarted") if restarts else (name,):
            port = processes.gateway(config, f"gateway-{journey}")
            with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
                argv = {
                    client: [*clients[client], journey, f"http://127.0.0.1:{port}/mcp", key_of(client), processes.logs,
                             *urls.values()]
                    for client in clients
                }
                asked = {client: pool.submit(cells.ask, f"{client} {journey}", argv[client], LIMIT) for client in clients}
                said.update({(client, journey): one.result() for client, one in asked.items()})
            harness.stop_group(processes.running.pop())  # the gateway, which was started last
            if verbose:
                print(harness.tail(processes.logs / f"gateway-{journey}.log", 200))
    cells.show(name, said, clients, list(dict.fromkeys(journey for _, journey in said)))
    return list(said.values())


def workflow(wanted, _, verbose):
    """A workflow through five phases, watched by a subscribed client; the same after a restart."""
    return flow("workflow", {"phases": AGENT}, wanted, verbose, restarts=True)


def batches(wanted, _, verbose):
    """50 calls over four agents, of which one fails."""
    agents = {f"phases{number}": AGENT for number in range(3)}
    return flow("batches", {**agents, "failing": [*AGENT, "--failing"]}, wanted, verbose, restarts=False)


SUITES = {"resources": rows, "workflow": workflow, "batches": batches}
CLIENTS = tuple(ROWS_CLIENTS)
