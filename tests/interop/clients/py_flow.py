"""A workflow in five phases, and a batch of 50 calls, by the official Python client.

Usage: py_flow.py auto|legacy JOURNEY URL KEY FOLDER AGENT_URL... Journeys: `workflow`, which leaves in FOLDER how the workflow looks
at its end; `workflow_restarted`, which finds it so before another process of the gateway; and `batches`, with four agents of
which the last fails. The agents are `agents/phases.py`. Prints one line per check and exits 1 if any failed.
"""

import asyncio
import json
import pathlib
import sys

import anyio

from py_watched import Watcher, attempt, connected, expect, hook, read, record, shape, tool, watching

PHASES = ("specification", "pseudocode", "architecture", "refinement", "completion")
APART = 0.25  # seconds between two phases: nearer ones may share an update
CALLS, CONCURRENCY = 50, 8
MODE, JOURNEY, URL, KEY, FOLDER, *AGENTS = sys.argv[1:]
PICTURE = pathlib.Path(FOLDER) / f"picture-{MODE}.json"


async def picture(client, context):
    """All that a client sees of a workflow: its resource, its task, and the text of each artifact."""
    uri = f"sparc://workflow/{context}"
    content = await read(client, uri)
    workflow = json.loads(content.text)
    texts = {one["uri"]: (await read(client, one["uri"])).text for one in workflow["artifacts"]}
    task = await shape(client, f"a2a://tasks/{workflow['history'][0]['taskId']}")
    listed = [str(one.uri) for one in (await client.list_resources()).resources]
    return {
        "uri": uri, "meta": content.meta, "workflow": workflow, "texts": texts,
        "task": {name: task[name] for name in ("taskId", "contextId", "status", "artifacts", "metadata")},
        "listed": uri in listed,
    }


class Workflow:
    def __init__(self, client, watcher):
        self.client, self.watcher = client, watcher
        self.name = f"workflow-{MODE}"

    async def begins(self):
        start = {"subagentUri": "a2a-agent://phases", "text": f"phases {self.name}"}
        task = (await tool(self.client, "subagent_start", start))["taskId"]
        while not (seen := await shape(self.client, f"a2a://tasks/{task}"))["artifacts"]:
            pass
        self.task, self.context = task, seen["contextId"]
        self.uri = f"sparc://workflow/{self.context}"
        workflow = await shape(self.client, self.uri)
        expect(workflow["currentPhase"] == PHASES[0] and workflow["progress"] == 0, workflow)
        expect(workflow["phases"][PHASES[0]]["status"] == "working", workflow)

    async def one_update_a_phase(self):
        async with watching(self.client, self.uri) as accepted:
            expect(accepted, "cannot be subscribed to")
            for number, phase in enumerate(PHASES):
                await asyncio.sleep(APART)
                expect(self.watcher.count(self.uri) == number, f"{self.watcher.counts} before the end of {phase}")
                await hook(AGENTS[0], f"next/{self.name}")
                await self.watcher.until(self.uri, number + 1)
                self.look(await shape(self.client, self.uri), number)
            await asyncio.sleep(2 * APART)
            expect(self.watcher.count(self.uri) == len(PHASES), self.watcher.counts)

    def look(self, workflow, number):
        """The phases up to this number are over, and the next one is under way."""
        status = [workflow["phases"][phase].get("status") for phase in PHASES]
        expect(status[: number + 1] == ["completed"] * (number + 1), status)
        following = ["working"] if number + 1 < len(PHASES) else []
        expect(status[number + 1 :][:1] == following and not any(status[number + 2 :]), status)
        expect(workflow["currentPhase"] == PHASES[min(number + 1, len(PHASES) - 1)], workflow["currentPhase"])
        expect(abs(workflow["progress"] - (number + 1) / len(PHASES)) < 0.001, workflow["progress"])

    async def artifacts_are_readable(self):
        seen = await picture(self.client, self.context)
        made = [seen["texts"][one["uri"]] for one in seen["workflow"]["artifacts"]]
        expect(made == [f"made in {phase}" for phase in PHASES], made)
        metadata = seen["workflow"]["metadata"]
        expect(metadata["agentType"] == "researcher" and metadata["batchtoolsEnabled"] is True, metadata)
        expect(seen["task"]["metadata"]["sparcPhase"] == PHASES[-1] and seen["listed"], seen)
        PICTURE.write_text(json.dumps({"context": self.context, "seen": seen}))

    async def artifacts_have_their_phase(self):
        workflow = await shape(self.client, self.uri)
        told = [one["phase"] for one in workflow["artifacts"]]
        expect(told == list(PHASES), told)
        inside = [[one["artifactId"] for one in workflow["phases"][phase]["artifacts"]] for phase in PHASES]
        expect(inside == [[phase] for phase in PHASES], inside)

    NAMES = ("begins", "one_update_a_phase", "artifacts_are_readable", "artifacts_have_their_phase")


class WorkflowRestarted:
    def __init__(self, client, _):
        self.client = client

    async def same_picture(self):
        kept = json.loads(PICTURE.read_text())
        seen = json.loads(json.dumps(await picture(self.client, kept["context"])))
        for name, value in kept["seen"].items():
            expect(seen[name] == value, f"{name}: {seen[name]} before: {value}")

    NAMES = ("same_picture",)


class Batches:
    def __init__(self, client, watcher):
        self.client, self.watcher = client, watcher

    def calls(self):
        """Calls of all agents in turn; the low ones first, the high ones last."""
        for number in range(CALLS):
            priority = "low" if number < 10 else "high" if number >= CALLS - 10 else "normal"
            agent = "failing" if number % 4 == 3 else f"phases{number % 4}"
            text = f"{MODE} {number} {priority}"
            yield {"tool": f"{agent}_count", "arguments": {"text": text}, "priority": priority}

    async def fifty_calls(self):
        told = []

        async def progress(value, total, message):
            told.append((value, total))

        calls = list(self.calls())
        async with watching(self.client, "batchtools://metrics/performance") as accepted:
            expect(accepted, "cannot be subscribed to")
            self.report = await tool(self.client, "batch_start", {"calls": calls}, progress_callback=progress)
            await self.watcher.until("batchtools://metrics/performance", 1)
        while self.report["status"] == "running":  # the time of the client ended first
            self.report = await shape(self.client, self.report["resource"])
        values = [value for value, _ in told]
        expect(values and values == sorted(values) and told[-1] == (CALLS, CALLS), told)
        expect(self.report["total"] == CALLS and self.report["pending"] == 0, self.report)

    async def nothing_lost(self):
        results = self.report["results"]
        calls = list(self.calls())
        for number, (call, result) in enumerate(zip(calls, results, strict=True)):
            expect(result["index"] == number and result["tool"] == call["tool"], result)
            if call["tool"].startswith("failing"):
                expect(result["status"] == "failed" and "on purpose" in json.dumps(result), result)
            else:
                expect(result["status"] == "completed", result)
                expect(f"done {call['arguments']['text']}" in json.dumps(result["result"]["content"]), result)
        failed = sum(call["tool"].startswith("failing") for call in calls)
        expect((self.report["failed"], self.report["completed"]) == (failed, CALLS - failed), self.report)
        work = await self.work()
        said = sorted(one["text"] for one in work)
        expect(said == sorted(call["arguments"]["text"] for call in calls), "each agent heard each call once")

    async def work(self, name=MODE):
        """The work of one batch at all agents, in the order in which it began."""
        everything = [one for agent in AGENTS for one in await record(agent)]
        mine = [one for one in everything if one["text"].startswith(f"{name} ")]
        return sorted(mine, key=lambda one: one["began"])

    async def bounded_concurrency(self):
        work = await self.work()
        at_once = max(sum(two["began"] <= one["began"] < two["ended"] for two in work) for one in work)
        expect(1 < at_once <= CONCURRENCY, f"{at_once} at once")
        expect(self.report["peakConcurrency"] == CONCURRENCY, self.report["peakConcurrency"])

    async def priorities(self):
        order = [one["text"].rpartition(" ")[2] for one in await self.work()]
        last_high, first_low = max(at for at, name in enumerate(order) if name == "high"), order.index("low")
        expect(order[:CONCURRENCY] == ["high"] * CONCURRENCY and last_high < first_low, order)

    async def measured_speedup(self):
        work = await self.work()
        took = max(one["ended"] for one in work) - work[0]["began"]
        serial = sum(one["ended"] - one["began"] for one in work)
        speedup, told = serial / took, self.report["speedup"]
        expect(speedup > 2 and told > 2, f"{speedup} by the agents, {told} by the gateway")
        # The gateway also counts the way to an agent.
        expect(0.5 * speedup < told <= CONCURRENCY + 0.1, f"{speedup} by the agents, {told} by the gateway")
        performance = await shape(self.client, "batchtools://metrics/performance")
        expect(performance["overall"]["averageSpeedup"] == told, performance)
        expect(performance["byType"]["concurrent_processing"]["successRate"] == self.report["successRate"], performance)

    def held(self, name):
        return [{"tool": f"phases{number % 3}_hold", "arguments": {"text": f"{name} {number}"}} for number in range(20)]

    async def canceled_by_tool(self):
        name = f"tool-{MODE}"
        begun = await tool(self.client, "batch_start", {"calls": self.held(name), "wait": False})
        await self.running(name)
        canceled = await tool(self.client, "batch_cancel", {"batchId": begun["batchId"]})
        expect(canceled["canceled"] is True, canceled)
        await self.is_canceled(name, begun["resource"])

    async def canceled_by_client(self):
        """The client gives its request up."""
        name = f"client-{MODE}"
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(self.running, name, scope.cancel)
                await self.client.call_tool("batch_start", {"calls": self.held(name)})
        expect(scope.cancelled_caught, "responded before it was given up")
        listed = [str(one.uri) for one in (await self.client.list_resources()).resources]
        newest = max(uri for uri in listed if uri.startswith("batchtools://batches/"))
        await self.is_canceled(name, newest)

    async def running(self, name, then=lambda: None):
        """Waits until the agents have as many calls as may run at once."""
        async with asyncio.timeout(20):
            while len(await self.work(name)) < CONCURRENCY:
                pass
        then()

    async def is_canceled(self, name, resource):
        async with asyncio.timeout(20):
            while (report := await shape(self.client, resource))["status"] == "running":
                pass
        expect((report["status"], report["cancelled"], report["speedup"]) == ("cancelled", 20, None), report)
        async with asyncio.timeout(20):
            while True:
                work = await self.work(name)
                if all(one["canceled"] for one in work):
                    break
        expect(len(work) == CONCURRENCY, f"{len(work)} calls began")

    NAMES = (
        "fifty_calls", "nothing_lost", "bounded_concurrency", "priorities", "measured_speedup", "canceled_by_tool",
        "canceled_by_client",
    )


JOURNEYS = {"workflow": Workflow, "workflow_restarted": WorkflowRestarted, "batches": Batches}


async def main():
    watcher, failed = Watcher(), 0
    async with connected(MODE, URL, KEY, watcher) as client:
        journey = JOURNEYS[JOURNEY](client, watcher)
        for name in journey.NAMES:
            failed += await attempt(name, getattr(journey, name)())
    return failed


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(main()) else 0)
