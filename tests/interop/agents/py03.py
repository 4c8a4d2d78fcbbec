"""A real A2A 0.3 agent on the official Python SDK, `a2a-sdk` 0.3.26.

Not a mock: the SDK makes every byte on the wire. What it does is in `behaviour.py` and `slash.py`.
"""

from slash import main

main("Python 0.3 agent", "The interop agent on a2a-sdk 0.3")
