"""An A2A 0.1 agent, written by hand: no registry has an SDK of that version.

It follows the protocol's own reference server of that time, the Python one: its JSON and its card (that says
nothing of a version), status 400 for what it cannot read, no `tasks/resubscribe`, a webhook that must echo a
token before it is taken. In one thing it follows the JavaScript one: work can be canceled, as the document of
0.1 has it. What 0.1 cannot say is said as its agents did: a task is not rejected but fails, and who must sign in
is asked by `input-required`. What it does is in `behaviour.py`.
"""

import asyncio
import datetime
import json
import uuid

import httpx
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import behaviour
import serving

METHODS = (
    "tasks/send",
    "tasks/sendSubscribe",
    "tasks/get",
    "tasks/cancel",
    "tasks/resubscribe",
    "tasks/pushNotification/set",
    "tasks/pushNotification/get",
)
OVER = ("completed", "failed", "canceled")
TASKS = {}  # by id


class Refused(Exception):
    def __init__(self, code, message):
        self.error = {"code": code, "message": message}


def text_part(text):
    return {"type": "text", "text": text}


class Task:
    """A task, and who listens to it. Its turns run on when nobody does."""

    def __init__(self, task, session):
        self.id = task
        self.session = session
        self.history = []
        self.artifacts = []
        self.listeners = []
        self.webhook = None
        self.turn = None
        self.status = {"state": "submitted", "timestamp": now()}

    def written(self, length):
        whole = {"id": self.id, "sessionId": self.session, "status": self.status}
        if self.artifacts:
            whole["artifacts"] = self.artifacts
        return {**whole, "history": self.history[-length:] if length else []}

    async def tell(self, state, *parts):
        if self.status["state"] in OVER:
            return
        message = {"message": {"role": "agent", "parts": list(parts)}} if parts else {}
        self.status = {"state": state, **message, "timestamp": now()}
        final = state in OVER or state == "input-required"
        await self.spread({"id": self.id, "status": self.status, "final": final})

    async def give(self, name, part, first=True, last=True):
        if first:
            self.artifacts = [{"name": name, "parts": [part], "index": 0}]
        else:
            self.artifacts[0]["parts"].append(part)
        piece = {"name": name, "parts": [part], "index": 0}
        if not (first and last):
            piece |= {"append": not first, "lastChunk": last}
        await self.spread({"id": self.id, "artifact": piece})

    async def spread(self, event):
        for listener in self.listeners:
            listener.put_nowait(event)
        if self.webhook and "status" in event:
            await notify(self.webhook, self.written(0))

    def hear(self, message):
        self.history.append(message)
        text = "\n".join(part["text"] for part in message["parts"] if part.get("type") == "text")
        skill, said = behaviour.hear(self.id, message.get("metadata"), text)
        self.turn = asyncio.create_task(self.play(skill, said))

    async def play(self, skill, said):
        for kind, *rest in behaviour.steps(skill, said):
            if kind == "pause":
                await asyncio.sleep(rest[0])
            elif kind == "working":
                await self.tell("working", text_part(rest[0]))
            elif kind == "chunk":
                await self.give("answer", text_part(rest[0]), *rest[1:])
            elif kind == "ids":
                await self.give("answer", text_part(f"{self.id} {self.session}"))
            elif kind == "data":
                await self.give("data", {"type": "data", "data": rest[0]})
            elif kind == "ask":
                await self.tell("input-required", text_part(rest[0]))
            elif kind == "authorize":
                if len(said) > 1:  # asked before, and this is the answer
                    continue
                page = {"type": "file", "file": {"name": "Sign in", "mimeType": "text/html", "uri": rest[1]}}
                return await self.tell("input-required", text_part(rest[0]), page)
            elif kind in ("fail", "reject"):
                await self.tell("failed", text_part(rest[0]))
            else:
                await self.tell("completed")

    async def events(self):
        """What happens from now on, to the end of the turn."""
        listener = asyncio.Queue()
        self.listeners.append(listener)
        try:
            while True:
                event = await listener.get()
                yield event
                if event.get("final"):
                    return
        finally:
            self.listeners.remove(listener)


def now():
    return datetime.datetime.now().isoformat()


async def notify(webhook, body):
    headers = {"X-A2A-Notification-Token": webhook["token"]} if webhook.get("token") else {}
    try:
        async with httpx.AsyncClient() as client:
            await client.post(webhook["url"], json=body, headers=headers)
    except httpx.HTTPError as error:
        print(f"no notification: {error}", flush=True)


async def echoes(url):
    """Whether the webhook answers with the token that it is asked to echo."""
    token = str(uuid.uuid4())
    async with httpx.AsyncClient() as client:
        answer = await client.get(url, params={"validationToken": token})
    return answer.text == token


def known(params):
    task = TASKS.get(params["id"])
    if task is None:
        raise Refused(-32001, "Task not found")
    return task


async def begun(params):
    """The task of a message, which hears it; a new one when its id is new."""
    task = TASKS.setdefault(params["id"], Task(params["id"], params.get("sessionId") or uuid.uuid4().hex))
    if task.turn is not None and task.status["state"] != "input-required":
        raise Refused(-32602, f"Task {task.id} cannot be continued")
    await take_webhook(task, params.get("pushNotification"))
    return task


async def take_webhook(task, webhook):
    if webhook is None:
        return
    if not await echoes(webhook["url"]):
        raise Refused(-32602, "Push notification URL is invalid")
    task.webhook = webhook


async def send(params):
    task = await begun(params)
    events = task.events()
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)  # the listener stands before the turn begins
    task.hear(params["message"])
    await waiting
    async for _ in events:
        pass
    return task.written(params.get("historyLength"))


async def send_subscribe(request, params):
    task = await begun(params)

    async def stream():
        events = task.events()
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        task.hear(params["message"])
        first = await waiting
        yield line(request, first)
        async for event in events if not first.get("final") else nothing():
            yield line(request, event)

    return EventSourceResponse(stream())


async def nothing():
    return
    yield


def line(request, event):
    return {"data": json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": event})}


async def cancel(params):
    task = known(params)
    if task.status["state"] in OVER:
        raise Refused(-32002, "Task cannot be canceled")
    behaviour.cancel(task.id)
    task.turn.cancel()
    await task.tell("canceled")
    return task.written(0)


async def answer(method, params):
    if method == "tasks/send":
        return await send(params)
    if method == "tasks/get":
        return known(params).written(params.get("historyLength"))
    if method == "tasks/cancel":
        return await cancel(params)
    if method == "tasks/resubscribe":
        raise Refused(-32004, "This operation is not supported")
    task = known(params)
    if method == "tasks/pushNotification/set":
        await take_webhook(task, params["pushNotificationConfig"])
    if task.webhook is None:
        raise Refused(-32602, "No push notification is set")
    return {"id": task.id, "pushNotificationConfig": task.webhook}


def unreadable(code, message, data=None):
    error = {"code": code, "message": message, **({"data": data} if data else {})}
    return JSONResponse({"jsonrpc": "2.0", "error": error}, status_code=400)


def missing(method, params):
    """The member that a request of this method lacks."""
    wanted = ["id", "message"] if method in ("tasks/send", "tasks/sendSubscribe") else ["id"]
    return next((name for name in wanted if not isinstance(params, dict) or name not in params), None)


async def rpc(http):
    try:
        request = json.loads(await http.body())
    except ValueError:
        return unreadable(-32700, "Invalid JSON payload")
    method = request.get("method") if isinstance(request, dict) else None
    if method not in METHODS:
        return unreadable(-32600, "Request payload validation error", f"method is none of {METHODS}")
    params = request.get("params")
    if lacking := missing(method, params):
        return unreadable(-32600, "Request payload validation error", f"{method}: {lacking} is missing")
    head = {"jsonrpc": "2.0", "id": request.get("id")}
    try:
        if method == "tasks/sendSubscribe":
            return await send_subscribe(request, params)
        return JSONResponse({**head, "result": await answer(method, params)})
    except Refused as refused:
        return JSONResponse({**head, "error": refused.error})


def card(url):
    return {
        "name": "Python 0.1 agent",
        "description": "The interop agent of A2A 0.1, without an SDK",
        "url": url,
        "version": "1.0.0",
        "capabilities": {"streaming": True, "pushNotifications": True, "stateTransitionHistory": False},
        "defaultInputModes": ["text"],
        "defaultOutputModes": ["text"],
        "skills": [
            {"id": skill, "name": skill, "description": about, "tags": ["interop"]}
            for skill, about in behaviour.SKILLS.items()
        ],
    }


def main():
    listener, url = serving.listen()

    async def show(_):
        return JSONResponse(card(url))

    routes = [Route("/", rpc, methods=["POST"]), Route("/.well-known/agent.json", show)]
    serving.serve(Starlette(routes=routes), listener, url)


if __name__ == "__main__":
    main()
