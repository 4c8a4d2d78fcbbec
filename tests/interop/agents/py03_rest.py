"""The agent of `py03.py`, over HTTP+JSON of A2A 0.3 and no JSON-RPC: the REST server of `a2a-sdk` 0.3.26.

Not a mock: the SDK makes every byte on the wire. What it does is in `behaviour.py` and `slash.py`.
"""

from a2a.server.apps.rest import A2ARESTFastAPIApplication

from slash import main

main("Python 0.3 agent", "The interop agent on a2a-sdk 0.3, by HTTP+JSON", A2ARESTFastAPIApplication, "HTTP+JSON")
