"""What the agents of the frameworks share: the scripted model's URL, the story, and how they are served.

Usage of each agent: NAME.py MODEL_URL. It prints `ready CARD_URL` once it listens. Not an agent.
"""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "agents")]
import script  # noqa: E402, F401
from serving import listen, serve  # noqa: E402, F401

MODEL = sys.argv[1]
NAME = "tide"
ABOUT = "Tells the tide"
os.environ.update(OPENAI_API_KEY="none", OPENAI_BASE_URL=MODEL, OPENAI_API_BASE=MODEL, OTEL_SDK_DISABLED="true")
