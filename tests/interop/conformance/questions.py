"""What the conformance fixture asks the user, and how it tells the gateway to put it.

Data only; `fixture.py` asks. The conventions are the gateway's: metadata of the status message,
`mcp.inputKey` (the name of the input), `mcp.requestedSchema` (the form), or `mcp.inputRequests`
for several questions at once: {key: {message, requestedSchema}}.
"""


def form(properties, required=None):
    wanted = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": wanted}


def titled(*pairs):
    return [{"const": value, "title": title} for value, title in pairs]


NAME = form({"name": {"type": "string"}})
CONFIRM = form({"confirm": {"type": "boolean"}})
OK = form({"ok": {"type": "boolean"}})
COLOR = form({"color": {"type": "string"}})
USER = form(
    {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
)
DEFAULTS = form(
    {
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "description": "Verification status", "default": True},
    },
    required=[],
)
ENUMS = form(
    {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": titled(("value1", "First Option"), ("value2", "Second Option"), ("value3", "Third Option")),
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": titled(("value1", "First Choice"), ("value2", "Second Choice"), ("value3", "Third Choice"))
            },
        },
    },
    required=[],
)


def ask(message, key, schema):
    """One question: what the user reads, and the metadata that says how to put it."""
    return message, {"mcp.inputKey": key, "mcp.requestedSchema": schema}


WHO = ask("What is your name?", "user_name", NAME)
CONFIRMED = ask("Please confirm", "confirm", OK)
BOTH = {
    "name": {"message": "What is your name?", "requestedSchema": NAME},
    "confirm": {"message": "Go on?", "requestedSchema": CONFIRM},
}

# By tool, one question for each turn.
QUESTIONS = {
    "test_input_required_result_elicitation": [WHO],
    "test_input_required_result_request_state": [CONFIRMED],
    "test_input_required_result_multi_round": [
        ask("Step 1: What is your name?", "step1", NAME),
        ask("Step 2: What is your favorite color?", "step2", COLOR),
    ],
    "test_input_required_result_tampered_state": [CONFIRMED],
    "test_input_required_result_capabilities": [WHO],
    "test_elicitation": [ask("", "user", USER)],  # the words come with the call
    "test_elicitation_sep1034_defaults": [ask("Please review the defaults", "user", DEFAULTS)],
    "test_elicitation_sep1330_enums": [ask("Please choose", "choice", ENUMS)],
    "test_tool_with_task": [WHO],
    "confirm_delete": [ask("Delete it?", "confirm", CONFIRM)],
    "multi_input": [("Two things", {"mcp.inputRequests": BOTH})],
}
# These work before they ask, so that a client that knows tasks has one by then.
LATE = {"confirm_delete", "multi_input"}
# And this one after the answer.
LONG = {"test_tool_with_task"}
