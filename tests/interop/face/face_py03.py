"""The official Python client of A2A 0.3, `a2a-sdk` 0.3.26, as `face_checks.py` needs it."""

import asyncio
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
)

import face_checks


def text_of(parts):
    return "".join(part.root.text for part in parts if part.root.kind == "text")


def words_of(status):
    return text_of(status.message.parts) if status.message else ""


def task_of(task):
    artifacts = task.artifacts or []
    parts = [part for artifact in artifacts for part in artifact.parts]
    return {
        "id": task.id,
        "context": task.context_id,
        "state": task.status.state.value,
        "words": words_of(task.status),
        "text": text_of(parts),
        "data": [part.root.data for part in parts if part.root.kind == "data"],
    }


def event_of(task, update):
    event = {"id": task.id, "context": task.context_id, "text": None, "append": False}
    if isinstance(update, TaskArtifactUpdateEvent):
        text = text_of(update.artifact.parts)
        return {**event, "state": None, "words": "", "text": text, "append": bool(update.append)}
    if update is None:
        return {**task_of(task), "append": False, "text": task_of(task)["text"] or None}
    return {**event, "state": update.status.state.value, "words": words_of(update.status)}


def card_of(card):
    interfaces = [interface.url for interface in card.additional_interfaces or []]
    return {"urls": [card.url, *interfaces], "skills": [skill.id for skill in card.skills]}


def push_of(config):
    inner = config.push_notification_config
    return {"task": config.task_id, "id": inner.id, "url": inner.url}


class Client:
    def __init__(self, http_client, card):
        self.shown = card
        self.once = ClientFactory(ClientConfig(streaming=False, httpx_client=http_client)).create(card)
        self.live = ClientFactory(ClientConfig(httpx_client=http_client)).create(card)

    def card(self):
        return card_of(self.shown)

    def message(self, text, turn, metadata):
        ids = {"task_id": turn["id"], "context_id": turn["context"]} if turn else {}
        parts = [Part(root=TextPart(text=text))]
        return Message(role=Role.user, message_id=uuid.uuid4().hex, parts=parts, metadata=metadata, **ids)

    async def send(self, text, turn=None, metadata=None):
        async for task, _ in self.once.send_message(self.message(text, turn, metadata)):
            return task_of(task)

    async def stream(self, text, turn=None):
        async for task, update in self.live.send_message(self.message(text, turn, None)):
            yield event_of(task, update)

    async def get(self, task):
        return task_of(await self.once.get_task(TaskQueryParams(id=task)))

    async def cancel(self, task):
        return task_of(await self.once.cancel_task(TaskIdParams(id=task)))

    async def resubscribe(self, task):
        async for whole, update in self.live.resubscribe(TaskIdParams(id=task)):
            yield event_of(whole, update)

    async def set_push(self, config):
        inner = PushNotificationConfig(id=config["id"], url=config["url"], token=config["token"])
        written = TaskPushNotificationConfig(task_id=config["task"], push_notification_config=inner)
        return push_of(await self.once.set_task_callback(written))

    async def get_push(self, task, config):
        asked = GetTaskPushNotificationConfigParams(id=task, push_notification_config_id=config)
        return push_of(await self.once.get_task_callback(asked))

    async def extended(self):
        return card_of(await self.once.get_card())


class Sdk:
    errors = (A2AClientError, StopAsyncIteration)
    lacks = {
        "list": "JSON-RPC of A2A 0.3 has no list of tasks",
        "own_list": "JSON-RPC of A2A 0.3 has no list of tasks",
        "push_listed": "this client cannot list or delete webhooks",
    }

    async def connect(self, url, headers):
        http_client = httpx.AsyncClient(headers=headers, timeout=90)
        return Client(http_client, await A2ACardResolver(http_client, url).get_agent_card())

    def code(self, error):
        return getattr(getattr(error, "error", None), "code", None)


if __name__ == "__main__":
    sys.exit(asyncio.run(face_checks.run(Sdk(), *sys.argv[1:])))
