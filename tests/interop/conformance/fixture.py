"""The A2A 1.0 agent behind the gateway when the MCP conformance suite judges it.

On the official SDK, like `agents/py1.py`. Its skills carry the names of the tools that the suite
calls and give what those must return; what the gateway makes of each part is the gateway's
convention: media type image/* and audio/* become image and audio blocks, part metadata
`mcp.resourceUri` makes an embedded resource, status metadata `progress`/`total` sets progress.
What it asks the user is in `questions.py`.
"""

import asyncio
import base64
import json
import pathlib
import sys

from a2a.helpers.proto_helpers import get_data_parts, new_raw_part, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Task, TaskState, TaskStatus
from starlette.applications import Starlette

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "agents"))
import serving  # noqa: E402  (found through the line above)
from questions import LATE, LONG, QUESTIONS  # noqa: E402  (as above)

# The smallest valid ones: a PNG of one red pixel, and a WAV with a header and no sample.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")


def image():
    return new_raw_part(PNG, media_type="image/png")


def resource(uri, text):
    return Part(text=text, media_type="text/plain", metadata={"mcp.resourceUri": uri})


# Tools that answer at once, with these parts.
ANSWERS = {
    "test_simple_text": lambda: [new_text_part("This is a simple text response for testing.")],
    "test_image_content": lambda: [image()],
    "test_audio_content": lambda: [new_raw_part(WAV, media_type="audio/wav")],
    "test_embedded_resource": lambda: [
        resource("test://embedded-resource", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": lambda: [
        new_text_part("Multiple content types test:"),
        image(),
        resource("test://mixed-content-resource", '{"test":"data","value":123}'),
    ],
    # The suite only wants an answer on a stream without requests of the server in it.
    "test_streaming_elicitation": lambda: [new_text_part("Nothing to ask.")],
    # `run` says that this one works only as a task, so the gateway refuses clients that know none.
    "test_missing_capability": lambda: [new_text_part("Served as a task.")],
}
# Tools that tell of their work first: (text, metadata of the status update).
TOLD = {
    "test_tool_with_logging": [
        ("Tool execution started", None),
        ("Tool processing data", None),
        ("Tool execution completed", None),
    ],
    "test_logging_tool": [("This must not reach a client that set no log level", None)],
    "test_tool_with_progress": [
        ("Started", {"progress": 0, "total": 100}),
        ("Half way", {"progress": 50, "total": 100}),
        ("Done", {"progress": 100, "total": 100}),
    ],
}
FAILS = {"test_error_handling": "This tool intentionally returns an error for testing"}
# These put another skill on the card: without examples, and with one, which becomes a prompt.
CHANGES = {"test_trigger_tool_change": [], "test_trigger_prompt_change": ["An example"]}
GREETS, COMPUTES, BREAKS, CRASHES = "greet", "slow_compute", "failing_job", "protocol_error_job"
SKILLS = sorted([*ANSWERS, *TOLD, *FAILS, *QUESTIONS, *CHANGES, GREETS, COMPUTES, BREAKS, CRASHES])
PAUSE = 0.05  # seconds between two messages
WORK = 1  # seconds that a tool takes which must outlast the patience of `run`'s gateway


def described(skill, examples=()):
    about = f"The conformance tool {skill}"
    return AgentSkill(id=skill, name=skill, description=about, tags=["conformance"], examples=list(examples))


def given(message):
    """What came with a message: a data part as it is, else its text."""
    data = get_data_parts(message.parts)
    return data[0] if data else {"reply": "".join(part.text for part in message.parts)}


class Crashed(Exception):
    """Becomes a JSON-RPC error of the agent."""


class Store(InMemoryTaskStore):
    """Knows tasks that cannot be read any more."""

    def __init__(self):
        super().__init__()
        self.lost = set()

    async def get(self, task_id, context=None):
        if task_id in self.lost:
            raise Crashed("this task crashed")
        return await super().get(task_id, context)


class Executor(AgentExecutor):
    def __init__(self, card, store):
        self.card = card
        self.store = store
        self.talks = {}  # by task id: the skill of its first turn, and what came in each turn

    async def execute(self, context, event_queue):
        if context.current_task is None:
            submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(
                Task(id=context.task_id, context_id=context.context_id, status=submitted, history=[context.message])
            )
            self.talks[context.task_id] = (dict(context.message.metadata).get("skillId"), [])
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        skill, said = self.talks[context.task_id]
        said.append(given(context.message))
        await self.turn(updater, skill, said)

    async def turn(self, updater, skill, said):
        def message(text, metadata=None):
            return updater.new_agent_message([new_text_part(text)], metadata=metadata)

        async def answer(*parts):
            await updater.add_artifact(list(parts), name="answer")
            await updater.complete()

        if skill in FAILS:
            return await updater.failed(message(FAILS[skill]))
        if skill in ANSWERS:
            return await answer(*ANSWERS[skill]())
        if skill in QUESTIONS:
            return await self.ask(updater, skill, said, message, answer)
        if skill == GREETS:
            return await answer(new_text_part(f"Hello, {said[0].get('name')}!"))
        if skill == COMPUTES:
            await asyncio.sleep(said[0].get("seconds") or 0)
            return await answer(new_text_part(f"Computed {said[0].get('label')}"))
        if skill == BREAKS:
            await asyncio.sleep(WORK)
            return await updater.failed(message("The job fails, as it should"))
        if skill == CRASHES:
            await asyncio.sleep(WORK)
            self.store.lost.add(updater.task_id)
            raise Crashed("the job crashes, as it should")
        if skill in CHANGES:
            self.card.skills.append(described(f"test_added_{len(self.card.skills)}", CHANGES[skill]))
            return await answer(new_text_part("Added."))
        if skill not in TOLD:
            return await updater.failed(message(f"no such skill: {skill}"))
        for text, metadata in TOLD[skill]:
            await updater.update_status(TaskState.TASK_STATE_WORKING, message(text), metadata=metadata)
            await asyncio.sleep(PAUSE)
        return await answer(new_text_part("Done."))

    async def ask(self, updater, skill, said, message, answer):
        """Asks the question of this turn, or answers with all that the user said."""
        asked = len(said) - 1
        if asked < len(QUESTIONS[skill]):
            if skill in LATE:
                await updater.start_work()
                await asyncio.sleep(WORK)
            text, metadata = QUESTIONS[skill][asked]
            return await updater.requires_input(message(text or said[0].get("message"), metadata))
        if skill in LONG:
            await updater.start_work()
            await asyncio.sleep(WORK)
        return await answer(new_text_part(f"User response: {json.dumps(said[1:])}"))

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def main():
    listener, url = serving.listen()
    card = AgentCard(
        name="Conformance fixture",
        description="Serves the tools that the MCP conformance suite calls",
        version="1.0.0",
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain", "image/png", "audio/wav"],
        skills=[described(skill) for skill in SKILLS],
    )
    store = Store()
    handler = DefaultRequestHandler(agent_executor=Executor(card, store), task_store=store, agent_card=card)
    routes = create_agent_card_routes(card) + create_jsonrpc_routes(handler, rpc_url="/")
    serving.serve(Starlette(routes=routes), listener, url)


if __name__ == "__main__":
    main()
