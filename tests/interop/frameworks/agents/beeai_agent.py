"""beeai-framework by its A2AServer."""

import threading
import time
import urllib.request

from telling import ABOUT, MODEL, NAME, listen

from beeai_framework.adapters.a2a.serve.server import A2AServer, A2AServerConfig
from beeai_framework.adapters.openai.backend.chat import OpenAIChatModel
from beeai_framework.agents.requirement import RequirementAgent
from beeai_framework.memory import UnconstrainedMemory
from beeai_framework.serve.utils import LRUMemoryManager

listener, url = listen(0)
listener.close()  # its server opens a socket of its own
port = int(url.rstrip("/").rpartition(":")[2])


def tell():
    while True:
        try:
            urllib.request.urlopen(f"{url}.well-known/agent-card.json")
            return print(f"ready {url}", flush=True)
        except OSError:
            time.sleep(0.1)


llm = OpenAIChatModel("scripted", base_url=MODEL, api_key="none", tool_choice_support=set())
agent = RequirementAgent(llm=llm, tools=[], memory=UnconstrainedMemory(), name=NAME, description=ABOUT)
server = A2AServer(config=A2AServerConfig(host="127.0.0.1", port=port), memory_manager=LRUMemoryManager(maxsize=100))
threading.Thread(target=tell, daemon=True).start()
server.register(agent, name=NAME, send_trajectory=False).serve()
