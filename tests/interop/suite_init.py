"""The suite of `init`: from the URL of each agent to a configuration that `check` accepts and `serve` uses.

The client is the command line of the gateway itself: `init`, `check`, `agents`, `call`.
Not here: what clients do with the agents, `suites.py`.
"""

import concurrent.futures

import cells
import harness
from suites import AGENTS

CLIENT = "command"
LIMIT = 60  # seconds for one command
AT_ONCE = 2
# A skill of every agent: it gives the text back.
SKILL, SAID = "echo", "from nothing to an answer"
PORTS = ("8080", "9090")  # those that `init` writes


class Way:
    """The way from one agent to an answer; a step after a failed one is not tried."""

    def __init__(self, processes, name, url):
        self.processes, self.name, self.url = processes, name, url
        self.file = processes.logs / f"{name}.yaml"
        self.lines = []

    def step(self, name, argv, expected):
        """Runs a command. Its output has this text if it did as it should."""
        if any(line.startswith("FAILED ") for line in self.lines):
            return ""
        code, output = harness.run_limited([harness.gateway_binary(), *argv], LIMIT)
        good = code == 0 and expected in output
        self.lines.append(f"ok {name}" if good else f"FAILED {name}: exit code {code}: {output[-1000:]}")
        return output

    def take(self):
        config = ["--config", self.file]
        self.step("init", ["init", self.url, "--output", self.file], "1 agent")
        self.step("check", ["check", *config], "no problems, 1 agent")
        rows = self.step("agents", ["agents", *config], "1 of 1 agent without problems")
        if any(line.startswith("FAILED ") for line in self.lines):
            return self.cell()
        tool = next(word.strip(",") for word in rows.split() if word.strip(",").endswith(f"_{SKILL}"))
        port = self.serve()
        if port:
            url = f"http://127.0.0.1:{port}/mcp"
            self.step("call", ["call", tool, "--text", SAID, "--url", url], SAID)
        return self.cell()

    def serve(self):
        """Serves the file as it was written, but for its ports."""
        port, admin = harness.free_ports(2)
        text = self.file.read_text()
        for usual, free in zip(PORTS, (port, admin)):
            text = text.replace(f"127.0.0.1:{usual}", f"127.0.0.1:{free}")
        served = self.processes.logs / f"{self.name}-served.yaml"
        served.write_text(text)
        argv = [harness.gateway_binary(), "serve", "--config", served]
        process, log = self.processes.start(f"gateway-{self.name}", argv)
        is_ready = harness.wait_ready(process, f"http://127.0.0.1:{admin}/readyz")
        self.lines.append("ok serve" if is_ready else f"FAILED serve: {harness.tail(log)}")
        return port if is_ready else None

    def cell(self):
        return cells.Cell(f"{CLIENT} x {self.name}", 0, "\n".join(self.lines))


def run(wanted, agents, _):
    if wanted and CLIENT not in wanted:
        return []
    harness.place_scripts("agents")
    # The operator has to allow the port of gRPC, which no command does alone.
    agents = [name for name in agents if not name.endswith("_grpc")]
    with harness.Processes("init") as processes:
        urls = {name: processes.agent(name, AGENTS[name]) for name in agents}
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            ways = {name: pool.submit(Way(processes, name, url).take) for name, url in urls.items()}
            table = {(CLIENT, name): way.result() for name, way in ways.items()}
    cells.show("init", table, [CLIENT], agents)
    return list(table.values())
