"""Which frameworks there are, where each is installed, and what a cell must show. `run` asks them.

A cell that cannot be has its reason here. A framework's own fault is such a reason only where a plain A2A or MCP
peer of it fails in the same way.
"""

import dataclasses

import script

# What the model must have read, all of it, when a case is over; by kind.
EXPECTED = {
    "text": [script.WORDS],
    "data": [script.WORDS, str(script.DATA["metres"])],
    "question": [script.ANSWERED],
    "long": [script.LONG_WORDS],
    "limit": [script.LONG_WORDS],
    "failure": [script.FAILURE],
    "link": [script.WORDS, script.LINK],
}


@dataclasses.dataclass
class Row:
    """One framework as an agent or as a client."""

    name: str
    venv: str  # its requirements file, `js` for Node
    script: str  # in `agents` or `clients`
    variant: str = "-"
    quick: bool = False
    cannot: dict = dataclasses.field(default_factory=dict)  # by kind: why the cell is not run
    expected: dict = dataclasses.field(default_factory=dict)  # by kind: instead of EXPECTED
    asks: str = script.QUESTION  # the words of an agent's question
    limit: int = 0  # seconds that its client waits by itself; 0: for ever
    settings: dict = dataclasses.field(default_factory=dict)  # beside its card in the gateway's configuration


TEXT_ONLY = "its server sends text alone, and no data"
NO_QUESTION = "its server has no means to ask the user"
PROGRESS_ONLY = "its server sends data of tools as progress alone, and an answer as text"
STREAM_ENDS_WELL = "its stream ends a failed run as completed, without a word"
FIRST_BLOCK = "its client shows the first block of a result alone"
A_PATH_EACH = "its server has a path for each method: where a message can be sent, a task cannot be asked for"
NOT_WRITTEN = "not written yet: it sends data for structured output, which this agent does not give"
NO_LIMIT = "its client sets no time limit of its own"

NEITHER = {"data": TEXT_ONLY, "question": NO_QUESTION}
NO_WORDS = {"failure": ["The agent failed the task"]}  # its server gives no reason of a failure
AGENTS = [
    Row("agent-framework", "mcp2", "agent_framework_agent.py", quick=True, cannot=NEITHER),
    Row("google-adk", "mcp2", "adk.py", quick=True, cannot={"data": PROGRESS_ONLY}, asks="Please approve or reject the tool call"),
    Row("fasta2a", "mcp2", "fasta2a_agent.py", cannot={"data": NOT_WRITTEN, "question": NO_QUESTION}, expected=NO_WORDS),
    Row("agno", "mcp1", "agno_agent.py", quick=True, cannot={**NEITHER, "failure": STREAM_ENDS_WELL}),
    Row("python-a2a", "mcp1", "python_a2a_agent.py", quick=True, cannot={"question": A_PATH_EACH}, settings={"protocol": "0.1"}),
    Row("strands", "others", "strands_agent.py", cannot={"data": TEXT_ONLY}, expected=NO_WORDS),
    Row("beeai", "beeai", "beeai_agent.py", cannot=NEITHER, expected=NO_WORDS),
    Row("langgraph", "others", "langgraph_agent.py", cannot={"data": TEXT_ONLY}),
    Row("agentstack", "agentstack", "agentstack_agent.py"),
    Row("mastra", "js", "mastra.mjs", cannot=NEITHER),
    Row("voltagent", "js", "voltagent.mjs", cannot=NEITHER),
]
CLIENTS = [
    Row("openai-agents", "mcp2", "openai_agents.py", "plain", limit=5),
    Row("openai-agents strict", "mcp2", "openai_agents.py", "strict", quick=True, limit=5),
    Row("openai-agents structured", "mcp2", "openai_agents.py", "structured", quick=True, limit=5),
    Row("pydantic-ai", "mcp2", "pydantic_ai_client.py", quick=True),
    Row("agent-framework", "mcp2", "agent_framework_client.py"),
    Row("autogen workbench", "mcp1", "autogen.py", "workbench", quick=True),
    Row("autogen tools", "mcp1", "autogen.py", "tools", quick=True),
    Row("semantic-kernel", "mcp1", "semantic_kernel_client.py", quick=True),
    Row("langchain openai", "mcp1", "langchain_client.py", "openai", quick=True),
    Row("langchain responses", "mcp1", "langchain_client.py", "responses"),
    Row("langchain google", "mcp1", "langchain_client.py", "google", quick=True),
    Row("langchain aws", "mcp1", "langchain_client.py", "aws", quick=True),
    Row("langchain anthropic", "mcp1", "langchain_client.py", "anthropic"),
    Row("google-adk", "mcp2", "adk_client.py"),
    Row("smolagents text", "others", "smolagents_client.py", "text", cannot={"data": FIRST_BLOCK, "link": FIRST_BLOCK}),
    Row("smolagents structured", "others", "smolagents_client.py", "structured"),
    Row("beeai", "others", "beeai.py"),
    Row("llama-index", "llama_index", "llama_index_client.py", limit=30),
    Row("vercel ai", "js", "vercel.mjs"),
]
AGENT_KINDS = ("text", "data", "question", "long", "failure")
CLIENT_KINDS = (*AGENT_KINDS, "link", "limit")
# Converters of tools; the first word of a name is that of the framework.
SCHEMAS = [
    Row("openai-agents strict", "mcp2", "schemas.py", "strict", quick=True),
    Row("google-genai", "mcp2", "schemas.py", "genai", quick=True),
    Row("autogen", "mcp1", "schemas.py", "autogen", quick=True),
    Row("semantic-kernel", "mcp1", "schemas.py", "semantic-kernel", quick=True),
    Row("langchain openai", "mcp1", "schemas.py", "openai", quick=True),
    Row("langchain google", "mcp1", "schemas.py", "google", quick=True),
    Row("langchain aws", "mcp1", "schemas.py", "aws", quick=True),
    Row("langchain anthropic", "mcp1", "schemas.py", "anthropic", quick=True),
    Row("inspector", "inspector", "", quick=True),
]
SDK = Row("sdk", "mcp2", "sdk.py")  # the agent that all clients ask
PLAIN = Row("plain", "mcp2", "plain.py")  # the client that asks all agents
