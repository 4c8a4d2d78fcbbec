"""The official Rust client of A2A 1.0 over gRPC, `a2a-grpc` 0.3.11, as `face_checks.py` needs it.

The SDK is in a process of its own, `a2a-rs client`, which is the first argument: requests to it and its answers are lines of JSON.
"""

import asyncio
import itertools
import json
import sys
import uuid

import httpx

import face_checks

LONGEST_LINE = 1 << 24


class RustError(Exception):
    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


def text_of(parts):
    return "".join(part.get("text", "") for part in parts)


def words_of(status):
    return text_of(status.get("message", {}).get("parts", []))


def state_of(status):
    return status["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")


def task_of(task):
    parts = [part for artifact in task.get("artifacts", []) for part in artifact["parts"]]
    return {
        "id": task["id"],
        "context": task["contextId"],
        "state": state_of(task["status"]),
        "words": words_of(task["status"]),
        "text": text_of(parts),
        "data": [part["data"] for part in parts if "data" in part],
    }


def event_of(event):
    if "task" in event:
        task = task_of(event["task"])
        return {**task, "text": task["text"] or None, "append": False}
    (kind, update), *_ = event.items()
    told = {"id": update["taskId"], "context": update["contextId"], "text": None, "append": False}
    if kind == "artifactUpdate":
        text = text_of(update["artifact"]["parts"])
        return {**told, "state": None, "words": "", "text": text, "append": update.get("append", False)}
    return {**told, "state": state_of(update["status"]), "words": words_of(update["status"])}


def card_of(card):
    urls = [interface["url"] for interface in card["supportedInterfaces"]]
    return {"urls": urls, "skills": [skill["id"] for skill in card["skills"]]}


def push_of(config):
    return {"task": config["taskId"], "id": config.get("id"), "url": config["url"]}


class Client:
    def __init__(self, card, process):
        self.shown = card
        self.process = process
        self.ids = itertools.count()
        self.waiting = {}
        self.reading = asyncio.create_task(self.read())

    async def read(self):
        """Passes each line on to the request that it belongs to."""
        async for line in self.process.stdout:
            said = json.loads(line)
            self.waiting[said["id"]].put_nowait(said)
        for queue in self.waiting.values():
            queue.put_nowait({"code": None, "error": "the process of the client has ended"})

    async def lines(self, verb, request):
        number = next(self.ids)
        queue = self.waiting[number] = asyncio.Queue()
        asked = {"id": number, "verb": verb, "request": request}
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        while True:
            said = await queue.get()
            if "error" in said:
                raise RustError(said["code"], said["error"])
            yield said
            if "result" in said:
                return

    async def ask(self, verb, request):
        async for said in self.lines(verb, request):
            if "result" in said:
                return said["result"]

    async def events(self, verb, request):
        async for said in self.lines(verb, request):
            if "item" in said:
                yield event_of(said["item"])

    def card(self):
        return card_of(self.shown)

    def message(self, text, turn, metadata):
        ids = {"taskId": turn["id"], "contextId": turn["context"]} if turn else {}
        more = {"metadata": metadata} if metadata else {}
        message = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}], **ids, **more}
        return {"message": message}

    async def send(self, text, turn=None, metadata=None):
        return task_of((await self.ask("send", self.message(text, turn, metadata)))["task"])

    async def stream(self, text, turn=None):
        async for event in self.events("stream", self.message(text, turn, None)):
            yield event

    async def get(self, task):
        return task_of(await self.ask("get", {"id": task}))

    async def cancel(self, task):
        return task_of(await self.ask("cancel", {"id": task}))

    async def list(self, context=None):
        asked, tasks = {"pageSize": 100, **({"contextId": context} if context else {})}, []
        while True:
            listed = await self.ask("list", asked)
            tasks += [task_of(task) for task in listed["tasks"]]
            if not listed.get("nextPageToken"):
                return tasks
            asked["pageToken"] = listed["nextPageToken"]

    async def resubscribe(self, task):
        async for event in self.events("resubscribe", {"id": task}):
            yield event

    async def set_push(self, config):
        written = {"taskId": config["task"], "id": config["id"], "url": config["url"], "token": config["token"]}
        return push_of(await self.ask("set_push", written))

    async def get_push(self, task, config):
        return push_of(await self.ask("get_push", {"taskId": task, "id": config}))

    async def list_push(self, task):
        return [push_of(one) for one in (await self.ask("list_push", {"taskId": task})).get("configs", [])]

    async def delete_push(self, task, config):
        await self.ask("delete_push", {"taskId": task, "id": config})

    async def extended(self):
        """As the other official clients do it: only an agent that has the card is asked for it."""
        if not self.shown["capabilities"].get("extendedAgentCard"):
            return self.card()
        return card_of(await self.ask("extended", {}))


class Sdk:
    errors = (RustError, StopAsyncIteration)
    lacks = {}

    def __init__(self, binary):
        self.binary = binary

    async def connect(self, url, headers):
        async with httpx.AsyncClient(headers=headers) as http_client:
            answer = await http_client.get(f"{url.rstrip('/')}/.well-known/agent-card.json")
            card = answer.raise_for_status().json()
        wanted = ("GRPC", "1.0")
        chosen = next(one for one in card["supportedInterfaces"] if (one["protocolBinding"], one["protocolVersion"]) == wanted)
        words = [chosen["url"], chosen.get("tenant", ""), *(word for pair in headers.items() for word in pair)]
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        process = await asyncio.create_subprocess_exec(self.binary, "client", *words, limit=LONGEST_LINE, **pipes)
        return Client(card, process)

    def code(self, error):
        return getattr(error, "code", None)


if __name__ == "__main__":
    binary, *words = sys.argv[1:]
    sys.exit(asyncio.run(face_checks.run(Sdk(binary), *words)))
