"""What is asked in the comparison of an agent with itself behind the gateway: requests, in our own words.

The list follows the requirements that the A2A conformance kit 1.0 checks, so that the kit need not be fetched to know
that the gateway changes none of its verdicts. Not here: who asks and how answers are compared, `run`.

A case is a list of steps, one HTTP request or call of gRPC each; the latter are those of the cases over JSON-RPC that
protobuf can say. `{task}`, `{context}` and `{page}` in a step stand for the first ids
and the first token of a next page that an answer of the case told.
"""

import dataclasses
import json
import re

import over_grpc

UNKNOWN = "00000000-0000-4000-8000-000000000000"
STATES = ("WORKING", "COMPLETED", "INPUT_REQUIRED")


@dataclasses.dataclass
class Step:
    method: str
    path: str
    body: bytes | None = None
    headers: dict = dataclasses.field(default_factory=dict)


def message(scenario, **more):
    """A message whose id begins with the scenario that the agent is to play."""
    return {"message": {"role": "ROLE_USER", "messageId": f"{scenario}-1", "parts": [{"text": "Hello"}], **more}}


ASKED = message("tck-input-required")
DONE = message("tck-complete-task")
HOOK = {"id": "hook", "url": "http://localhost:9/hook", "token": "secret-of-the-client"}
BY_BASIC = {**HOOK, "id": "other", "authentication": {"scheme": "Basic", "credentials": "dXNlcjpwYXNz"}}


def rpc(method, params=None, version="1.0", **envelope):
    """A JSON-RPC request; what is given by name replaces a member of the envelope."""
    whole = {"jsonrpc": "2.0", "id": "r-1", "method": method, "params": {} if params is None else params}
    return raw(json.dumps({**whole, **envelope}, ensure_ascii=False), version)


def raw(text, version="1.0", **headers):
    versions = {"A2A-Version": version} if version is not None else {}
    return Step("POST", "", text.encode(), {"Content-Type": "application/json", **versions, **headers})


def rest(method, path, body=None, version="1.0", content="application/a2a+json"):
    versions = {"A2A-Version": version} if version is not None else {}
    typed = {"Content-Type": content} if body is not None else {}
    written = None if body is None else json.dumps(body, ensure_ascii=False).encode()
    return Step(method, path, written, {**typed, **versions})


def grpc(step):
    """The call of gRPC that says the same as this JSON-RPC request; none if gRPC cannot."""
    try:
        whole = json.loads(step.body)
        # The envelope is JSON-RPC's own, and a tenant names an agent of the gateway.
        if (whole["jsonrpc"], whole["id"]) != ("2.0", "r-1") or "tenant" in whole["params"]:
            return None
        request = over_grpc.REQUESTS[whole["method"]]
        over_grpc.message(request, json.loads(re.sub(r"\{(task|context|page)\}", "x", json.dumps(whole["params"]))))
    except (KeyError, TypeError, ValueError, over_grpc.ParseError):
        return None
    body = json.dumps(whole["params"], ensure_ascii=False).encode()
    versions = {name.lower(): value for name, value in step.headers.items() if name.startswith("A2A-")}
    return Step(over_grpc.METHOD, whole["method"], body, versions)


def card():
    path = "/.well-known/agent-card.json"
    yield "card", [Step("GET", path)]
    yield "card, with a version", [Step("GET", path, headers={"A2A-Version": "1.0"})]
    yield "card, extended", [rpc("GetExtendedAgentCard")]
    yield "card, extended, REST", [rest("GET", "/extendedAgentCard")]


def sending():
    ends = ("complete-task", "artifact-text", "artifact-file", "artifact-file-url", "artifact-data")
    for scenario in (*ends, "message-response", "input-required", "reject-task"):
        sent = message(f"tck-{scenario}")
        yield f"send {scenario}", [rpc("SendMessage", sent), rpc("GetTask", {"id": "{task}"})]
        yield f"send {scenario}, REST", [rest("POST", "/message:send", sent), rest("GET", "/tasks/{task}")]
    for configuration in (
        {"historyLength": 0},
        {"historyLength": 1},
        {"historyLength": 100},
        {"returnImmediately": False},
        {"acceptedOutputModes": ["text/plain"]},
        {"taskPushNotificationConfig": HOOK},
    ):
        sent = {**DONE, "configuration": configuration, "metadata": {"why": "interop"}}
        yield f"send with {configuration}", [rpc("SendMessage", sent)]
        yield f"send with {configuration}, REST", [rest("POST", "/message:send", sent)]
    parts = [{"text": "ü 世界 🌊"}, {"data": {"deep": [1, {"x": None}]}}, {"raw": "dGNr", "filename": "a.txt"}]
    rich = message("tck-complete-task", parts=parts, metadata={"a": 1}, extensions=["urn:none"])
    yield "send rich parts", [rpc("SendMessage", rich), rpc("GetTask", {"id": "{task}", "historyLength": 10})]
    yield "send unknown members", [rpc("SendMessage", {**DONE, "unknown": {"x": 1}})]


def streaming():
    plain = ("stream-001", "stream-002", "stream-003", "stream-ordering-001", "message-response", "input-required")
    for scenario in (*plain, "stream-artifact-text", "stream-artifact-file", "stream-artifact-chunked", "reject-task"):
        sent = message(f"tck-{scenario}")
        yield f"stream {scenario}", [rpc("SendStreamingMessage", sent)]
        yield f"stream {scenario}, REST", [rest("POST", "/message:stream", sent)]


def subscribing():
    live = message("test-resubscribe-message-id")
    now = {**live, "configuration": {"returnImmediately": True}}
    yield "subscribe", [rpc("SendMessage", now), rpc("SubscribeToTask", {"id": "{task}"})]
    yield "subscribe, REST", [rest("POST", "/message:send", now), rest("POST", "/tasks/{task}:subscribe", {})]
    yield "subscribe finished", [rpc("SendMessage", DONE), rpc("SubscribeToTask", {"id": "{task}"})]
    yield "subscribe finished, REST", [rest("POST", "/message:send", DONE), rest("POST", "/tasks/{task}:subscribe", {})]
    yield "subscribe unknown", [rpc("SubscribeToTask", {"id": UNKNOWN})]
    yield "subscribe unknown, REST", [rest("POST", f"/tasks/{UNKNOWN}:subscribe", {})]


def getting():
    for length in (None, 0, 1, 5):
        asked = {"id": "{task}"} if length is None else {"id": "{task}", "historyLength": length}
        query = "" if length is None else f"?historyLength={length}"
        yield f"get, history {length}", [rpc("SendMessage", DONE), rpc("GetTask", asked)]
        yield f"get, history {length}, REST", [rest("POST", "/message:send", DONE), rest("GET", f"/tasks/{{task}}{query}")]
    yield "get unknown", [rpc("GetTask", {"id": UNKNOWN})]
    yield "get unknown, REST", [rest("GET", f"/tasks/{UNKNOWN}")]
    yield "get nothing", [rpc("GetTask", {})]
    yield "get, history negative", [rpc("SendMessage", DONE), rpc("GetTask", {"id": "{task}", "historyLength": -1})]


def listing():
    two = [rpc("SendMessage", DONE), rpc("SendMessage", message("tck-artifact-text", contextId="{context}"))]
    page = {"contextId": "{context}", "pageSize": 1}
    yield "list, two pages", [*two, rpc("ListTasks", page), rpc("ListTasks", {**page, "pageToken": "{page}"})]
    for wanted in (
        {},
        {"pageSize": 1},
        {"includeArtifacts": True},
        {"historyLength": 0},
        {"historyLength": 2},
        *({"status": f"TASK_STATE_{state}"} for state in STATES),
    ):
        yield f"list {wanted}", [*two, rpc("ListTasks", {"contextId": "{context}", **wanted})]
        query = "&".join(f"{name}={str(value).lower() if value is True else value}" for name, value in wanted.items())
        yield f"list {wanted}, REST", [*two, rest("GET", f"/tasks?contextId={{context}}&{query}")]
    yield "list, unknown context", [rpc("ListTasks", {"contextId": UNKNOWN})]
    for wrong in ({"pageSize": 0}, {"pageSize": -1}, {"pageSize": 101}, {"pageToken": "no such page"}, {"status": "BUSY"}):
        yield f"list {wrong}", [rpc("ListTasks", {"contextId": UNKNOWN, **wrong})]


def canceling():
    cancel = rpc("CancelTask", {"id": "{task}"})
    by_rest = rest("POST", "/tasks/{task}:cancel", {})
    yield "cancel", [rpc("SendMessage", ASKED), cancel, rpc("GetTask", {"id": "{task}"}), cancel]
    yield "cancel, REST", [rest("POST", "/message:send", ASKED), by_rest, by_rest]
    yield "cancel finished", [rpc("SendMessage", DONE), cancel]
    yield "cancel finished, REST", [rest("POST", "/message:send", DONE), by_rest]
    yield "cancel unknown", [rpc("CancelTask", {"id": UNKNOWN})]
    yield "cancel unknown, REST", [rest("POST", f"/tasks/{UNKNOWN}:cancel", {})]


def turns():
    again = message("tck-complete-task", taskId="{task}")
    both = message("tck-complete-task", taskId="{task}", contextId="{context}")
    other = message("tck-complete-task", taskId="{task}", contextId=UNKNOWN)
    asked = rpc("SendMessage", ASKED)
    yield "a second turn", [asked, rpc("SendMessage", again), rpc("GetTask", {"id": "{task}"})]
    yield "a second turn, context too", [asked, rpc("SendMessage", both)]
    yield "a second turn as a stream", [asked, rpc("SendStreamingMessage", both)]
    yield "a second turn, REST", [rest("POST", "/message:send", ASKED), rest("POST", "/message:send", both)]
    yield "a second turn in another context", [asked, rpc("SendMessage", other)]
    yield "a second task", [asked, rpc("SendMessage", message("tck-complete-task", contextId="{context}"))]
    yield "a turn after the end", [rpc("SendMessage", DONE), rpc("SendMessage", again)]
    yield "a turn of no task", [rpc("SendMessage", message("tck-complete-task", taskId=UNKNOWN))]
    yield "a turn of no task, REST", [rest("POST", "/message:send", message("tck-complete-task", taskId=UNKNOWN))]
    reference = message("tck-complete-task", referenceTaskIds=["{task}"])
    yield "a reference", [asked, rpc("SendMessage", reference)]


def pushing():
    asked = rpc("SendMessage", ASKED)
    made = rpc("CreateTaskPushNotificationConfig", {"taskId": "{task}", **HOOK})
    named = {"taskId": "{task}", "id": "hook"}
    listed = rpc("ListTaskPushNotificationConfigs", {"taskId": "{task}"})
    got = rpc("GetTaskPushNotificationConfig", named)
    deleted = rpc("DeleteTaskPushNotificationConfig", named)
    yield "webhook", [asked, made, got, listed, deleted, got, listed, deleted]
    more = rpc("CreateTaskPushNotificationConfig", {"taskId": "{task}", **BY_BASIC})
    yield "two webhooks", [asked, made, more, listed]
    path = "/tasks/{task}/pushNotificationConfigs"
    by_rest = [rest("POST", path, HOOK), rest("GET", f"{path}/hook"), rest("GET", path), rest("DELETE", f"{path}/hook")]
    yield "webhook, REST", [rest("POST", "/message:send", ASKED), *by_rest, rest("GET", f"{path}/hook")]
    yield "webhook of no task", [rpc("CreateTaskPushNotificationConfig", {"taskId": UNKNOWN, **HOOK})]
    yield "webhooks of no task", [rpc("ListTaskPushNotificationConfigs", {"taskId": UNKNOWN})]
    yield "no such webhook", [asked, rpc("GetTaskPushNotificationConfig", {"taskId": "{task}", "id": "none"})]


def versions():
    for version in (None, "0.3", "1.0", "2.0", "99.0", "none"):
        yield f"version {version}", [rpc("SendMessage", DONE, version)]
        yield f"version {version}, REST", [rest("POST", "/message:send", DONE, version)]
    extended = raw(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": DONE}), **{"A2A-Extensions": "urn:x"})
    yield "an extension", [extended]


def refusing():
    for name, text in {
        "no JSON": "{",
        "nothing": "",
        "a number": "7",
        "a list": "[]",
        "a batch": json.dumps([{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": UNKNOWN}}]),
    }.items():
        yield name, [raw(text)]
    yield "no version of JSON-RPC", [raw(json.dumps({"id": 1, "method": "SendMessage", "params": DONE}))]
    yield "another version of JSON-RPC", [rpc("SendMessage", DONE, jsonrpc="1.0")]
    yield "no method", [raw(json.dumps({"jsonrpc": "2.0", "id": 1, "params": DONE}))]
    yield "a notification", [raw(json.dumps({"jsonrpc": "2.0", "method": "GetTask", "params": {"id": UNKNOWN}}))]
    yield "an unknown method", [rpc("Unheard/Of", {})]
    yield "a method of 0.3", [rpc("message/send", DONE)]
    for name, params in {
        "no message": {},
        "a message without parts": message("tck-complete-task", parts=[]),
        "a message without a role": message("tck-complete-task", role="ROLE_NOBODY"),
        "parts of the wrong type": message("tck-complete-task", parts="Hello"),
        "params that are a list": [1],
        "a tenant": {**DONE, "tenant": "none"},
    }.items():
        yield name, [rpc("SendMessage", params)]
        if isinstance(params, dict):
            yield f"{name}, REST", [rest("POST", "/message:send", params)]
    for identity in (1, 0, -7, "", "x" * 200, None):
        yield f"the id {identity!r:.12}", [rpc("GetTask", {"id": UNKNOWN}, id=identity)]
    yield "an unknown path", [rest("GET", "/no/such/path")]
    yield "another content type, REST", [rest("POST", "/message:send", DONE, content="application/json")]


def all_cases():
    families = (card, sending, streaming, subscribing, getting, listing, canceling, turns, pushing, versions, refusing)
    told = [case for family in families for case in family()]
    for name, steps in told[:]:
        calls = [grpc(step) for step in steps if step.body is not None]
        if len(calls) == len(steps) and all(calls):
            told.append((f"{name}, gRPC", calls))
    return told
