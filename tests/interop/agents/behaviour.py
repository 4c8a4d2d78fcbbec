"""What the Python agents of the interop tests do, free of any SDK.

Not an agent: `py03.py` and `py1.py` turn these steps into the events of their own
A2A SDK. `js1.mjs` tells the same story in JavaScript.

A step is a tuple:
  ("working", text)            a status message while the work goes on
  ("chunk", text, first, last) a piece of the one text artifact "answer"
  ("data", value)              an artifact with one data part
  ("pause", seconds)
  ("ask", text)                the task waits for the user (input-required), the turn ends
  ("complete",) ("fail", text) the end
"""

SKILLS = {
    "echo": "Gives the text back",
    "stream": "Tells of its progress, then gives the text back in pieces",
    "slow": "Takes a few seconds, then gives the text back",
    "ask": "Asks one question, then completes with the answer",
    "fail": "Always fails, and says why",
    "data": "Gives structured data back",
}


def choose(metadata, text):
    """The skill to run and the text for it: metadata `skillId`, else the first word."""
    named = (metadata or {}).get("skillId")
    if named in SKILLS:
        return named, text
    first, _, rest = text.partition(" ")
    return (first, rest) if first in SKILLS else ("echo", text)


def steps(skill, text, continued):
    """The turn as steps. `continued`: this message answers the question of an open task."""
    if skill == "ask" and not continued:
        yield ("ask", "Which colour?")
        return
    if skill == "fail":
        yield ("working", "trying")
        yield ("fail", "It went wrong on purpose")
        return
    if skill == "data":
        yield ("data", {"text": text, "list": [1, 2, 3], "nested": {"ok": True}})
    elif skill == "stream":
        for percent in (25, 50, 75):
            yield ("working", f"{percent} percent done")
            yield ("pause", 0.05)
        third = max(1, len(text) // 3)
        pieces = [text[:third], text[third : 2 * third], text[2 * third :]]
        for index, piece in enumerate(pieces):
            yield ("chunk", piece or " ", index == 0, index == 2)
            yield ("pause", 0.02)
    elif skill == "slow":
        for second in range(3):
            yield ("working", f"{second} seconds gone")
            yield ("pause", 1)
        yield ("chunk", text, True, True)
    elif skill == "ask":
        yield ("chunk", f"The colour is {text}", True, True)
    else:
        yield ("chunk", text, True, True)
    yield ("complete",)
