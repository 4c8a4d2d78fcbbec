"""What a Python A2A client must be able to do with one agent, directly or through the gateway's A2A face.

Not a client by itself: `face_py03.py` and `face_py1.py` each bring an SDK, and `face_checks.mjs` makes the same
checks in JavaScript. Run as CLIENT MODE URL AGENT [KEY OTHER_KEY] with a mode of `direct` (to the agent, which
proves the script), `plain` (through the gateway, ids as they are) or `keys` (two callers, sealed ids).
Prints one line per check and exits 1 if any failed. `facts.json` has what an agent cannot, with the reason;
each is asserted here.
"""

import asyncio
import contextlib
import http.server
import json
import pathlib
import queue
import threading
import traceback
import urllib.parse
import uuid

import httpx

LIMIT = 60  # seconds for one check
ECHOED = "Hello, 世界 🌊"
STREAMED = "Grüße, streamed in several pieces"
CHUNKS = "".join(f"{index};" for index in range(1000))
NOT_FOUND = {-32001}
NOT_CANCELABLE = {-32002}
UNSUPPORTED = {-32601, -32004, -32003}
FACTS = json.loads((pathlib.Path(__file__).parent / "facts.json").read_text())


def expect(condition, why):
    if not condition:
        raise AssertionError(why)


class Webhook:
    """The client's own webhook: what was delivered to it, and with which token."""

    def __enter__(self):
        heard = self.heard = queue.SimpleQueue()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # agents of 0.1 have their token echoed first
                self.answer(self.path.partition("validationToken=")[2].encode())

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                # The Rust SDK writes the name without X.
                names = ("X-A2A-Notification-Token", "A2A-Notification-Token")
                token = next((self.headers[name] for name in names if name in self.headers), None)
                heard.put((token, json.loads(body)))
                self.answer(b"")

            def answer(self, body):
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/heard"
        return self

    def __exit__(self, *_):
        self.server.shutdown()

    async def told_of_end(self, task):
        """Waits for the notification that this task is over; every one must name it and have the token."""
        while True:
            token, body = await asyncio.to_thread(self.heard.get, True, LIMIT)
            expect(token == "interop-token", f"token: {token}")
            expect(json.dumps(task) in json.dumps(body), f"{task} is not in {body}")
            if "completed" in json.dumps(body).lower():
                return


class Checks:
    """The checks; `connect(url, headers)` of an SDK gives what they work with, see `face_py1.py`."""

    def __init__(self, sdk, mode, url, agent, *keys):
        self.sdk = sdk
        self.mode = mode
        self.url = url
        self.agent = agent
        self.facts = FACTS[agent]
        self.keys = keys

    async def start(self):
        self.a = await self.sdk.connect(self.url, self.headers(0))
        if self.keys:
            self.b = await self.sdk.connect(self.url, self.headers(1))

    def headers(self, caller):
        return {"x-api-key": self.keys[caller]} if self.keys else {}

    def is_own(self, url):
        """Whether a URL of a card is below that of the agent, or an address for gRPC, which has no path."""
        base = self.url if self.mode == "direct" else self.url.rstrip("/")
        return url.startswith(base) or urllib.parse.urlsplit(url if "://" in url else f"//{url}").path in ("", "/")

    async def refused(self, action, *codes):
        try:
            result = await action
        except self.sdk.errors as error:
            code = self.sdk.code(error)
            expect(any(code in wanted for wanted in codes), f"{code}: {error!r}")
            return
        raise AssertionError(f"not refused: {result}")

    async def card(self):
        card = self.a.card()
        expect(card["urls"] and all(self.is_own(url) for url in card["urls"]), card)
        expect({"echo", "work", "ids"} <= set(card["skills"]) and "more" not in card["skills"], card)

    async def send(self):
        task = await self.a.send(f"echo {ECHOED}")
        expect(task["state"] == "completed" and task["text"] == ECHOED, task)

    async def stream(self):
        seen = [event async for event in self.a.stream(f"stream {STREAMED}")]
        words = [event["words"] for event in seen if event["state"] == "working"]
        expect("50 percent done" in words, seen)
        expect(joined(seen) == STREAMED and seen[-1]["state"] == "completed", seen)
        expect(len({event["id"] for event in seen}) == 1, seen)

    async def chunks(self):
        seen = [event async for event in self.a.stream("chunks 1000")]
        expect(joined(seen) == CHUNKS and seen[-1]["state"] == "completed", joined(seen)[:80])

    async def get(self):
        sent = await self.a.send("echo once more")
        got = await self.a.get(sent["id"])
        for member in ("id", "context", "state", "text"):
            expect(got[member] == sent[member] and got[member], f"{member}: {got} is not {sent}")

    async def data(self):
        task = await self.a.send("x", metadata={"skillId": "data"})
        expect(task["data"] == [{"text": "x", "list": [1, 2, 3], "nested": {"ok": True}}], task)

    async def failed(self):
        task = await self.a.send("fail x")
        expect(task["state"] == "failed" and "on purpose" in task["words"], task)

    async def rejected(self):
        task = await self.a.send("reject x")
        wanted = "failed" if "rejected" in self.facts else "rejected"
        expect(task["state"] == wanted and "That is not for me" in task["words"], task)

    async def follow_up(self):
        """A question answered by a plain send, a second one by a stream."""
        asked = await self.a.send("twice paint it")
        expect(asked["state"] == "input-required" and asked["words"] == "Which colour?", asked)
        again = await self.a.send("blue", asked)
        expect(again["state"] == "input-required" and again["words"] == "Which size?", again)
        expect((again["id"], again["context"]) == (asked["id"], asked["context"]), again)
        seen = [event async for event in self.a.stream("large", asked)]
        expect(joined(seen) == "The colour is blue, the size is large", seen)
        expect(seen[-1]["state"] == "completed" and seen[-1]["id"] == asked["id"], seen)

    async def asked_on_stream(self):
        seen = [event async for event in self.a.stream("ask paint it")]
        expect(seen[-1]["state"] == "input-required" and seen[-1]["words"] == "Which colour?", seen)
        done = await self.a.send("green", seen[-1])
        expect(done["state"] == "completed" and "The colour is green" in done["text"], done)

    async def cancel(self):
        words = f"60 {uuid.uuid4()}"
        async with self.under_way(f"work {words}") as task:
            canceled = await self.a.cancel(task["id"])
            expect(canceled["state"] == "canceled" and canceled["id"] == task["id"], canceled)
            got = await self.a.get(task["id"])
            expect(got["state"] == "canceled", got)
            fate = await self.a.send(f"fate {words}")
            expect(fate["text"] == "canceled", fate)

    async def cancel_finished(self):
        task = await self.a.send("echo done")
        if "cancel_finished" in self.facts:
            canceled = await self.a.cancel(task["id"])
            expect(canceled["state"] == "canceled", canceled)
            return
        await self.refused(self.a.cancel(task["id"]), NOT_CANCELABLE)

    async def unknown(self):
        for unknown in (str(uuid.uuid4()), "nobody has this"):
            await self.refused(self.a.get(unknown), NOT_FOUND)
            await self.refused(self.a.cancel(unknown), NOT_FOUND)

    async def list(self):
        if "list" in self.facts:
            await self.refused(self.a.list(), UNSUPPORTED)
            return
        first = await self.a.send("echo one")
        second = await self.a.send("echo two")
        listed = await self.a.list()
        expect({first["id"], second["id"]} <= {task["id"] for task in listed}, listed)
        listed = await self.a.list(first["context"])
        expect([task["id"] for task in listed] == [first["id"]], listed)

    async def resubscribe(self):
        """A second stream of the same task, to its end; the first stays open, since some agents end with it."""
        async with self.under_way("work 4") as task:
            if "resubscribe" in self.facts:
                await self.refused(anext(self.a.resubscribe(task["id"])), UNSUPPORTED)
                return
            seen = [event async for event in self.a.resubscribe(task["id"])]
            expect({event["id"] for event in seen} == {task["id"]}, seen)
            if seen[-1]["state"] != "completed" and "resubscribe_cut" in self.facts:
                ended = await self.a.get(task["id"])
                expect((ended["state"], ended["text"]) == ("completed", "Worked for 4 seconds"), [*seen, ended])
                return
            expect(seen[-1]["state"] == "completed", seen)
            expect("Worked for 4 seconds" in joined(seen), seen)

    async def push(self):
        with Webhook() as webhook:
            async with self.under_way("work 6") as task:
                config = {"task": task["id"], "id": "first", "url": webhook.url, "token": "interop-token"}
                made = await self.a.set_push(config)
                expect(made["url"] == webhook.url and made["task"] == task["id"], made)
                got = await self.a.get_push(task["id"], made["id"] or "first")
                expect(got["url"] == webhook.url and got["task"] == task["id"], got)
                await webhook.told_of_end(task["id"])

    async def push_listed(self):
        async with self.under_way("work 6") as task:
            config = {"task": task["id"], "id": "first", "url": "http://127.0.0.1:9/", "token": "t"}
            if "push_listed" in self.facts:
                # A server that has the route without anything behind it fails, which has no reason by HTTP+JSON; by gRPC
                # it is NOT_FOUND, of which the Rust client makes an unknown task.
                fails = {-32603, -32001, None} if "push_list_fails" in self.facts else set()
                await self.refused(self.a.list_push(task["id"]), UNSUPPORTED | fails)
                await self.refused(self.a.delete_push(task["id"], "first"), UNSUPPORTED | fails)
                return
            await self.a.set_push(config)
            listed = await self.a.list_push(task["id"])
            expect([(one["task"], one["id"], one["url"]) for one in listed] == [(task["id"], "first", config["url"])], listed)
            await self.a.delete_push(task["id"], "first")
            expect(await self.a.list_push(task["id"]) == [], "not deleted")

    async def extended(self):
        card = await self.a.extended()
        expect(("more" in card["skills"]) == ("extended" not in self.facts), card)
        if self.mode != "direct":
            expect(all(self.is_own(url) for url in card["urls"]), card)

    async def ids(self):
        """Whether the client sees the agent's own ids: only where nobody has to prove who it is."""
        task = await self.a.send("ids")
        shown = f"{task['id']} {task['context']}"
        if self.mode == "keys":
            expect(not set(task["text"].split()) & set(shown.split()), f"{shown}: {task['text']}")
        else:
            expect(task["text"] == shown, f"{shown}: {task['text']}")

    async def other_caller(self):
        asked = await self.a.send("ask paint it")
        task = asked["id"]
        await self.refused(self.b.get(task), NOT_FOUND)
        await self.refused(self.b.cancel(task), NOT_FOUND)
        await self.refused(self.b.send("red", asked), NOT_FOUND)
        config = {"task": task, "id": "first", "url": "http://127.0.0.1:9/", "token": "t"}
        await self.refused(self.b.set_push(config), NOT_FOUND)
        done = await self.a.send("blue", asked)
        expect(done["text"] == "The colour is blue", done)

    async def own_list(self):
        if "list" in self.facts:
            return
        mine = await self.a.send("echo mine")
        theirs = await self.b.send("echo theirs")
        expect(mine["id"] in {task["id"] for task in await self.a.list()}, "not in one's own list")
        listed = {task["id"] for task in await self.b.list()}
        expect(theirs["id"] in listed and mine["id"] not in listed, listed)

    async def no_key(self):
        base = self.url.rstrip("/")
        async with httpx.AsyncClient() as http_client:
            card = await http_client.get(f"{base}/.well-known/agent-card.json")
            call = await http_client.post(base, json={"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}})
        expect((card.status_code, call.status_code) == (401, 401), f"{card.status_code} {call.status_code}")

    @contextlib.asynccontextmanager
    async def under_way(self, text):
        """A task whose stream stays open meanwhile."""
        stream = self.a.stream(text)
        event = await anext(stream)
        reading = asyncio.create_task(drain(stream))
        try:
            yield event
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, *self.sdk.errors):
                await reading


async def drain(stream):
    async for _ in stream:
        pass


def joined(events):
    """The text of the artifact that these events made."""
    text = ""
    for event in events:
        if event["text"] is not None:
            text = text + event["text"] if event["append"] else event["text"]
    return text


NAMES = (
    "card",
    "send",
    "stream",
    "chunks",
    "get",
    "data",
    "failed",
    "rejected",
    "follow_up",
    "asked_on_stream",
    "cancel",
    "cancel_finished",
    "unknown",
    "list",
    "resubscribe",
    "push",
    "push_listed",
    "extended",
    "ids",
)
NAMES_OF_KEYS = ("other_caller", "own_list", "no_key")


async def run(sdk, mode, url, agent, *keys):
    checks = Checks(sdk, mode, url, agent, *keys)
    try:
        await checks.start()
    except Exception:
        print("FAILED connect: " + traceback.format_exc()[-1500:].replace("\n", " | "), flush=True)
        return 1
    names = [name for name in NAMES + (NAMES_OF_KEYS if keys else ()) if name not in sdk.lacks]
    for name, reason in sdk.lacks.items():
        print(f"left out {name}: {reason}", flush=True)
    results = await asyncio.gather(*(attempt(checks, name) for name in names))
    return 0 if all(results) else 1


async def attempt(checks, name):
    """Runs a check; they run at once, since each has tasks of its own."""
    try:
        await asyncio.wait_for(getattr(checks, name)(), LIMIT)
        print(f"ok {name}", flush=True)
        return True
    except Exception as error:
        why = traceback.format_exception_only(error)[-1].strip().replace("\n", " | ")
        print(f"FAILED {name}: {why[:900]}", flush=True)
        return False
