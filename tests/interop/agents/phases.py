"""An A2A 1.0 agent on the official Python SDK for the suites `resources`, `workflow` and `batches`.

Skills: `phases` goes through the five phases of a workflow in one task, with an artifact each, and leaves a phase
when the test lets it; `count` works for a moment and says what it was told; `hold` works until it is canceled. With `--failing`
the skill `count` fails. Not mocked: the SDK makes every byte on the wire.

For the test, beside A2A: `POST /next/NAME` lets the task with this text go on by one step, `POST /card` changes the
agent's card, and `GET /record` tells all work with its times, by a clock that all processes of the machine share.
"""

import asyncio
import collections
import time

from a2a.helpers.proto_helpers import new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Task, TaskState, TaskStatus
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import serving

PHASES = ("specification", "pseudocode", "architecture", "refinement", "completion")
WORK = 0.15  # seconds of one `count`
SKILLS = {
    "phases": "Goes through the phases of a workflow, as the test lets it",
    "count": "Works for a moment, then says what it was told",
    "hold": "Works until it is canceled",
}
STEPS = collections.defaultdict(lambda: asyncio.Semaphore(0))  # by text: steps that the test allows
RECORD = []  # all work: text, began, ended (None: not yet), canceled


class Executor(AgentExecutor):
    def __init__(self, failing):
        self.failing = failing
        self.running = {}  # by task: the work

    async def execute(self, context, event_queue):
        if context.current_task is None:
            submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            history = [context.message]
            await event_queue.enqueue_event(
                Task(id=context.task_id, context_id=context.context_id, status=submitted, history=history)
            )
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        said = context.get_user_input()
        skill, text = dict(context.message.metadata).get("skillId"), said
        if skill not in SKILLS:
            skill, _, text = said.partition(" ")
        work = {"text": text, "began": time.monotonic(), "ended": None, "canceled": False}
        RECORD.append(work)
        self.running[context.task_id] = work
        await getattr(self, skill if skill in SKILLS else "count")(updater, text)
        work["ended"] = time.monotonic()

    def message(self, updater, text):
        return updater.new_agent_message([new_text_part(text)])

    async def phases(self, updater, name):
        for phase in PHASES:
            told = {"sparcPhase": phase, "agentType": "researcher"}
            message = self.message(updater, f"in {phase}")
            await updater.update_status(TaskState.TASK_STATE_WORKING, message, metadata=told)
            made = [new_text_part(f"made in {phase}")]
            await updater.add_artifact(made, artifact_id=phase, name=f"{phase}.txt", last_chunk=True)
            await STEPS[name].acquire()
        await updater.complete(self.message(updater, "all phases are done"))

    async def count(self, updater, text):
        await updater.start_work()
        await asyncio.sleep(WORK)
        if self.failing:
            return await updater.failed(self.message(updater, "It went wrong on purpose"))
        await updater.add_artifact([new_text_part(f"done {text}")], artifact_id="answer", last_chunk=True)
        await updater.complete()

    async def hold(self, updater, text):
        await updater.start_work(self.message(updater, "holding"))
        await STEPS[text].acquire()
        await updater.complete()

    async def cancel(self, context, event_queue):
        if work := self.running.get(context.task_id):
            work["canceled"] = True
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(url):
    return AgentCard(
        name="Phases",
        description="An agent of the suite of resources",
        version="1.0.0",
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[
            AgentSkill(id=skill, name=skill, description=about, tags=["interop"], examples=[f"{skill} this", "that"])
            for skill, about in SKILLS.items()
        ],
    )


def hooks(shown):
    async def go_on(request):
        STEPS[request.path_params["name"]].release()
        return JSONResponse({})

    async def change_card(_):
        changes = int(shown.version.rpartition(".")[2]) + 1
        shown.version = f"1.0.{changes}"
        shown.description = f"An agent of the suite of resources, changed {changes} times"
        return JSONResponse({"version": shown.version})

    async def record(_):
        return JSONResponse(RECORD)

    return [
        Route("/next/{name}", go_on, methods=["POST"]),
        Route("/card", change_card, methods=["POST"]),
        Route("/record", record, methods=["GET"]),
    ]


def main():
    options = serving.options("--failing")
    listener, url = serving.listen(options.port)
    shown = card(url)
    handler = DefaultRequestHandler(
        agent_executor=Executor(options.failing), task_store=InMemoryTaskStore(), agent_card=shown
    )
    routes = create_agent_card_routes(shown) + create_jsonrpc_routes(handler, rpc_url="/")
    serving.serve(Starlette(routes=[*routes, *hooks(shown)]), listener, url)


if __name__ == "__main__":
    main()
