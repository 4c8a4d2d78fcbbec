"""A real A2A 0.3 agent on the official Python SDK, `a2a-sdk` 0.3.26.

Not a mock: the SDK makes every byte on the wire. What it does is in `behaviour.py`.
"""

import asyncio

from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
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


def main():
    listener, url = serving.listen()
    card = AgentCard(
        name="Python 0.3 agent",
        description="The interop agent on a2a-sdk 0.3",
        url=url,
        version="1.0.0",
        protocol_version="0.3.0",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain", "application/json"],
        skills=[
            AgentSkill(id=skill, name=skill, description=about, tags=["interop"])
            for skill, about in behaviour.SKILLS.items()
        ],
    )
    handler = DefaultRequestHandler(agent_executor=Executor(), task_store=InMemoryTaskStore())
    serving.serve(A2AStarletteApplication(agent_card=card, http_handler=handler).build(), listener, url)


if __name__ == "__main__":
    main()
