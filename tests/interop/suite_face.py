"""The suite of official A2A clients x A2A agents, through the gateway's A2A face.

Each client speaks to an agent of its own version directly first: that proves its script. Then through the gateway to
every agent, once where nobody has to prove who it is (ids as the agent made them), and once as two callers with keys.
Not here: the MCP clients, `suites.py`; the checks, `face/face_checks.py` and `face/face_checks.mjs`.
"""

import concurrent.futures
import hashlib
import shutil

import cells
import harness
from harness import HERE, NODE, SCRATCH, python
from suites import AGENTS, RUST_SDK, agent_settings

# How a client is called, and the agent to which it speaks directly.
CLIENTS = {
    "py03": ([python("agent03"), HERE / "face" / "face_py03.py"], "py03"),
    "py03_grpc": ([python("agent03"), HERE / "face" / "face_py03.py", "--grpc"], "py03_grpc"),
    "js03": ([NODE, SCRATCH / "js" / "face_js03.mjs"], "js03"),
    "js03_grpc": ([NODE, SCRATCH / "js" / "face_js03.mjs", "--grpc"], "js03_grpc"),
    "py1": ([python("agent1"), HERE / "face" / "face_py1.py"], "py1"),
    "py1_rest": ([python("agent1"), HERE / "face" / "face_py1.py", "--rest"], "py1_rest"),
    "py1_grpc": ([python("agent1"), HERE / "face" / "face_py1.py", "--grpc"], "py1_grpc"),
    "js1": ([NODE, SCRATCH / "js" / "face_js1.mjs"], "js1"),
    "js1_rest": ([NODE, SCRATCH / "js" / "face_js1.mjs", "--rest"], "py1_rest"),
    "js1_grpc": ([NODE, SCRATCH / "js" / "face_js1.mjs", "--grpc"], "js1_grpc"),
}
if RUST_SDK.exists():
    CLIENTS["rs1_grpc"] = ([python("agent1"), HERE / "face" / "face_rs1.py", RUST_SDK], "rs1_grpc")
HERE_TOO = {"webhooks": {"allow": ["127.0.0.0/8"], "http": True}}  # the clients' webhooks are on this machine
KEYS = ["interop-key-of-the-first-caller", "interop-key-of-the-other-caller"]
LIMIT = 150  # seconds for one cell
AT_ONCE = 4
# a2a-sdk 0.3 answers -32603 to a message that reaches a task while the queue of the message before is being closed. A cell
# that met this fault of the agent is run again.
AGENT_RACE = "NoTaskQueue"
TRIES = 3


def keys():
    digests = [f"sha256:{hashlib.sha256(key.encode()).hexdigest()}" for key in KEYS]
    # What agents push goes through the gateway then.
    return {"auth": {"api_keys": {"keys": dict(zip(("first", "other"), digests))}}, "push": {"enabled": True}}


def settings(agent, card):
    """The settings of an agent that clients of 0.3 over gRPC reach by its own host."""
    return {**agent_settings(agent, card), "a2a": {"host": f"{agent.replace('_', '-')}.agents.example"}}


def ask(mode, url, client, agent):
    argv, _ = CLIENTS[client]
    proofs = KEYS if mode == "keys" else []
    return cells.ask(f"{client} x {agent}, {mode}", [*argv, mode, url, agent, *proofs], LIMIT)


def without_race(cell, processes, mode, urls, client, agent):
    """The cell, or that of another try if the agent lost its race."""
    for _ in range(1, TRIES):
        if not cell.failures or AGENT_RACE not in harness.tail(processes.logs / f"{mode}-{agent}.log", 1000):
            break
        print(f"asked again: {cell.name}: the agent raised {AGENT_RACE}: {cell.failures}")
        cell = ask(mode, urls[agent], client, agent)
    return cell


def table(pool, processes, mode, urls, clients, agents):
    pairs = [(client, agent) for client in clients for agent in agents]
    asked = [pool.submit(ask, mode, urls[agent], client, agent) for client, agent in pairs]
    said = {
        (client, agent): without_race(one.result(), processes, mode, urls, client, agent)
        for (client, agent), one in zip(pairs, asked)
    }
    cells.show(f"face, {mode}", said, clients, agents)
    return list(said.values())


def direct(pool, processes, clients):
    """Each client with an agent of its own version."""
    own = {client: CLIENTS[client][1] for client in clients}
    urls = {agent: processes.agent(f"direct-{agent}", AGENTS[agent]) for agent in set(own.values())}
    asked = {client: pool.submit(ask, "direct", urls[agent], client, agent) for client, agent in own.items()}
    said = {
        (client, "its own"): without_race(one.result(), processes, "direct", urls, client, own[client])
        for client, one in asked.items()
    }
    cells.show("face, direct", said, clients, ["its own"])
    return list(said.values())


def run(wanted, agents, verbose):
    """Runs the suite, prints its tables and returns its cells."""
    clients = [client for client in CLIENTS if not wanted or client in wanted]
    if not clients:
        return []
    harness.place_scripts("agents", "face")
    shutil.copy(HERE / "face" / "facts.json", SCRATCH / "js")
    with harness.Processes("face") as processes, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        said = direct(pool, processes, clients)
        for mode, auth in (("plain", {}), ("keys", keys())):
            cards = {agent: settings(agent, processes.agent(f"{mode}-{agent}", AGENTS[agent])) for agent in agents}
            config = {"public_url": harness.OWN_URL, "outbound": HERE_TOO, "agents": cards, **auth}
            port = processes.gateway(config, f"gateway-{mode}", serve=["a2a", "push", "health"])
            urls = {agent: f"http://127.0.0.1:{port}/a2a/{agent}" for agent in agents}
            said += table(pool, processes, mode, urls, clients, agents)
            if verbose:
                print(harness.tail(processes.logs / f"gateway-{mode}.log", 200))
    return said
