"""Writes the golden pairs of JSON and protobuf beside this file, with the official message types.

    python3 make.py VERSION     # 1.0 with a2a-sdk 1.x installed, 0.3 with a2a-sdk 0.3.x; each needs `protobuf` too

Each pair has the JSON of a message as the gateway writes it, and the bytes of the official library in base64.
"""

import base64
import json
import pathlib
import sys

from google.protobuf import json_format

MESSAGE = {
    "messageId": "m-1",
    "contextId": "c-1",
    "role": "ROLE_USER",
    "parts": [
        {"text": "Grüße \"quoted\" \u0007 \U0001f600"},
        {"raw": "AAECA/8=", "filename": "a.bin", "mediaType": "application/octet-stream"},
        {"url": "https://files.example/a.png", "mediaType": "image/png"},
        {"data": {"n": 1, "f": 0.5, "neg": -7, "big": 9007199254740991, "s": "", "none": None, "yes": True, "list": [[], {}, [1, "x"]]}},
        {"data": [1, 2]},
        {"data": None},
        {"text": "", "metadata": {"k": "v"}},
    ],
    "metadata": {"trace": {"id": "t"}},
    "extensions": ["https://ext.example/a"],
    "referenceTaskIds": ["t-0"],
}
TASK = {
    "id": "t-1",
    "contextId": "c-1",
    "status": {
        "state": "TASK_STATE_INPUT_REQUIRED",
        "message": {"messageId": "m-2", "role": "ROLE_AGENT", "parts": [{"text": "Which?"}]},
        "timestamp": "2026-03-01T12:34:56.789Z",
    },
    "artifacts": [
        {"artifactId": "a-1", "name": "n", "description": "d", "parts": [{"text": "x"}], "metadata": {}, "extensions": ["e"]}
    ],
    "history": [{"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}],
    "metadata": {"cost": 1.25},
}
PUSH = {"id": "p-1", "taskId": "t-1", "url": "https://hook.example/", "token": "secret", "authentication": {"scheme": "Bearer", "credentials": "c"}}
CARD = {
    "name": "Echo",
    "description": "Echoes",
    "supportedInterfaces": [{"url": "https://a.example", "protocolBinding": "GRPC", "tenant": "echo", "protocolVersion": "1.0"}],
    "provider": {"url": "https://p.example", "organization": "P"},
    "version": "1",
    "documentationUrl": "https://d.example",
    "capabilities": {"streaming": True, "pushNotifications": False, "extensions": [{"uri": "u", "required": True, "params": {"a": [1]}}]},
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "oauth": {
            "oauth2SecurityScheme": {
                "flows": {"clientCredentials": {"tokenUrl": "https://t.example", "scopes": {"read": "Reads"}}},
                "oauth2MetadataUrl": "https://m.example",
            }
        },
        "mtls": {"mtlsSecurityScheme": {}},
    },
    "securityRequirements": [{"schemes": {"key": {}}}, {"schemes": {"oauth": {"list": ["read"]}}}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "S", "description": "d", "tags": ["t"], "examples": ["e"]}],
    "signatures": [{"protected": "p", "signature": "s", "header": {"kid": "k"}}],
}
ONE = [
    ("SendMessage", "request", "SendMessageRequest", {"tenant": "t", "message": MESSAGE, "configuration": {"acceptedOutputModes": ["text/plain"], "taskPushNotificationConfig": PUSH, "historyLength": 0, "returnImmediately": True}, "metadata": {"m": None}}),
    ("SendMessage", "response", "SendMessageResponse", {"task": TASK}),
    ("SendMessage", "response", "SendMessageResponse", {"message": MESSAGE}),
    ("SendStreamingMessage", "response", "StreamResponse", {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING", "timestamp": "1969-12-31T23:59:59.000001Z"}, "metadata": {"x": {"y": []}}}}),
    ("SendStreamingMessage", "response", "StreamResponse", {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"text": "part"}]}, "append": True, "lastChunk": True}}),
    ("GetTask", "request", "GetTaskRequest", {"id": "t-1", "historyLength": 3}),
    ("GetTask", "response", "Task", TASK),
    ("ListTasks", "request", "ListTasksRequest", {"contextId": "c", "status": "TASK_STATE_WORKING", "pageSize": 5, "pageToken": "p", "historyLength": 0, "statusTimestampAfter": "2026-01-01T00:00:00Z", "includeArtifacts": False}),
    ("ListTasks", "response", "ListTasksResponse", {"tasks": [TASK], "nextPageToken": "", "pageSize": 50, "totalSize": 1}),
    ("ListTasks", "response", "ListTasksResponse", {"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0}),
    ("CancelTask", "request", "CancelTaskRequest", {"id": "t-1", "metadata": {"why": "late"}}),
    ("SubscribeToTask", "request", "SubscribeToTaskRequest", {"tenant": "x", "id": "t-1"}),
    ("CreateTaskPushNotificationConfig", "request", "TaskPushNotificationConfig", PUSH),
    ("ListTaskPushNotificationConfigs", "request", "ListTaskPushNotificationConfigsRequest", {"taskId": "t-1", "pageSize": -1, "tenant": "z"}),
    ("ListTaskPushNotificationConfigs", "response", "ListTaskPushNotificationConfigsResponse", {"configs": [PUSH], "nextPageToken": "n"}),
    ("DeleteTaskPushNotificationConfig", "request", "DeleteTaskPushNotificationConfigRequest", {"taskId": "t-1", "id": "p-1"}),
    ("GetExtendedAgentCard", "response", "AgentCard", CARD),
]

OLD_MESSAGE = {
    "messageId": "m-1",
    "contextId": "c-1",
    "role": "ROLE_USER",
    "content": [
        {"text": "hello"},
        {"file": {"fileWithUri": "https://files.example/a.png", "mimeType": "image/png", "name": "a.png"}},
        {"file": {"fileWithBytes": "AAECA/8="}},
        {"data": {"data": {"a": {"b": [None, True, 1.5]}}}, "metadata": {"k": 1}},
    ],
    "metadata": {"trace": "t"},
    "extensions": ["https://ext.example/a"],
}
OLD_TASK = {
    "id": "t-1",
    "contextId": "c-1",
    "status": {"state": "TASK_STATE_CANCELLED", "message": OLD_MESSAGE, "timestamp": "2026-03-01T12:34:56.000000789Z"},
    "artifacts": [{"artifactId": "a-1", "name": "n", "description": "d", "parts": [{"text": "x"}], "extensions": ["e"]}],
}
OLD_PUSH = {"name": "tasks/t-1/pushNotificationConfigs/p-1", "pushNotificationConfig": {"id": "p-1", "url": "https://hook.example/", "token": "secret", "authentication": {"schemes": ["Bearer"], "credentials": "c"}}}
THREE = [
    ("SendMessage", "request", "SendMessageRequest", {"message": OLD_MESSAGE, "configuration": {"acceptedOutputModes": ["text/plain"], "pushNotification": OLD_PUSH["pushNotificationConfig"], "historyLength": 2, "blocking": True}, "metadata": {"m": "x"}}),
    ("SendMessage", "response", "SendMessageResponse", {"message": OLD_MESSAGE}),
    ("SendMessage", "response", "SendMessageResponse", {"task": OLD_TASK}),
    ("SendStreamingMessage", "response", "StreamResponse", {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}, "final": True}}),
    ("GetTask", "request", "GetTaskRequest", {"name": "tasks/t-1", "historyLength": 2}),
    ("CancelTask", "request", "CancelTaskRequest", {"name": "tasks/t-1"}),
    ("TaskSubscription", "request", "TaskSubscriptionRequest", {"name": "tasks/t-1"}),
    ("CreateTaskPushNotificationConfig", "request", "CreateTaskPushNotificationConfigRequest", {"parent": "tasks/t-1", "configId": "p-1", "config": OLD_PUSH}),
    ("CreateTaskPushNotificationConfig", "response", "TaskPushNotificationConfig", OLD_PUSH),
    ("ListTaskPushNotificationConfig", "response", "ListTaskPushNotificationConfigResponse", {"configs": [OLD_PUSH]}),
    ("GetAgentCard", "response", "AgentCard", {"protocolVersion": "0.3.0", "name": "E", "url": "https://a.example", "preferredTransport": "GRPC", "additionalInterfaces": [{"url": "u", "transport": "JSONRPC"}], "security": [{"schemes": {"key": {}}}], "supportsAuthenticatedExtendedCard": True}),
]


def main(version: str) -> None:
    if version == "1.0":
        from a2a.types import a2a_pb2 as types

        messages = ONE
    else:
        from a2a.grpc import a2a_pb2 as types

        messages = THREE
    pairs = []
    for method, side, name, content in messages:
        message = json_format.ParseDict(content, getattr(types, name)())
        protobuf = base64.b64encode(message.SerializeToString(deterministic=True)).decode()
        pairs.append({"method": method, "side": side, "json": content, "protobuf": protobuf})
    place = pathlib.Path(__file__).with_name(f"{version}.json")
    place.write_text(json.dumps(pairs, indent=1, ensure_ascii=False) + "\n")


main(sys.argv[1])
