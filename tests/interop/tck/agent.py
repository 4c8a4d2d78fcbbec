"""The agent of the A2A conformance kit: it plays the kit's scenarios, told apart by the beginning of a message's id.

Not a mock: the official Python SDK, `a2a-sdk` 1.3.0, makes every byte on the wire, over JSON-RPC, HTTP+JSON and gRPC.
Not the agent of the other suites: that is `agents/py1.py`.
"""

import asyncio
import pathlib
import sys

import httpx
from a2a.helpers.proto_helpers import new_data_part, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Task, TaskState, TaskStatus
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from starlette.applications import Starlette

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "agents"))
import serving

URL_PART = Part(url="https://example.com/output.txt", filename="output.txt", media_type="text/plain")
FILE_PART = Part(raw=b"tck", filename="output.txt", media_type="text/plain")
# What follows the beginning of the task: artifacts (parts, appended), seconds of waiting, the state of the end.
# The longest beginning that fits is played.
SCENARIOS = {
    "tck-artifact-text": [[new_text_part("Generated text content")], "completed"],
    "tck-artifact-file": [[FILE_PART], "completed"],
    "tck-artifact-file-url": [[URL_PART], "completed"],
    "tck-artifact-data": [[new_data_part({"key": "value", "count": 42})], "completed"],
    "tck-input-required": ["input_required"],
    "tck-reject-task": ["rejected"],
    "tck-stream-001": ["working", [new_text_part("Stream hello from TCK")], "completed"],
    "tck-stream-002": ["completed"],
    "tck-stream-003": ["working", [new_text_part("Stream task lifecycle")], "completed"],
    "tck-stream-ordering-001": ["working", [new_text_part("Ordered output")], "completed"],
    "tck-stream-artifact-text": ["working", [new_text_part("Streamed text content")], "completed"],
    "tck-stream-artifact-file": ["working", [FILE_PART], "completed"],
    "tck-stream-artifact-chunked": ["working", ("chunk-1 ", False), ("chunk-2", True), "completed"],
    "test-resubscribe-message-id": ["working", 4, "completed"],
}


def scenario(message):
    fitting = [begin for begin in SCENARIOS if message.startswith(begin)]
    return SCENARIOS[max(fitting, key=len)] if fitting else None


class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.message.message_id.startswith("tck-message-response"):
            await event_queue.enqueue_event(updater.new_agent_message([new_text_part("Direct message response")]))
            return
        if context.current_task is None:
            submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            ids = {"id": context.task_id, "context_id": context.context_id}
            await event_queue.enqueue_event(Task(**ids, status=submitted, history=[context.message]))
        steps = scenario(context.message.message_id)
        if steps is None:
            await updater.complete(updater.new_agent_message([new_text_part("Hello from TCK")]))
            return
        for step in steps:
            await self.act(updater, step)

    async def act(self, updater, step):
        if isinstance(step, list):
            await updater.add_artifact(step)
        elif isinstance(step, tuple):
            text, last = step
            await updater.add_artifact(
                [new_text_part(text)], artifact_id="chunks", append=last, last_chunk=last
            )
        elif isinstance(step, int):
            await asyncio.sleep(step)
        else:
            await updater.update_status(TaskState.Value(f"TASK_STATE_{step.upper()}"))

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(url, address, *skills):
    return AgentCard(
        name="Conformance agent",
        description="Plays the scenarios of the A2A conformance kit on a2a-sdk 1.3",
        version="1.0.0",
        supported_interfaces=[
            AgentInterface(url=at, protocol_binding=binding, protocol_version="1.0")
            for binding, at in (("JSONRPC", url), ("HTTP+JSON", url), ("GRPC", address))
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[AgentSkill(id=skill, name=skill, description=skill, tags=["tck"]) for skill in skills],
    )


def main():
    listener, url = serving.listen()

    def made(address):
        shown = card(url, address, "scenarios")
        configs = InMemoryPushNotificationConfigStore()
        handler = DefaultRequestHandler(
            agent_executor=Executor(),
            task_store=InMemoryTaskStore(),
            agent_card=shown,
            push_config_store=configs,
            push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
            extended_agent_card=card(url, address, "scenarios", "more"),
        )
        routes = [
            *create_agent_card_routes(shown),
            *create_jsonrpc_routes(handler, rpc_url="/"),
            *create_rest_routes(handler),
        ]
        return Starlette(routes=routes), lambda server: add_A2AServiceServicer_to_server(GrpcHandler(handler), server)

    serving.serve_grpc(made, listener, url)


if __name__ == "__main__":
    main()
