"""The official Python client of A2A 0.3, `a2a-sdk` 0.3.26, as `face_checks.py` needs it.

With `--grpc` as its first argument it speaks gRPC, else JSON-RPC.
"""

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


NAMED_ERRORS = {
    "TaskNotFoundError": -32001,
    "TaskNotCancelableError": -32002,
    "PushNotificationNotSupportedError": -32003,
    "UnsupportedOperationError": -32004,
}


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


def factory(config):
    """Returns a factory with every transport that the configuration names."""
    made = ClientFactory(config)
    if config.grpc_channel_factory:
        from a2a.client.transports.grpc import GrpcTransport

        made.register("GRPC", GrpcTransport.create)
    return made


class Client:
    def __init__(self, card, **config):
        self.shown = card
        self.once = factory(ClientConfig(streaming=False, **config)).create(card)
        self.live = factory(ClientConfig(**config)).create(card)

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

    def __init__(self, over_grpc):
        self.over_grpc = over_grpc
        if over_grpc:
            import grpc.aio

            self.errors = (*self.errors, grpc.aio.AioRpcError)
            self.lacks = {**self.lacks, "list": "A2A 0.3 has no list of tasks", "own_list": "A2A 0.3 has no list of tasks"}
            self.lacks["extended"] = "this SDK's gRPC server has one card for all"

    async def connect(self, url, headers):
        http_client = httpx.AsyncClient(headers=headers, timeout=90)
        config = {"httpx_client": http_client}
        if self.over_grpc:
            import grpc_channel

            channel = grpc_channel.factory(headers, url)
            config.update(supported_transports=["GRPC"], grpc_channel_factory=channel)
        return Client(await A2ACardResolver(http_client, url).get_agent_card(), **config)

    def code(self, error):
        if self.over_grpc and isinstance(error, self.errors[-1]):
            # Servers of 0.3 put the name of the error before its text.
            return NAMED_ERRORS.get(error.details().split(":")[0])
        return getattr(getattr(error, "error", None), "code", None)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--grpc"]
    sys.exit(asyncio.run(face_checks.run(Sdk("--grpc" in sys.argv), *words)))
