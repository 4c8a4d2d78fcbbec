"""python-a2a's A2AServer, whose card says 0.3 and whose methods are those of 0.1."""

from telling import ABOUT, MODEL, NAME, script

from openai import OpenAI
from python_a2a import A2AServer, AgentCard, AgentSkill, TaskState, TaskStatus
from python_a2a.server.http import create_flask_app
from werkzeug.serving import make_server

model = OpenAI(base_url=MODEL, api_key="none")


class Tide(A2AServer):
    def handle_task(self, task):
        text = (task.message.get("parts") or [task.message.get("content")])[0]["text"]
        try:
            said = model.chat.completions.create(model="scripted", messages=[{"role": "user", "content": text}])
        except Exception as error:
            task.status = TaskStatus(state=TaskState.FAILED, message={"role": "agent", "parts": [{"type": "text", "text": str(error)}]})
            return task
        parts = [{"type": "text", "text": said.choices[0].message.content}]
        if script.kind_of(text) == "data":
            parts.append({"type": "data", "data": script.DATA})
        if text == "tide question":
            asks = {"role": "agent", "parts": [{"type": "text", "text": script.QUESTION}]}
            task.status = TaskStatus(state=TaskState.INPUT_REQUIRED, message=asks)
        else:
            task.artifacts = [{"parts": parts}]
            task.status = TaskStatus(state=TaskState.COMPLETED)
        return task


card = AgentCard(name=NAME, description=ABOUT, url="", version="1.0.0", skills=[AgentSkill(name=NAME, description=ABOUT, id=NAME)])
server = make_server("127.0.0.1", 0, create_flask_app(Tide(card)), threaded=True)
url = f"http://127.0.0.1:{server.server_port}"
card.url = f"{url}/tasks/send"  # the one address of its own where a JSON-RPC request is read as such
print(f"ready {url}", flush=True)
server.serve_forever()
