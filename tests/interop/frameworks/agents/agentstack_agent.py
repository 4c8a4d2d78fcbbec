"""agentstack-sdk's Server: chunks as `working` messages, data as a part, a question as InputRequired."""

from telling import ABOUT, MODEL, NAME, listen, script

import asyncio

from a2a.types import DataPart, Message, Part, Role, TextPart
from a2a.utils.message import get_message_text
from agentstack_sdk.a2a.types import AgentMessage, InputRequired
from agentstack_sdk.server import Server
from openai import AsyncOpenAI

listener, url = listen(0)
listener.close()  # its server opens a socket of its own
port = int(url.rstrip("/").rpartition(":")[2])
server = Server()
model = AsyncOpenAI(base_url=MODEL, api_key="none")


@server.agent(name=NAME, description=ABOUT)
async def tide(input: Message):
    text = get_message_text(input)
    if text == "tide question":
        yield InputRequired(text=script.QUESTION)
        text = "tide question"
    messages = [{"role": "user", "content": text if "tide" in text else f"tide question {text}"}]
    async for chunk in await model.chat.completions.create(model="scripted", messages=messages, stream=True):
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content
    if script.kind_of(text) == "data":
        yield script.DATA


async def tell():
    while server.server is None or not server.server.started:
        await asyncio.sleep(0.1)
    print(f"ready {url}", flush=True)


async def main():
    asyncio.create_task(tell())
    await server.serve(host="127.0.0.1", port=port, self_registration=False)


asyncio.run(main())
