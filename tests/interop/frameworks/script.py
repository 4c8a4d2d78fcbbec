"""What the scripted models say: the story that the agents of all frameworks tell, and how a model that has tools
goes on by what it was shown. Free of any framework; `model.py` serves it in place of a model's API.

An agent's model is asked `tide KIND` and tells the story below. A client's model is asked `case ID: TOOL ARGUMENTS`: it calls
that tool, and from then on does only what the text that it is shown asks for, so an answer that lost its question or its
handle on the way to the model ends the case.
"""

import fnmatch
import json
import re

WORDS = "The tide is high at Dover"
DATA = {"harbour": "Dover", "metres": 4.5}
QUESTION = "Which harbour do you mean?"
ANSWER = "Calais"
ANSWERED = f"The tide is low at {ANSWER}"
LONG_SECONDS = 4
LONG_WORDS = "The tide was watched to its turn"
FAILURE = "The tide table is lost"
LINK = "https://tides.example/dover.pdf"
KINDS = ("text", "data", "question", "long", "failure")
MOST_CALLS = 12  # of one case

ASKED = re.compile(r"case (\S+): (\S+) (\{.*?\})\s*(?:$|\n)", re.S)
HANDLE = re.compile(r'all (?:this tool again|(\w+)) with taskId=\\*"([^"\\]+)')

DATA_ANSWER = re.compile(r"the answer as data: (\{[^{}]*\})")


def kind_of(text):
    """The kind of story that a user's text asks an agent for."""
    found = re.findall(r"tide (\w+)", text)
    return found[-1] if found else "text"


def next_call(prompt, shown, last_tool=None):
    """The tool and the arguments that a model calls after it was shown these results; None: it has its answer."""
    asked = ASKED.search(prompt)
    if not asked or len(shown) >= MOST_CALLS:
        return None
    if not shown:
        return asked[2], json.loads(asked[3])
    handle = HANDLE.search(shown[-1])
    if not handle:
        return None
    wanted = DATA_ANSWER.search(shown[-1].replace('\\"', '"'))
    answer = {"data": json.loads(wanted[1])} if wanted else {"text": ANSWER} if "the answer as text" in shown[-1] else {}
    return handle[1] or last_tool or asked[2], {"taskId": handle[2], **answer}


def listed(name, tools):
    """The listed tool that a name or a pattern means: some clients put a prefix before every name."""
    return next((tool for tool in tools if fnmatch.fnmatchcase(tool, f"*{name}")), None)


def filled(arguments, schema):
    """The arguments with every required property that is missing, empty: a model in strict mode gives them all."""
    whole = dict(arguments)
    for name in schema.get("required", []):
        whole.setdefault(name, empty(schema.get("properties", {}).get(name, {})))
    return whole


def empty(schema):
    """The value that a model in strict mode gives for an argument that it has no use for."""
    kinds = [schema.get("type")] if isinstance(schema.get("type"), str) else schema.get("type") or []
    kinds += [one.get("type") for one in schema.get("anyOf", [])]
    return None if "null" in kinds else {"array": [], "object": {}, "string": ""}.get((kinds or ["string"])[0])
