"""LangChain: langchain-mcp-adapters, and the message converter of one provider, offline. Variants: openai, responses, google,
aws, anthropic. The scripted model reads the converted messages and the converted tools, as the provider would have."""

import json

import driver
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_tools import tools_of


def openai(messages):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="gpt-4o", api_key="none")._get_request_payload(messages)


def responses(messages):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="gpt-4o", api_key="none", use_responses_api=True)._get_request_payload(messages)


def google(messages):
    from langchain_google_genai import chat_models

    model = chat_models.ChatGoogleGenerativeAI(model="gemini-2.5-pro", google_api_key="none")
    return model._prepare_request(messages)


def aws(messages):
    from langchain_aws.chat_models.bedrock_converse import _messages_to_bedrock

    return _messages_to_bedrock(messages)


def anthropic(messages):
    from langchain_anthropic import ChatAnthropic

    return ChatAnthropic(model="claude-sonnet-4-5", api_key="none")._get_request_payload(messages)


CONVERTERS = {"openai": openai, "responses": responses, "google": google, "aws": aws, "anthropic": anthropic}


class Scripted(BaseChatModel):
    """Converts for the provider, then does what the script says on the results that the conversion holds."""

    provider: str
    model_url: str
    prompt: str
    declared: list = []

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **_):
        return self.model_copy(update={"declared": tools_of(self.provider, tools)})

    def _generate(self, messages, stop=None, run_manager=None, **_):
        wire = []  # one conversion for each result, so that one is told from another
        results = [at for at, one in enumerate(messages) if isinstance(one, ToolMessage)]
        CONVERTERS[self.provider](messages)
        for at in results:
            converted = CONVERTERS[self.provider](messages[: at + 1])
            wire.append(json.dumps(last_of(converted), default=str, ensure_ascii=False))
        said = driver.next_step(self.model_url, self.prompt, wire, self.declared)
        if "call" in said:
            call = {"name": said["call"], "args": said["arguments"], "id": f"call_{len(results)}"}
            message = AIMessage(content="", tool_calls=[call])
        else:
            message = AIMessage(content=said["say"])
        return ChatResult(generations=[ChatGeneration(message=message)])


def last_of(converted):
    """The last message of a converted conversation, which holds the result."""
    if isinstance(converted, tuple):
        converted = converted[0]
    if isinstance(converted, dict):
        converted = converted.get("messages") or converted.get("input") or converted.get("contents")
    elif hasattr(converted, "contents"):
        converted = converted.contents
    return converted[-1]


async def run(provider, mcp_url, model_url, prompt):
    client = MultiServerMCPClient({"gateway": {"transport": "streamable_http", "url": mcp_url}})
    model = Scripted(provider=provider, model_url=model_url, prompt=prompt)
    agent = create_agent(model, await client.get_tools())
    await agent.ainvoke({"messages": [("user", prompt)]})


driver.main(run)
