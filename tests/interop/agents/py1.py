"""A real A2A 1.0 agent on the official Python SDK, `a2a-sdk` 1.3.0, over JSON-RPC.

With `--compat` it serves A2A 0.3 too, with `--rest` HTTP+JSON and with `--grpc` gRPC instead of JSON-RPC. Not a mock: the
SDK makes every byte on the wire. What it does is in `behaviour.py`.
"""

import asyncio

import httpx
from a2a.helpers.proto_helpers import new_data_part, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Part,
    Task,
    TaskState,
    TaskStatus,
)
from starlette.applications import Starlette

import behaviour
import serving


class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        if context.current_task is None:
            submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(
                Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=submitted,
                    history=[context.message],
                )
            )
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        metadata = dict(context.message.metadata)
        skill, said = behaviour.hear(context.task_id, metadata, context.get_user_input())
        for step in behaviour.steps(skill, said):
            await self.act(updater, *step)

    async def act(self, updater, kind, *rest):
        def message(text, *more):
            return updater.new_agent_message([new_text_part(text), *more])

        if kind == "pause":
            await asyncio.sleep(rest[0])
        elif kind == "working":
            await updater.start_work(message(rest[0]))
        elif kind == "chunk":
            text, first, last = rest
            await updater.add_artifact(
                [new_text_part(text)], artifact_id="answer", name="answer", append=not first, last_chunk=last
            )
        elif kind == "ids":
            known = new_text_part(f"{updater.task_id} {updater.context_id}")
            await updater.add_artifact([known], artifact_id="answer", name="answer")
        elif kind == "data":
            await updater.add_artifact([new_data_part(rest[0])], artifact_id="data", name="data")
        elif kind == "ask":
            await updater.requires_input(message(rest[0]))
        elif kind == "authorize":
            text, url = rest
            page = Part(url=url, filename="Sign in", media_type="text/html")
            await updater.requires_auth(message(text, page))
        elif kind == "fail":
            await updater.failed(message(rest[0]))
        elif kind == "reject":
            await updater.reject(message(rest[0]))
        else:
            await updater.complete()

    async def cancel(self, context, event_queue):
        behaviour.cancel(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(url, skills, binding):
    return AgentCard(
        name="Python 1.0 agent",
        description="The interop agent on a2a-sdk 1.3",
        version="1.0.0",
        supported_interfaces=[AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain", "application/json"],
        skills=[
            AgentSkill(id=skill, name=skill, description=about, tags=["interop"])
            for skill, about in skills.items()
        ],
    )


def handler_of(shown, extended):
    configs = InMemoryPushNotificationConfigStore()
    return DefaultRequestHandler(
        agent_executor=Executor(),
        task_store=InMemoryTaskStore(),
        agent_card=shown,
        push_config_store=configs,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
        extended_agent_card=extended,
    )


def by_grpc(address):
    from a2a.server.request_handlers import GrpcHandler
    from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server

    shown = card(address, behaviour.SKILLS, "GRPC")
    handler = handler_of(shown, card(address, {**behaviour.SKILLS, **behaviour.EXTENDED}, "GRPC"))
    app = Starlette(routes=create_agent_card_routes(shown))
    return app, lambda server: add_A2AServiceServicer_to_server(GrpcHandler(handler), server)


def main():
    options = serving.options("--compat", "--rest", "--grpc")
    listener, url = serving.listen(options.port)
    if options.grpc:
        return serving.serve_grpc(by_grpc, listener, url)
    binding = "HTTP+JSON" if options.rest else "JSONRPC"
    shown = card(url, behaviour.SKILLS, binding)
    if options.compat:
        older = AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="0.3")
        shown.supported_interfaces.append(older)
    handler = handler_of(shown, card(url, {**behaviour.SKILLS, **behaviour.EXTENDED}, binding))
    routes = create_agent_card_routes(shown)
    if options.rest:
        routes += create_rest_routes(handler)
    else:
        routes += create_jsonrpc_routes(handler, rpc_url="/", enable_v0_3_compat=options.compat)
    serving.serve(Starlette(routes=routes), listener, url)


if __name__ == "__main__":
    main()
