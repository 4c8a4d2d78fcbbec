"""How an agent of A2A 0.2 or 0.3 on the official Python SDK plays `behaviour.py`.

Not an agent by itself: `py02.py`, `py03.py`, `py03_rest.py` and `py03_grpc.py` run it, each with its own version of the SDK, whose
interfaces are the same as far as they are used here. The SDK makes every byte on the wire.
"""

import asyncio

import httpx
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentSkill,
    DataPart,
    FilePart,
    FileWithUri,
    Part,
    TextPart,
)
from a2a.utils import new_task

import behaviour
import serving


def text_part(text):
    return Part(root=TextPart(text=text))


class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        task = context.current_task
        if task is None:
            task = new_task(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        skill, said = behaviour.hear(task.id, context.message.metadata, context.get_user_input())
        for step in behaviour.steps(skill, said):
            await self.act(updater, *step)

    async def act(self, updater, kind, *rest):
        def message(text, *more):
            return updater.new_agent_message([text_part(text), *more])

        if kind == "pause":
            await asyncio.sleep(rest[0])
        elif kind == "working":
            await updater.start_work(message(rest[0]))
        elif kind == "chunk":
            text, first, last = rest
            await updater.add_artifact(
                [text_part(text)], artifact_id="answer", name="answer", append=not first, last_chunk=last
            )
        elif kind == "ids":
            known = text_part(f"{updater.task_id} {updater.context_id}")
            await updater.add_artifact([known], artifact_id="answer", name="answer")
        elif kind == "data":
            await updater.add_artifact([Part(root=DataPart(data=rest[0]))], artifact_id="data", name="data")
        elif kind == "ask":
            await updater.requires_input(message(rest[0]), final=True)
        elif kind == "authorize":
            text, url = rest
            page = Part(root=FilePart(file=FileWithUri(uri=url, name="Sign in", mime_type="text/html")))
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


def card(name, description, url, skills, transport):
    # 0.2 has no such member for an agent that speaks JSON-RPC alone.
    preferred = {"preferred_transport": transport} if transport else {}
    return AgentCard(
        **preferred,
        name=name,
        description=description,
        url=url,
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain", "application/json"],
        supports_authenticated_extended_card=True,
        skills=[
            AgentSkill(id=skill, name=skill, description=about, tags=["interop"])
            for skill, about in skills.items()
        ],
    )


def handler():
    configs = InMemoryPushNotificationConfigStore()
    return DefaultRequestHandler(
        agent_executor=Executor(),
        task_store=InMemoryTaskStore(),
        push_config_store=configs,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
    )


def main(name, description, application=A2AStarletteApplication, transport=None):
    """Serves the agent; what its card says of the protocol's version is the SDK's own word."""
    listener, url = serving.listen()
    app = application(
        agent_card=card(name, description, url, behaviour.SKILLS, transport),
        http_handler=handler(),
        extended_agent_card=card(name, description, url, {**behaviour.SKILLS, **behaviour.EXTENDED}, transport),
    )
    serving.serve(app.build(), listener, url)
