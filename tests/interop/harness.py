"""Starts and stops what the interop runs need: agents and the gateway.

Not a test. Every process gets a group of its own and a log file, and is stopped when the
`with` block ends, also on SIGTERM and SIGINT. No port is fixed: agents choose their own and
say so in a ready line; the gateway's are taken from the system just before it starts.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SCRATCH = pathlib.Path(os.environ.get("INTEROP_DIR", ROOT / "target" / "interop")).resolve()
NODE = SCRATCH / "js" / "node_modules" / ".bin" / "node"
READY_LIMIT = 30  # seconds for a process to become ready
STOP_LIMIT = 5  # seconds for a process to end after SIGTERM
OWN_URL = "(the gateway's own URL)"  # in a configuration: put in when its port is known
LIVE = set()  # commands of `run_limited` that have not ended
STOPPING = False  # a signal told this run to end


class Trouble(Exception):
    """The run cannot go on; the text says why."""


def python(venv):
    """The interpreter of a venv that `setup` made."""
    return SCRATCH / venv / "bin" / "python"


def environment():
    """Ours, without Python caches in the source tree."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


def place_scripts(*folders):
    """Copies the JavaScript files to where Node finds the installed packages."""
    for folder in folders:
        for script in (HERE / folder).glob("*.mjs"):
            shutil.copy(script, SCRATCH / "js" / script.name)


def gateway_binary():
    """$GATEWAY, or the newest build in the target folder, or a fresh debug build."""
    if named := os.environ.get("GATEWAY"):
        return pathlib.Path(named).resolve()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [target / profile / "mcp-a2a-gateway" for profile in ("release", "debug")]
    built = [binary for binary in built if binary.exists()]
    if not built:
        subprocess.run(["cargo", "build", "--bin", "mcp-a2a-gateway"], cwd=ROOT, check=True)
        return target / "debug" / "mcp-a2a-gateway"
    return max(built, key=lambda binary: binary.stat().st_mtime)


def free_ports(count):
    """Ports that were free a moment ago, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def stop_group(process):
    """Ends a process and what it started: SIGTERM, then SIGKILL."""
    for number, limit in ((signal.SIGTERM, STOP_LIMIT), (signal.SIGKILL, STOP_LIMIT)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            continue
        if number == signal.SIGKILL or not group_alive(process.pid):
            return


def group_alive(group):
    try:
        os.killpg(group, 0)
        return True
    except ProcessLookupError:
        return False


def run_limited(argv, limit):
    """Runs a command to its end. Returns (exit code, output); a late one is killed: code 124."""
    if STOPPING:
        return 130, ""
    process = subprocess.Popen(
        [str(part) for part in argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
        env=environment(),
    )
    LIVE.add(process)
    try:
        output, _ = process.communicate(timeout=limit)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        stop_group(process)
        output, _ = process.communicate()
        return 124, f"{output}\nFAILED deadline: not done after {limit} s"
    finally:
        LIVE.discard(process)
        if group_alive(process.pid):
            stop_group(process)


def end_now(received, _):
    """On a signal: ends the commands in the foreground, so that the `with` blocks can end the rest."""
    global STOPPING
    STOPPING = True
    for process in list(LIVE):
        if group_alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
    sys.exit(128 + received)


class Processes:
    """What runs beside the test; stopped together."""

    def __init__(self, name, needs=NODE):
        if needs and not needs.exists():
            raise Trouble(f"nothing is installed in {SCRATCH}: run tests/interop/setup first")
        self.logs = SCRATCH / "logs" / name
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.running = []

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, end_now)
        return self

    def __exit__(self, *_):
        for process in reversed(self.running):
            stop_group(process)

    def start(self, name, argv):
        """Starts a process; its output goes to a log file, whose path is returned with it."""
        log = self.logs / f"{name}.log"
        try:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [str(part) for part in argv],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=environment(),
                )
        except OSError as error:
            raise Trouble(f"{name} does not start: {error}") from error
        self.running.append(process)
        return process, log

    def agent(self, name, argv):
        """Starts an agent and returns the URL of its ready line."""
        process, log = self.start(name, argv)
        deadline = time.monotonic() + READY_LIMIT
        while time.monotonic() < deadline and process.poll() is None:
            for line in log.read_text(errors="replace").splitlines():
                if line.startswith("ready "):
                    return line.removeprefix("ready ").strip()
            time.sleep(0.05)
        raise Trouble(f"agent {name} is not ready:\n{tail(log)}")

    def stdio_gateway(self, config, name="gateway"):
        """Writes a configuration. Returns the command of a gateway that serves its standard streams with it."""
        file = self.logs / f"{name}.yaml"
        file.write_text(json.dumps(config, indent=2))  # JSON is YAML
        return [str(gateway_binary()), "stdio", "--config", str(file)]

    def gateway(self, config, name="gateway", **listener):
        """Starts the gateway with this configuration plus its addresses. Returns its port."""
        binary = gateway_binary()
        for _ in range(3):  # someone else may take a port between our look and its bind
            port, admin = free_ports(2)
            whole = {
                "listeners": [{"address": f"127.0.0.1:{port}", **listener}],
                "admin": {"address": f"127.0.0.1:{admin}"},
                **config,
            }
            file = self.logs / f"{name}.yaml"
            written = json.dumps(whole, indent=2)  # JSON is YAML
            file.write_text(written.replace(OWN_URL, f"http://127.0.0.1:{port}"))
            process, log = self.start(name, [binary, "serve", "--config", file])
            if wait_ready(process, f"http://127.0.0.1:{admin}/readyz"):
                print(f"gateway: {binary} on port {port}", flush=True)
                return port
            if "in use" not in log.read_text(errors="replace").lower():
                break
        raise Trouble(f"the gateway is not ready:\n{tail(log)}")


def wait_ready(process, url):
    deadline = time.monotonic() + READY_LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2) as response:
                if response.status == 200:
                    return True
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.1)
    return False


def tail(log, lines=40):
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
