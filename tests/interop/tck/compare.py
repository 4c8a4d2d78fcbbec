"""Compares what an agent answers with what the gateway in front of it answers, case by case.

Usage: compare.py MODE AGENT FACE [KEY] [--case WORDS]... Compared are status, headers that mean something to a client,
and the body with ids, times and addresses made alike; of a stream each event. Prints a line for each case.
What may differ stands in `ALLOWED`, with the reason; what is allowed and does not differ fails too.
Not here: the requests, `cases.py`.
"""

import argparse
import concurrent.futures
import json
import re
import sys

import httpx

import cases
import over_grpc

COMPARED = ("content-type", "a2a-version", "a2a-extensions", "x-a2a-extensions", "allow", "location")
IDS = ("id", "taskId", "contextId", "messageId", "artifactId", "nextPageToken")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
STANDARD = (-32700, -32600, -32601, -32602, -32603)
AT_ONCE = 6
# By case, why the gateway's answer is not the agent's: in both modes, and with sealed ids only.
BOTH = {
    "version None, REST": "these paths belong to 1.0, whatever the header says",
    "parts of the wrong type, REST": "the params are wrong, the request is not",
    "card": "clients of 0.3 and 0.1 find an interface too",
    "card, with a version": "clients of 0.3 and 0.1 find an interface too",
    **dict.fromkeys(
        ["card, extended", "card, extended, REST", "card, extended, gRPC"], "over gRPC an agent is named by its tenant"
    ),
    **dict.fromkeys(
        [f"version {version}, gRPC" for version in ("0.3", "2.0", "99.0", "none")],
        "a method of 1.0 in another version is refused as over JSON-RPC; this SDK reads no version over gRPC",
    ),
    "an unknown path": "404 as everywhere at the gateway, with a body of JSON",
}
SEALED = {
    "a second turn in another context": "what is not the caller's reads like what is not there",
    "a second turn in another context, gRPC": "what is not the caller's reads like what is not there",
    "card, extended": "it asks for the proof that the gateway wants",
    "card, extended, REST": "it asks for the proof that the gateway wants",
}
ALLOWED = {"plain": BOTH, "keys": {**BOTH, **SEALED}}


class Alike:
    """Names that stand for what differs each time: ids in their order, times, the agent's address."""

    def __init__(self, base, address):
        self.base = base
        self.address = address
        self.names = {}
        self.first = {}

    def value(self, value, key=None):
        if isinstance(value, dict):
            self.remember(value)
            alike = {name: self.value(one, name) for name, one in value.items()}
            if "code" in alike and "message" in alike:  # an error: its words are whose they are, but tell no id
                alike["message"] = "(words with an id)" if UUID.search(alike["message"]) else "(words)"
                if alike["code"] in STANDARD:  # details are for errors of A2A; of these they are more words
                    alike.pop("data", None)
            return alike
        if isinstance(value, list):
            return [self.value(one, key) for one in value]
        if not isinstance(value, str):
            return value
        if key == "timestamp":
            return "(a time)"
        if key in (*IDS, "referenceTaskIds") and len(value) >= 32 and value != cases.UNKNOWN:
            return self.names.setdefault(value, f"(id {len(self.names) + 1})")
        return self.text(value)

    def remember(self, value):
        """The ids that later steps of the case mean."""
        if isinstance(value.get("status"), dict) and "id" in value:
            self.first.setdefault("task", value["id"])
        for member, name in (("taskId", "task"), ("contextId", "context"), ("nextPageToken", "page")):
            if isinstance(value.get(member), str) and value[member]:
                self.first.setdefault(name, value[member])

    def text(self, text):
        text = re.sub(re.escape(self.base) + "/?", "(base)", text)
        text = re.sub(f"^(http://)?{re.escape(self.address)}/?$", "(address)", text)
        for known, name in self.names.items():
            text = text.replace(known, name)
        return text.replace(cases.UNKNOWN, "(unknown)")

    def fill(self, text):
        return re.sub(r"\{(task|context|page)\}", lambda found: self.first.get(found[1], "none"), text)


def events(text):
    """The data of each event, by the type of the event; comments are not events."""
    for block in re.split(r"\r?\n\r?\n", text):
        lines = [line for line in block.splitlines() if line and not line.startswith(":")]
        data = "\n".join(line.removeprefix("data:").strip() for line in lines if line.startswith("data:"))
        if data:
            yield [[line for line in lines if not line.startswith("data:")], json.loads(data)]


def read(answer, alike):
    headers = {name: answer.headers[name] for name in COMPARED if name in answer.headers}
    if "content-type" in headers:
        headers["content-type"] = headers["content-type"].replace(" ", "").lower().removesuffix(";charset=utf-8")
    if headers.get("content-type") == "text/event-stream":
        body = [[kind, alike.value(data)] for kind, data in events(answer.text)]
    else:
        try:
            body = alike.value(answer.json())
        except ValueError:
            body = alike.text(answer.text)
    return {"status": answer.status_code, "headers": headers, "body": body}


def play(client, channel, base, steps):
    """What this server answers to the steps of a case."""
    alike = Alike(base.rstrip("/"), channel.address)
    said = []
    for step in steps:
        body = None if step.body is None else alike.fill(step.body.decode()).encode()
        if step.method == over_grpc.METHOD:
            status, found = channel.call(step.path, json.loads(body), step.headers)
            said.append({"status": status, "body": alike.value(found)})
            continue
        url = f"{base.rstrip('/')}{alike.fill(step.path)}" or "/"
        said.append(read(client.request(step.method, url, content=body, headers=step.headers), alike))
    return said


def difference(direct, face):
    """The first member in which two values differ, in words; none when they are equal."""
    if type(direct) is type(face) is dict:
        pairs = [(name, direct.get(name, "(none)"), face.get(name, "(none)")) for name in {**direct, **face}]
    elif type(direct) is type(face) is list and len(direct) == len(face):
        pairs = [(str(index), *both) for index, both in enumerate(zip(direct, face))]
    else:
        return None if direct == face else f": {json.dumps(direct)[:500]} became {json.dumps(face)[:500]}"
    for name, *both in pairs:
        if found := difference(*both):
            return f".{name}{found}"
    return None


def compare(clients, channels, bases, case):
    """None when agent and gateway say the same, else what differs."""
    name, steps = case
    try:
        direct, face = (play(*side, steps) for side in zip(clients, channels, bases))
    except Exception as error:
        return name, f"{type(error).__name__}: {error}"
    return name, difference(direct, face)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=ALLOWED)
    parser.add_argument("bases", nargs=2)
    parser.add_argument("key", nargs="?")
    parser.add_argument("--case", action="append", default=[])
    options = parser.parse_args()
    proof = {"x-api-key": options.key} if options.key else {}
    clients = [httpx.Client(timeout=60), httpx.Client(timeout=60, headers=proof)]
    cards = [client.get(f"{base.rstrip('/')}/.well-known/agent-card.json").json() for client, base in zip(clients, options.bases)]
    channels = [over_grpc.Channel(card, headers) for card, headers in zip(cards, ({}, proof))]
    wanted = [case for case in cases.all_cases() if not options.case or any(one in case[0] for one in options.case)]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for name, found in pool.map(lambda case: compare(clients, channels, options.bases, case), wanted):
            reason = ALLOWED[options.mode].get(name)
            if bool(found) == bool(reason):
                print(f"ok {name}" + (f" differs: {reason}" if found else ""))
                continue
            failed += 1
            print(f"FAILED {name}: {found or f'equal, though it may differ: {reason}'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
