"""The agent that the clients of all frameworks ask: a2a-sdk 1.3, the story of `script.py`, one skill for each kind of case.

Beyond the interop agents it gives data beside its words, and a file by its URL.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "agents")]
import behaviour  # noqa: E402
import py1  # noqa: E402
import script  # noqa: E402
from a2a.types import Part  # noqa: E402


def say(words):
    return lambda _: iter([("chunk", words, True, True)])


def tide_data(_):
    yield ("chunk", script.WORDS, True, True)
    yield ("data", script.DATA)


def tide_long(said):
    last = said[-1].rpartition(" ")[2]
    for second in range(int(last) if last.isdecimal() else script.LONG_SECONDS):
        yield ("working", f"hour {second}")
        yield ("pause", 1)
    yield ("chunk", script.LONG_WORDS, True, True)


def tide_link(_):
    yield ("chunk", script.WORDS, True, True)
    yield ("file", script.LINK)


def turns(skill, said):
    """The steps of one turn, as `behaviour.steps` gives them."""
    if skill == "tide_failure":
        yield ("fail", script.FAILURE)
    elif skill == "tide_question" and len(said) == 1:
        yield ("ask", script.QUESTION)
    else:
        yield from TURNS[skill](said)
        yield ("complete",)


TURNS = {
    "tide_text": say(script.WORDS),
    "tide_data": tide_data,
    "tide_question": say(script.ANSWERED),
    "tide_long": tide_long,
    "tide_link": tide_link,
    "tide_failure": None,
}


class Executor(py1.Executor):
    async def act(self, updater, kind, *rest):
        if kind != "file":
            return await super().act(updater, kind, *rest)
        file = Part(url=rest[0], filename="dover.pdf", media_type="application/pdf")
        await updater.add_artifact([file], artifact_id="file", name="file")


behaviour.SKILLS = {name: f"Tells the tide: {name.removeprefix('tide_')}" for name in TURNS}
behaviour.steps = turns
py1.Executor = Executor
py1.main()
