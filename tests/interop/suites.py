"""The suites of official MCP clients x A2A agents, through the gateway's MCP face.

Not here: the A2A clients, `suite_face.py`.
"""

import concurrent.futures
import hashlib
import json
import os

import cells
import harness
from harness import HERE, NODE, SCRATCH, python

AGENTS = {
    "py01": [python("agent02"), HERE / "agents" / "py01.py"],
    "py02": [python("agent02"), HERE / "agents" / "py02.py"],
    "py03": [python("agent03"), HERE / "agents" / "py03.py"],
    "py03_rest": [python("agent03"), HERE / "agents" / "py03_rest.py"],
    "py03_grpc": [python("agent03"), HERE / "agents" / "py03_grpc.py"],
    "js03": [NODE, SCRATCH / "js" / "js03.mjs"],
    "js03_rest": [NODE, SCRATCH / "js" / "js03.mjs", "--rest"],
    "js03_grpc": [NODE, SCRATCH / "js" / "js03.mjs", "--grpc"],
    "py1": [python("agent1"), HERE / "agents" / "py1.py"],
    "py1_both": [python("agent1"), HERE / "agents" / "py1.py", "--compat"],
    "py1_rest": [python("agent1"), HERE / "agents" / "py1.py", "--rest"],
    "py1_grpc": [python("agent1"), HERE / "agents" / "py1.py", "--grpc"],
    "js1": [NODE, SCRATCH / "js" / "js1.mjs"],
    "js1_grpc": [NODE, SCRATCH / "js" / "js1.mjs", "--grpc"],
}
RUST_SDK = SCRATCH / "a2a-rs" / "debug" / "a2a-rs"
if RUST_SDK.exists():  # `setup --all` builds it
    AGENTS["rs1_grpc"] = [RUST_SDK, "agent"]


def agent_settings(name, url):
    """The settings of an agent whose card is at this URL. gRPC has a port of its own, which is another origin."""
    return {"card": url, **({"allow_hosts": ["127.0.0.1"]} if name.endswith("_grpc") else {})}


CALLS = {
    "py_auto": [python("clients"), HERE / "clients" / "py_auto.py"],
    "py_legacy": [python("clients"), HERE / "clients" / "py_legacy.py"],
    "py_one": [python("clients"), HERE / "clients" / "py_auto.py"],
    "ts1": [NODE, SCRATCH / "js" / "ts1.mjs"],
    "ts2": [NODE, SCRATCH / "js" / "ts2.mjs"],
    "ts2_auto": [NODE, SCRATCH / "js" / "ts2_auto.mjs"],
    "rmcp": [SCRATCH / "rmcp" / "debug" / "rmcp-client"],
}
TASKS = {
    "py_auto": [python("clients"), HERE / "clients" / "py_tasks.py", "auto"],
    "py_legacy": [python("clients"), HERE / "clients" / "py_tasks.py", "legacy"],
    "ts1": [NODE, SCRATCH / "js" / "ts1_tasks.mjs"],
    "ts1_core": [NODE, SCRATCH / "js" / "ts1_core_tasks.mjs"],
    "ts2_auto": [NODE, SCRATCH / "js" / "ts2_tasks.mjs"],
    "ext_tasks": [NODE, SCRATCH / "js" / "ext_tasks.mjs"],
    "inspector": [NODE, SCRATCH / "js" / "inspector_tasks.mjs"],
}
# Clients that start the gateway as a process: once for `calls`, for each check of `tasks` anew.
STDIO = {name: CALLS[name] for name in ("py_auto", "py_legacy", "ts1", "ts2", "ts2_auto")}
STDIO_TASKS = {name: argv for name, argv in TASKS.items() if name != "inspector"}
OAUTH = {
    "issuer": [python("clients"), HERE / "oauth" / "issuer_checks.py"],
    "py_auto": [python("clients"), HERE / "oauth" / "py_oauth.py", "auto"],
    "py_legacy": [python("clients"), HERE / "oauth" / "py_oauth.py", "legacy"],
    "py_one": [python("clients"), HERE / "oauth" / "py_oauth.py", "auto"],
    "ts1": [NODE, SCRATCH / "js" / "ts1_oauth.mjs"],
    "ts2": [NODE, SCRATCH / "js" / "ts2_oauth.mjs"],
    "ts2_auto": [NODE, SCRATCH / "js" / "ts2_auto_oauth.mjs"],
    "ts2_one": [NODE, SCRATCH / "js" / "ts2_oauth.mjs"],
}
def pages(mode):
    """The official TypeScript clients in headless Chromium, on pages of another origin."""
    return {name: [NODE, SCRATCH / "js" / "drive.mjs", name, mode] for name in ("ts1", "ts2", "ts2_auto")}


BROWSER_KEY = "interop-key-0123456789"  # as in browser/page.mjs
# Rounds of a second, a plain call within three: what takes minutes outside takes seconds here.
HASTY = {"stream_after": "500ms", "task_after": "500ms", "round_timeout": "1s", "max_rounds": 7, "budget": "3s"}
# The tool `data` needs a scope more than the others.
RULES = [
    {"name": "data", "tools": ["data"], "scopes": ["a2a.data"]},
    {"name": "no data", "tools": ["data"], "deny": True},
    {"name": "the rest"},
]


def nothing(_):
    return {}


def hasty(_):
    # Who asks at intervals must ask often enough to see what the agents show for two seconds only.
    return {"calls": HASTY, "tasks": {"poll_interval": "500ms"}}


def over_stdio(_):
    # The clients print what the gateway logs.
    return {"log": {"level": "warn"}}


def hasty_over_stdio(_):
    # These make rounds by themselves without declaring elicitation, and there is no URL to say so in.
    rounds = {"client_name": ["mcp", "interop-ts2"], "rounds": "on"}
    # A task is resumed by another process than the one that began it.
    key = {"seal_key": "0123456789abcdef0123456789abcdef"}
    return {**over_stdio(_), **hasty(_), **key, "calls": {**HASTY, "clients": {"rounds": rounds}}}


def keyed(_):
    digest = hashlib.sha256(BROWSER_KEY.encode()).hexdigest()
    return {"auth": {"api_keys": {"keys": {"browser": f"sha256:{digest}"}}}}


def guarded(processes):
    """Who calls must have a token of an authorization server, which is started for it."""
    issuer = processes.agent("issuer", [python("clients"), HERE / "oauth" / "issuer.py"])
    auth = {"tokens": [{"issuer": issuer}], "scopes": ["a2a.invoke"]}
    return {"public_url": harness.OWN_URL, "auth": auth, "rules": RULES}


# By suite: its clients, what the gateway's configuration has beside the agents, seconds for one cell.
SUITES = {
    "calls": (CALLS, nothing, 120),
    "tasks": (TASKS, hasty, 300),
    "minute": (TASKS, nothing, 330),
    "stdio": (STDIO, over_stdio, 120),
    "stdio_tasks": (STDIO_TASKS, hasty_over_stdio, 300),
    "oauth": (OAUTH, guarded, 60),
    "browser": (pages("open"), nothing, 120),
    "browser_key": (pages("key"), keyed, 120),
    "browser_oauth": (pages("oauth"), guarded, 120),
}
OWN_PATH = {"py_one", "ts2_one"}  # these use /mcp/{agent}, the others /mcp
MAKES_ROUNDS = {"py_auto", "ts2_auto"}  # these call again by themselves and say so in the URL, as they do not declare elicitation
AT_ONCE = {"calls": 4, "stdio": 4, "tasks": 3, "stdio_tasks": 3, "minute": 21, "oauth": 3, "browser": 2, "browser_key": 2, "browser_oauth": 2}  # they wait most of the time
# Agents of other versions and bindings, which say no more than the rest in most suites.
OTHERS = [
    "py01", "py02", "py03_rest", "py03_grpc", "js03", "js03_rest", "js03_grpc", "py1_both", "py1_rest", "py1_grpc", "js1_grpc",
    "rs1_grpc",
]
# Agents that a suite asks of some clients only, of both eras of MCP.
SOME = {
    "tasks": {
        "py01": {"py_auto", "py_legacy", "ts1_core", "ext_tasks"},
        "py02": {"py_auto", "py_legacy"},
        "py03_rest": {"py_legacy", "ts2_auto"},
        "py03_grpc": {"py_auto", "ts1_core"},
        "js03": {"ts1", "ts2_auto"},
        "js03_rest": {"py_auto", "ts1_core"},
        "js03_grpc": {"py_legacy", "ext_tasks"},
        "py1_both": {"py_legacy", "ext_tasks"},
        "py1_rest": {"py_auto", "ts1_core"},
        "py1_grpc": {"py_legacy", "ts2_auto"},
        "js1_grpc": {"py_auto", "ts1"},
        "rs1_grpc": {"py_legacy", "ts2_auto"},
    },
    **dict.fromkeys(["minute", "stdio", "stdio_tasks", "oauth"], dict.fromkeys(OTHERS, set())),
    **dict.fromkeys(["browser", "browser_key", "browser_oauth"], dict.fromkeys([*OTHERS, "py03", "js1"], set())),
}
WHY = {
    "tasks": "one client of each era tells what this agent's version and binding do to tasks",
    "minute": "patience is the gateway's own, whatever the agent's version",
    **dict.fromkeys(["stdio", "stdio_tasks"], "an agent sees nothing of the transport to the client"),
    "oauth": "who calls is proved before an agent is asked",
    **dict.fromkeys(
        ["browser", "browser_key", "browser_oauth"],
        "a browser differs from Node in CORS and redirects, which no agent sees",
    ),
}


def ask(suite, url, client, argv, agent, limit):
    name = f"{client} x {agent}"
    if client not in SOME.get(suite, {}).get(agent, {client}):
        return cells.Omitted(name, WHY[suite])
    path = f"{url}/{agent}" if client in OWN_PATH else url
    path += "?rounds=on" if client in MAKES_ROUNDS and suite in ("tasks", "minute") else ""
    return cells.ask(name, [*argv, path, agent], limit)


def run(suite, wanted, agents, verbose):
    """Runs a suite, prints its table and returns its cells."""
    all_clients, settings, limit = SUITES[suite]
    clients = {name: argv for name, argv in all_clients.items() if not wanted or name in wanted}
    if not clients:
        return []
    harness.place_scripts("agents", "clients", "oauth", "browser")
    os.environ["INTEROP_MINUTE"] = "1" if suite == "minute" else "0"
    with harness.Processes(suite) as processes:
        cards = {name: agent_settings(name, processes.agent(name, AGENTS[name])) for name in agents}
        # Not every client asks for a second page.
        configuration = {"mcp": {"page_size": 500}, **settings(processes), "agents": cards}
        # Clients look for a few seconds whether a cancelled call reached the agent.
        configuration["calls"] = {"cancel_grace": "1s", **configuration.get("calls", {})}
        os.environ.pop("INTEROP_STDIO", None)
        if suite.startswith("stdio"):
            url = "stdio:"
            os.environ["INTEROP_STDIO"] = json.dumps(processes.stdio_gateway(configuration))
        else:
            url = f"http://127.0.0.1:{processes.gateway(configuration)}/mcp"
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE[suite]) as pool:
            pairs = [(client, agent) for client in clients for agent in agents]
            asked = [pool.submit(ask, suite, url, client, clients[client], agent, limit) for client, agent in pairs]
            said = {pair: one.result() for pair, one in zip(pairs, asked)}
        if verbose and not suite.startswith("stdio"):
            print(harness.tail(processes.logs / "gateway.log", 200))
    cells.show(suite, said, clients, agents)
    return list(said.values())
