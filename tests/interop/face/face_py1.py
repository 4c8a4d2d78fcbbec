"""The official Python client of A2A 1.0, `a2a-sdk` 1.3.0, as `face_checks.py` needs it.

With `--rest` as its first argument it speaks HTTP+JSON, with `--grpc` gRPC, else JSON-RPC.
"""

import asyncio
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError
from google.protobuf.json_format import MessageToDict

import face_checks


def text_of(parts):
    return "".join(part.text for part in parts if part.WhichOneof("content") == "text")


def state_of(status):
    return TaskState.Name(status.state).removeprefix("TASK_STATE_").lower().replace("_", "-")


def task_of(task):
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    return {
        "id": task.id,
        "context": task.context_id,
        "state": state_of(task.status),
        "words": text_of(task.status.message.parts),
        "text": text_of(parts),
        "data": [MessageToDict(part.data) for part in parts if part.WhichOneof("content") == "data"],
    }


def event_of(response):
    kind = response.WhichOneof("payload")
    if kind == "task":
        task = task_of(response.task)
        return {**task, "text": task["text"] or None, "append": False}
    update = getattr(response, kind)
    event = {"id": update.task_id, "context": update.context_id, "text": None, "append": False}
    if kind == "artifact_update":
        text = text_of(update.artifact.parts)
        return {**event, "state": None, "words": "", "text": text, "append": update.append}
    return {**event, "state": state_of(update.status), "words": text_of(update.status.message.parts)}


def card_of(card):
    urls = [interface.url for interface in card.supported_interfaces]
    return {"urls": urls, "skills": [skill.id for skill in card.skills]}


def push_of(config):
    return {"task": config.task_id, "id": config.id, "url": config.url}


class Client:
    def __init__(self, http_client, card, binding, channel):
        self.shown = card
        bindings = {"supported_protocol_bindings": [binding], "httpx_client": http_client, "grpc_channel_factory": channel}
        self.once = ClientFactory(ClientConfig(streaming=False, **bindings)).create(card)
        self.live = ClientFactory(ClientConfig(**bindings)).create(card)

    def card(self):
        return card_of(self.shown)

    def message(self, text, turn, metadata):
        ids = {"task_id": turn["id"], "context_id": turn["context"]} if turn else {}
        message = Message(role=Role.ROLE_USER, message_id=uuid.uuid4().hex, parts=[Part(text=text)], **ids)
        message.metadata.update(metadata or {})
        return SendMessageRequest(message=message)

    async def send(self, text, turn=None, metadata=None):
        async for response in self.once.send_message(self.message(text, turn, metadata)):
            return task_of(response.task)

    async def stream(self, text, turn=None):
        async for response in self.live.send_message(self.message(text, turn, None)):
            yield event_of(response)

    async def get(self, task):
        return task_of(await self.once.get_task(GetTaskRequest(id=task)))

    async def cancel(self, task):
        return task_of(await self.once.cancel_task(CancelTaskRequest(id=task)))

    async def list(self, context=""):
        tasks, page = [], ""
        while True:
            asked = ListTasksRequest(context_id=context, page_size=100, page_token=page)
            listed = await self.once.list_tasks(asked)
            tasks += [task_of(task) for task in listed.tasks]
            page = listed.next_page_token
            if not page:
                return tasks

    async def resubscribe(self, task):
        async for response in self.live.subscribe(SubscribeToTaskRequest(id=task)):
            yield event_of(response)

    async def set_push(self, config):
        written = TaskPushNotificationConfig(
            task_id=config["task"], id=config["id"], url=config["url"], token=config["token"]
        )
        return push_of(await self.once.create_task_push_notification_config(written))

    async def get_push(self, task, config):
        asked = GetTaskPushNotificationConfigRequest(task_id=task, id=config)
        return push_of(await self.once.get_task_push_notification_config(asked))

    async def list_push(self, task):
        asked = ListTaskPushNotificationConfigsRequest(task_id=task)
        return [push_of(one) for one in (await self.once.list_task_push_notification_configs(asked)).configs]

    async def delete_push(self, task, config):
        asked = DeleteTaskPushNotificationConfigRequest(task_id=task, id=config)
        await self.once.delete_task_push_notification_config(asked)

    async def extended(self):
        return card_of(await self.once.get_extended_agent_card(GetExtendedAgentCardRequest()))


class Sdk:
    errors = (A2AError, A2AClientError, StopAsyncIteration)
    lacks = {}

    def __init__(self, binding):
        self.binding = binding

    async def connect(self, url, headers):
        http_client = httpx.AsyncClient(headers=headers, timeout=90)
        card = await A2ACardResolver(http_client, url).get_agent_card()
        channel = None
        if self.binding == "GRPC":
            import grpc_channel

            channel = grpc_channel.factory(headers, url)
        return Client(http_client, card, self.binding, channel)

    def code(self, error):
        return JSON_RPC_ERROR_CODE_MAP.get(type(error))


if __name__ == "__main__":
    bindings = {"--rest": "HTTP+JSON", "--grpc": "GRPC"}
    binding = next((bindings[word] for word in sys.argv[1:] if word in bindings), "JSONRPC")
    words = [word for word in sys.argv[1:] if word not in bindings]
    sys.exit(asyncio.run(face_checks.run(Sdk(binding), *words)))
