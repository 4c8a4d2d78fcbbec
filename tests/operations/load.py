"""What the judges in this folder share: an agent that works as long as it is told, an HTTP client that counts, and
gateways as child processes of which the log is counted. Standard library only, one event loop."""

import asyncio
import collections
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import time
import urllib.request
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODERN, LEGACY = "2026-07-28", "2025-11-25"
TASKS = "io.modelcontextprotocol/tasks"
SEAL_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
FINISHED = ("TASK_STATE_COMPLETED", "TASK_STATE_CANCELED", "TASK_STATE_FAILED")


def binary():
    """The gateway under test: `GATEWAY`, or else the debug build, made now if it is missing."""
    if given := os.environ.get("GATEWAY"):
        return given
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "mcp-a2a-gateway"
    if not target.exists():
        subprocess.run(["cargo", "build", "--locked", "--bin", "mcp-a2a-gateway"], cwd=ROOT, check=True)
    return str(target)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# -- HTTP -----------------------------------------------------------------------------------------------------------


class Failed(Exception):
    """A request did not get the answer that it must get."""


class Response:
    """The head of a response, and its body as it arrives."""

    def __init__(self, status, headers, reader):
        self.status, self.headers, self.reader = status, headers, reader
        self.left = int(headers.get("content-length", 0))
        self.chunked = "chunked" in headers.get("transfer-encoding", "")
        self.ended = not self.chunked and self.left == 0

    async def piece(self):
        """The next bytes; empty at the proper end. Fails if the connection ends before."""
        if self.ended:
            return b""
        if not self.chunked:
            data = await self.reader.readexactly(self.left)
            self.ended = True
            return data
        size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
        data = await self.reader.readexactly(size + 2)
        self.ended = size == 0
        return data[:-2]

    async def body(self):
        data = b""
        while piece := await self.piece():
            data += piece
        return data

    async def events(self):
        """The events of a stream, as pairs of fields and data."""
        buffer = b""
        while piece := await self.piece():
            buffer += piece
            while b"\n\n" in buffer:
                event, buffer = buffer.split(b"\n\n", 1)
                fields = {}
                for line in event.decode().split("\n"):
                    name, _, value = line.partition(":")
                    if name:
                        fields[name] = fields.get(name, "") + value.removeprefix(" ")
                yield fields

    async def message(self):
        """The JSON-RPC response, from a body or as the last message of a stream."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            last = None
            async for fields in self.events():
                if data := fields.get("data"):
                    parsed = json.loads(data)
                    last = parsed if "id" in parsed and "method" not in parsed else last
            if last is None:
                raise Failed("a stream ended without a response")
            return last
        body = await self.body()
        return json.loads(body) if body else None


class Client:
    """Requests to one address, over connections that are kept."""

    def __init__(self, port, counted=None):
        self.port, self.idle, self.ids = port, [], itertools.count(1)
        self.counted = counted if counted is not None else collections.Counter()

    async def connect(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        return reader, writer

    @staticmethod
    def head(method, path, headers, body):
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    async def send(self, method, path, headers, body=b""):
        """Sends a request; the connection comes back with `release`, once the body is read."""
        while True:
            connection, kept = (self.idle.pop(), True) if self.idle else (await self.connect(), False)
            reader, writer = connection
            if kept and (reader.at_eof() or writer.is_closing()):
                writer.close()
                continue
            break
        self.counted["sent"] += 1
        writer.write(self.head(method, path, headers, body))
        try:
            await writer.drain()
            raw = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            writer.close()
            raise Failed(f"{method} {path}: no response ({error!r}, kept={kept})") from error
        status, *lines = raw.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        response = Response(int(status.split()[1]), headers, reader)
        response.connection = connection
        return response

    def release(self, response):
        if response.ended and response.headers.get("connection", "").lower() != "close":
            self.idle.append(response.connection)
        else:
            response.connection[1].close()

    def close(self):
        for _, writer in self.idle:
            writer.close()
        self.idle.clear()

    async def exchange(self, method, path, headers, body=b""):
        """Sends a request and reads the whole response; yields status, headers and JSON."""
        response = await self.send(method, path, headers, body)
        try:
            message = await response.message()
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            response.connection[1].close()
            raise Failed(f"{method} {path}: the response was cut") from error
        self.release(response)
        return response, message

    def rpc(self, method, params):
        return json.dumps({"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}).encode()

    def modern(self, method, params, capabilities=None):
        """Headers and body of a request of the modern era."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": capabilities or {},
            "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
        }
        params = {**params, "_meta": {**meta, **params.get("_meta", {})}}
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": method,
        }
        if name := params.get("name") or params.get("uri") or params.get("taskId"):
            headers["Mcp-Name"] = name
        return headers, self.rpc(method, params)

    async def modern_call(self, method, params, capabilities=None, path="/mcp"):
        """The JSON-RPC message that answers a request of the modern era."""
        headers, body = self.modern(method, params, capabilities)
        response, message = await self.exchange("POST", path, headers, body)
        if message is None:
            raise Failed(f"{method}: HTTP {response.status} without a body")
        return message

    def legacy_headers(self, session=None):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if session:
            headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
        return headers

    async def legacy_call(self, method, params, session=None):
        return await self.exchange("POST", "/mcp", self.legacy_headers(session), self.rpc(method, params))

    async def initialize(self):
        """The id of a new session."""
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}
        response, _ = await self.legacy_call("initialize", params)
        session = response.headers.get("mcp-session-id")
        if response.status != 200 or not session:
            raise Failed(f"initialize: HTTP {response.status}")
        body = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
        await self.exchange("POST", "/mcp", self.legacy_headers(session), body)
        return session

    async def disconnect_abruptly(self, method, path, headers, body=b""):
        """Sends a request, reads the head of the response, and resets the connection."""
        reader, writer = await self.connect()
        try:
            self.counted["sent"] += 1
            writer.write(self.head(method, path, headers, body))
            await reader.readuntil(b"\r\n\r\n")
        finally:
            reset(writer)


def reset(writer):
    """Closes a connection by a reset, without the end that a client sends otherwise."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


# -- the agent ------------------------------------------------------------------------------------------------------


class Agent:
    """An A2A 1.0 agent. A message `work N` is a task that takes N seconds and ends with the artifact `done N`; any
    other is answered at once. Tasks outlive the connections that began them."""

    def __init__(self):
        self.tasks, self.server, self.port, self.open = {}, None, None, set()

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.port or 0, backlog=1024)
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self):
        """Refuses connections, and cuts those that are open."""
        self.server.close()
        for writer in list(self.open):
            reset(writer)
        await asyncio.sleep(0)

    def card(self):
        interface = {"url": f"http://127.0.0.1:{self.port}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        skill = {"id": "work", "name": "work", "description": "Works", "tags": ["work"]}
        return {
            "name": "Worker", "description": "Works as long as it is told", "version": "1",
            "supportedInterfaces": [interface], "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [skill],
        }

    async def serve(self, reader, writer):
        self.open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"content-length: *(\d+)", head, re.I)
                body = await reader.readexactly(int(length[1])) if length else b""
                if head.startswith("GET"):
                    self.reply(writer, self.card())
                else:
                    await self.answer(json.loads(body), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()

    @staticmethod
    def reply(writer, value):
        body = json.dumps(value).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def state(self, task):
        begun, seconds, cancelled = self.tasks[task]
        if cancelled:
            return "TASK_STATE_CANCELED"
        return "TASK_STATE_COMPLETED" if time.monotonic() >= begun + seconds else "TASK_STATE_WORKING"

    def task(self, task):
        seen = {"id": task, "contextId": f"c-{task}", "status": {"state": self.state(task)}}
        if self.state(task) == "TASK_STATE_COMPLETED":
            seen["artifacts"] = [{"artifactId": "a", "name": "a", "parts": [{"text": f"done {self.tasks[task][1]:g}"}]}]
        return seen

    def begin(self, params):
        """The task of a message, or the answer to it."""
        text = params["message"]["parts"][0].get("text", "")
        if not text.startswith("work "):
            return None, {"message": {"messageId": str(uuid.uuid4()), "role": "ROLE_AGENT", "parts": [{"text": text}]}}
        task = str(uuid.uuid4())
        self.tasks[task] = [time.monotonic(), float(text.split()[1]), False]
        return task, None

    async def answer(self, request, writer):
        method, params, number = request["method"], request.get("params", {}), request["id"]
        if method in ("SendStreamingMessage", "SubscribeToTask"):
            return await self.stream(method, params, number, writer)
        if method == "SendMessage":
            task, message = self.begin(params)
            result = message or {"task": self.task(task)}
        else:
            task = params.get("id", "")
            if task not in self.tasks:
                error = {"code": -32001, "message": "Task not found"}
                return self.reply(writer, {"jsonrpc": "2.0", "id": number, "error": error})
            if method == "CancelTask":
                self.tasks[task][2] = True
            result = self.task(task)
        self.reply(writer, {"jsonrpc": "2.0", "id": number, "result": result})

    async def stream(self, method, params, number, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

        async def event(result):
            data = b"data: " + json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode() + b"\n\n"
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()

        task, message = (params.get("id"), None) if method == "SubscribeToTask" else self.begin(params)
        if message or task not in self.tasks:
            await event(message or {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "gone"}]}})
        else:
            await event({"task": self.task(task)})
            while self.state(task) == "TASK_STATE_WORKING":
                begun, seconds, _ = self.tasks[task]
                await asyncio.sleep(min(0.5, max(0.01, begun + seconds - time.monotonic())))
                if self.state(task) == "TASK_STATE_WORKING":
                    status = {"taskId": task, "contextId": f"c-{task}", "status": {"state": "TASK_STATE_WORKING"}}
                    await event({"statusUpdate": status})
            await event({"task": self.task(task)})
        writer.write(b"0\r\n\r\n")


# -- the gateway ----------------------------------------------------------------------------------------------------


class Gateway:
    """A gateway as a child process. Counts the lines of its access log, and keeps those of level WARN and ERROR."""

    def __init__(self, folder, config, *arguments):
        self.folder, self.config = pathlib.Path(folder), config
        self.port, self.admin = config["listeners"][0]["address"], config["admin"]["address"]
        self.port, self.admin = (int(address.rsplit(":", 1)[1]) for address in (self.port, self.admin))
        self.file = self.folder / "gateway.json"
        self.file.write_text(json.dumps(config))
        self.arguments, self.access, self.loud, self.process = arguments, 0, [], None

    async def start(self):
        environment = {name: value for name, value in os.environ.items() if name != "RUST_LOG"}
        self.process = await asyncio.create_subprocess_exec(
            binary(), "serve", "--config", str(self.file), *self.arguments, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE, env=environment, limit=1 << 20,
        )
        self.reader = asyncio.create_task(self.read())
        return self

    async def read(self):
        with open(self.folder / f"log-{self.process.pid}", "wb") as log:
            async for line in self.process.stderr:
                log.write(line)
                if b'"target":"access"' in line:
                    self.access += 1
                elif b'"level":"WARN"' in line or b'"level":"ERROR"' in line:
                    self.loud.append(line.decode().strip())

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=10) as response:
            return response.read().decode()

    async def page(self, path):
        return await asyncio.to_thread(self.get, path)

    async def ready(self, within=60):
        end = time.monotonic() + within
        while time.monotonic() < end:
            if self.process.returncode is not None:
                raise SystemExit(f"the gateway ended with {self.process.returncode}; see {self.folder}")
            try:
                await self.page("/readyz")
                return self
            except OSError:
                await asyncio.sleep(0.05)
        raise SystemExit("the gateway was not ready in time")

    def signal(self, number):
        self.process.send_signal(number)

    async def ended(self, within=60):
        await asyncio.wait_for(self.process.wait(), within)
        await self.reader
        return self.process.returncode

    async def kill(self):
        if self.process and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def memory(self):
        """Resident memory of the process, and the part of it that it allocated, in KiB. The rest is code, which is loaded with its
        first use, and which the kernel can drop."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return tuple(int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "RssAnon"))


def sum_of(metrics, name):
    """The sum of a metric over its labels."""
    lines = (line for line in metrics.splitlines() if re.match(rf"mcp_a2a_gateway_{name}[ {{]", line))
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def text_of(result):
    return " ".join(part.get("text", "") for part in result.get("content", []))


class Verdicts:
    """The table of the checks, and the last line."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    def check(self, name, holds, seen):
        self.passed, self.failed = self.passed + bool(holds), self.failed + (not holds)
        print(f"{'ok  ' if holds else 'FAIL'}  {name:44}  {seen}", flush=True)

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed")
        raise SystemExit(1 if self.failed else 0)
