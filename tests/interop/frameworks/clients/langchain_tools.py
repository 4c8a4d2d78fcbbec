"""How LangChain's packages put tools into a provider's own form. Free of any client."""

from langchain_core.utils.function_calling import convert_to_openai_tool


def tools_of(provider, tools):
    """The tools as OpenAI's functions, after the provider's own converter took them without an error."""
    if provider == "google":
        from langchain_google_genai._function_utils import convert_to_genai_function_declarations

        convert_to_genai_function_declarations(tools)
    elif provider == "aws":
        from langchain_aws.chat_models.bedrock_converse import _format_tools

        _format_tools(tools)
    elif provider == "anthropic":
        from langchain_anthropic.chat_models import convert_to_anthropic_tool

        for tool in tools:
            convert_to_anthropic_tool(tool)
    return [convert_to_openai_tool(tool)["function"] for tool in tools]
