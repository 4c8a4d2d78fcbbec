"""What the Python agents of the interop tests do, free of any SDK.

Not an agent: `slash.py`, `py1.py` and `py01.py` turn these steps into the events of their
own version of A2A. `story.mjs` tells the same story in JavaScript.

A step is a tuple:
  ("working", text)            a status message while the work goes on
  ("chunk", text, first, last) a piece of the one text artifact "answer"
  ("data", value)              an artifact with one data part
  ("ids",)                     the artifact "answer": the ids of task and context as the agent knows them
  ("pause", seconds)
  ("ask", text)                the task waits for the user (input-required), the turn ends
  ("authorize", text, url)     the task waits until the user was at the URL (auth-required), the turn goes on
  ("complete",) ("fail", text) ("reject", text) the end
"""

SKILLS = {
    "echo": "Gives the text back",
    "stream": "Tells of its progress, then gives the text back in pieces",
    "slow": "Takes a few seconds, then gives the text back",
    "ask": "Asks one question, then completes with the answer",
    "fail": "Always fails, and says why",
    "data": "Gives structured data back",
    "work": "Works for as many seconds as the text says, and tells of each",
    "twice": "Asks two questions in a row, then completes with both answers",
    "later": "Works for a while, then asks one question and completes with the answer",
    "chunks": "Gives an answer in as many pieces as the text says",
    "reject": "Rejects every task, and says why",
    "login": "Needs the user at a web page, then goes on by itself",
    "fate": "Tells whether the work that was asked for with this text was canceled",
    "ids": "Tells by which ids the agent knows this task and its context",
}
EXTENDED = {"more": "Is shown only to who asks for the extended card"}
LOGIN = "https://login.example/start?flow=interop"
PATIENCE = 2  # seconds that `login` waits for the user, and that `later` works before it asks

TALKS = {}  # by task id: the skill of its first turn, and what the user has said so far
CANCELED = set()  # first texts of tasks that were canceled


def choose(metadata, text):
    """The skill to run and the text for it: metadata `skillId`, else the first word."""
    named = (metadata or {}).get("skillId")
    if named in SKILLS:
        return named, text
    first, _, rest = text.partition(" ")
    return (first, rest) if first in SKILLS else ("echo", text)


def hear(task, metadata, text):
    """What the user said in this turn of a task. Returns the skill of the task and all that was said."""
    if task not in TALKS:
        skill, text = choose(metadata, text)
        TALKS[task] = (skill, [text])
    else:
        TALKS[task][1].append(text)
    return TALKS[task]


def cancel(task):
    """Notes that a task was canceled."""
    if task in TALKS:
        CANCELED.add(TALKS[task][1][0])


def number(text, default):
    first = text.split(" ", 1)[0]
    return int(first) if first.isdecimal() else default


def steps(skill, said):
    """The turn as steps; `said` are the texts of all its turns until now."""
    text = said[-1]
    if skill in QUESTIONS and len(said) <= len(QUESTIONS[skill]):
        if skill == "later":
            yield ("working", "thinking")
            yield ("pause", PATIENCE)
        yield ("ask", QUESTIONS[skill][len(said) - 1])
        return
    if skill == "fail":
        yield ("working", "trying")
        yield ("fail", "It went wrong on purpose")
        return
    if skill == "reject":
        yield ("reject", "That is not for me")
        return
    if skill in TURNS:
        yield from TURNS[skill](text)
    elif skill == "fate":
        yield ("chunk", "canceled" if text in CANCELED else "not canceled", True, True)
    elif skill == "ids":
        yield ("ids",)
    elif skill in ("ask", "later"):
        yield ("chunk", f"The colour is {text}", True, True)
    elif skill == "twice":
        yield ("chunk", f"The colour is {said[1]}, the size is {said[2]}", True, True)
    else:
        yield ("chunk", text, True, True)
    yield ("complete",)


def data(text):
    yield ("data", {"text": text, "list": [1, 2, 3], "nested": {"ok": True}})


def stream(text):
    for percent in (25, 50, 75):
        yield ("working", f"{percent} percent done")
        yield ("pause", 0.05)
    third = max(1, len(text) // 3)
    pieces = [text[:third], text[third : 2 * third], text[2 * third :]]
    for index, piece in enumerate(pieces):
        yield ("chunk", piece or " ", index == 0, index == 2)
        yield ("pause", 0.02)


def slow(text):
    for second in range(3):
        yield ("working", f"{second} seconds gone")
        yield ("pause", 1)
    yield ("chunk", text, True, True)


def work(text):
    seconds = number(text, 3)
    for second in range(seconds):
        yield ("working", f"{second} of {seconds} seconds gone")
        yield ("pause", 1)
    yield ("chunk", f"Worked for {seconds} seconds", True, True)


def chunks(text):
    count = number(text, 1000)
    for index in range(count):
        yield ("chunk", f"{index};", index == 0, index == count - 1)


def login(_):
    yield ("authorize", "Sign in to go on", LOGIN)
    yield ("pause", PATIENCE)
    yield ("chunk", "You are signed in", True, True)


TURNS = {"data": data, "stream": stream, "slow": slow, "work": work, "chunks": chunks, "login": login}
QUESTIONS = {"ask": ["Which colour?"], "later": ["Which colour?"], "twice": ["Which colour?", "Which size?"]}
