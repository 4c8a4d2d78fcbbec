//! Everything that can be wrong with a manifest: all in one run, each with its line and JSON
//! pointer, no value repeated.

use serde_json::{Value, json};

use super::manifests::{ONE, desk, with};
use super::secrets::identity;

/// The problems that are printed for a configuration with this manifest: after the place that names
/// it.
fn report_of(manifest: &Value) -> String {
    let text = serde_json::to_string_pretty(manifest).unwrap();
    let report = desk().file("ventas.json", text).report(ONE);
    let place = "gateway.yaml:4: agents.ventas.manifest: ventas.json";
    let problems = report.lines().map(|line| line.strip_prefix(place).unwrap_or_else(|| panic!("{report}")));
    problems.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_violation_has_line_and_pointer() {
    let text = r#"{
  "type": "agent",
  "id": "",
  "name": 7,
  "a2a": {
    "preferredTransport": "SOAP",
    "skills": { "a/b": "no spaces" }
  },
  "security": {
    "auth": { "type": "basic" },
    "mtls": { "enabled": true, "clientCert": "gw.crt" }
  },
  "mcpBridge": { "tools": [{}, "x"], "taskResourceTemplate": "a2a://task/1" },
  "capabilities": { "message": { "send": { "sse": "yes", "zebra": 1 } }, "tasks": { "put": {} } },
  "secruity": {}
}"#;
    let report = desk().file("ventas.json", text).report(ONE);
    let expected = "\
2: /type: is not \"subagent\"
3: /id: is empty
4: /name: is not a text
5: /a2a/agentCardUri: is missing
6: /a2a/preferredTransport: is not one of: JSONRPC, GRPC, HTTP+JSON
7: /a2a/skills/a~1b: does not match ^[A-Za-z0-9_-]{1,64}$
10: /security/auth/type: is not one of: oauth2, apiKey
10: /security/auth: needs one of token, value and tokenUrl
11: /security/mtls/clientKey: is missing
13: /mcpBridge/tools/0/name: is missing
13: /mcpBridge/tools/1: is not an object
13: /mcpBridge/taskResourceTemplate: does not match [{]taskId[}]
14: /capabilities/message/send/sse: is not true or false
14: /capabilities/message/send/zebra: unknown key
14: /capabilities/tasks/put: unknown key
15: /secruity: unknown key";
    let place = "gateway.yaml:4: agents.ventas.manifest: ventas.json:";
    let mut found: Vec<_> = report.lines().map(|line| line.strip_prefix(place).unwrap_or(line)).collect();
    let mut expected: Vec<_> = expected.lines().collect();
    // The validator's own order within a line is not promised.
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn each_of_these_is_one_problem() {
    let capability = |member: &str, value: Value| json!({ member: value });
    for (pointer, value, expected) in [
        (
            "/schemaVersion",
            json!("subagent@v2"),
            "/schemaVersion: does not match ^(subagent@)?v?0[.]1([.][0-9]+)?$",
        ),
        ("/id", json!("x".repeat(129)), "/id: has more than 128 characters"),
        (
            "/a2a/agentCardUri",
            json!("ftp://a/"),
            "/a2a/agentCardUri: has the scheme ftp (write http or https)",
        ),
        (
            "/a2a/agentCardUri",
            json!("https://user:pass@a/"),
            "/a2a/agentCardUri: has a user name or a password in it (write credentials under `headers`)",
        ),
        ("/a2a/agentCardUri", json!("${NONE}"), "/a2a/agentCardUri: environment variable NONE is not set"),
        (
            "/a2a/agentCardUri",
            json!("none.json"),
            "/a2a/agentCardUri: cannot read none.json: No such file or directory (os error 2) (for a URL write https:// before it)",
        ),
        ("/description", json!("${NONE}"), "/description: environment variable NONE is not set"),
        (
            "/security/auth",
            json!({ "type": "oauth2", "token": "${TOKEN}", "value": "${TOKEN}" }),
            "/security/auth: needs one of token, value and tokenUrl",
        ),
        (
            "/security/auth",
            json!({ "type": "apiKey", "value": "${TOKEN}" }),
            "/security/auth/name: is missing",
        ),
        (
            "/security/auth",
            json!({ "type": "oauth2", "token": "${TOKEN}", "in": "query" }),
            "/security/auth/name: is missing: a query needs one",
        ),
        (
            "/security/auth",
            json!({ "type": "oauth2", "token": "${TOKEN}", "in": "cookie" }),
            "/security/auth/name: is missing: a cookie needs one",
        ),
        (
            "/security/auth",
            json!({ "type": "apiKey", "value": "${TOKEN}", "name": "Host" }),
            "/security/auth/value: is a header that the gateway writes itself (remove it)",
        ),
        (
            "/security/auth",
            json!({ "type": "oauth2", "token": "${file:none}" }),
            "/security/auth/token: cannot read none: No such file or directory (os error 2)",
        ),
        (
            "/security/mtls",
            json!({ "enabled": true, "clientCert": "none.crt", "clientKey": "gw.key" }),
            "/security/mtls/clientCert: cannot read none.crt: No such file or directory (os error 2)",
        ),
        (
            "/security/mtls",
            json!({ "enabled": true, "clientCert": "gw.crt", "clientKey": "gw.crt" }),
            "/security/mtls/clientKey: holds no private key in PEM (PKCS#8, PKCS#1 or SEC1, without a passphrase)",
        ),
        (
            "/mcpBridge/tools",
            json!([{ "name": "subagent_start" }, { "name": "subagent_strat" }]),
            "/mcpBridge/tools/1/name: is no tool of the gateway (known: subagent_start, subagent_send, subagent_cancel, \
             subagent_get, subagent_wait, and those of a2a.skills)",
        ),
        (
            "/mcpBridge/tools",
            json!([{ "name": "subagent_get" }, { "name": "subagent_get" }]),
            "/mcpBridge/tools: has an item twice",
        ),
        (
            "/mcpBridge/tools",
            json!([{ "name": "subagent_send" }]),
            "/mcpBridge/tools: does not name subagent_start, which every agent needs",
        ),
        (
            "/taskResourceTemplate",
            json!("task:{taskId}"),
            "/taskResourceTemplate: another form of URI comes with a later version (write a2a://task/{taskId} or \
             a2a://tasks/{taskId})",
        ),
        (
            "/mcpBridge/taskResourceTemplate",
            json!("task:{taskId}"),
            "/mcpBridge/taskResourceTemplate: another form of URI comes with a later version (write a2a://task/{taskId} or \
             a2a://tasks/{taskId})",
        ),
        (
            "/capabilities/message/send",
            capability("endpoint", json!("ventas.example/send")),
            "/capabilities/message/send/endpoint: is not a URL (write https://HOST/PATH, without credentials)",
        ),
        (
            "/capabilities/tasks/get",
            capability("mtls", json!(true)),
            "/capabilities/tasks/get/mtls: security.mtls is not enabled",
        ),
        (
            "/capabilities/tasks/cancel",
            capability("sse", json!(true)),
            "/capabilities/tasks/cancel/sse: only message.stream is answered by an event stream",
        ),
        (
            "/capabilities/message/send",
            capability("headers", json!({ "a b": "c" })),
            "/capabilities/message/send/headers/a b: is not the name of a header",
        ),
        (
            "/capabilities/message/send",
            capability("headers", json!({ "X-A": "b", "x-a": "c" })),
            "/capabilities/message/send/headers/x-a: is there twice (upper and lower case are the same)",
        ),
        (
            "/security/auth",
            json!({ "type": "oauth2", "tokenUrl": "http://idp.example/token", "clientId": "g", "clientSecret": "${TOKEN}" }),
            "/security/auth/tokenUrl: is http, and secrets would travel in the open (write https)",
        ),
        (
            "/security/auth",
            json!({ "type": "oauth2", "tokenUrl": "https://idp.example/token", "clientId": "g" }),
            "/security/auth/clientSecret: is missing (or enable security.mtls)",
        ),
        (
            "/security/auth",
            json!({ "type": "oauth2", "tokenUrl": "https://idp.example/token" }),
            "/security/auth/clientId: is missing",
        ),
        (
            "/security/auth",
            json!({ "type": "oauth2", "tokenUrl": "https://idp.example/token", "clientId": "g", "clientSecret": "canary" }),
            "/security/auth/clientSecret: is a secret that is written out, and clients can read manifests (write ${env:NAME} or \
             ${file:PATH})",
        ),
        (
            "/security/auth",
            json!({ "type": "apiKey", "in": "query", "name": "", "value": "${TOKEN}" }),
            "/security/auth/name: is empty",
        ),
        (
            "/security/auth",
            json!({ "type": "apiKey", "in": "cookie", "name": "a b", "value": "${TOKEN}" }),
            "/security/auth/name: names no cookie that could be sent",
        ),
    ] {
        let report = report_of(&with(pointer, value));
        let (line, problem) = report.split_once(": ").unwrap();
        assert_eq!(problem, expected, "{pointer}");
        assert!(line.trim_start_matches(':').parse::<u64>().is_ok_and(|line| line > 1), "{report}");
    }
}

#[test]
fn literal_secrets_are_refused() {
    let secret =
        "is a secret that is written out, and clients can read manifests (write ${env:NAME} or ${file:PATH})";
    let key = "is a private key that is written out, and clients can read manifests (write the path of its file, ${env:NAME} or ${file:PATH})";
    let (_, pem) = identity();
    for (pointer, at, value, expected) in [
        ("/security/auth", "/token", json!({ "type": "oauth2", "token": "canary" }), secret),
        ("/security/auth", "/token", json!({ "type": "oauth2", "token": "canary ${TOKEN}1" }), secret),
        ("/security/auth", "/token", json!({ "type": "oauth2", "token": "$${canary}" }), secret),
        ("/security/auth", "/value", json!({ "type": "apiKey", "name": "X-Key", "value": "canary" }), secret),
        (
            "/security/mtls",
            "/clientKey",
            json!({ "enabled": false, "clientCert": "gw.crt", "clientKey": pem.clone() }),
            key,
        ),
        (
            "/capabilities/message/send/headers",
            "/Authorization",
            json!({ "Authorization": "Bearer canary" }),
            secret,
        ),
        ("/capabilities/tasks/get/headers", "/X-Api-Key", json!({ "X-Api-Key": "canary" }), secret),
        ("/a2a/agentCardUri", "", json!("https://a/card?v=1&api_key=canary"), secret),
        ("/metadata", "/any/0", json!({ "any": [format!("canary {pem}")] }), key),
    ] {
        let report = report_of(&with(pointer, value));
        assert!(report.ends_with(&format!(": {pointer}{at}: {expected}")), "{pointer}: {report}");
        assert_eq!(report.lines().count(), 1, "{report}");
        assert!(!report.contains("canary") && !report.contains("BEGIN"), "{report}");
    }
}

#[test]
fn no_violation_repeats_a_value() {
    for pointer in [
        "/type",
        "/id",
        "/a2a",
        "/a2a/preferredTransport",
        "/a2a/skills",
        "/a2a/skills/s",
        "/security",
        "/security/auth",
        "/security/auth/type",
        "/security/auth/scopes",
        "/security/mtls",
        "/security/mtls/enabled",
        "/mcpBridge",
        "/mcpBridge/tools",
        "/mcpBridge/taskResourceTemplate",
        "/taskResourceTemplate",
        "/capabilities",
        "/capabilities/tasks/get",
        "/capabilities/tasks/get/headers",
        "/capabilities/tasks/get/mtls",
        "/schemaVersion",
        "/metadata",
    ] {
        for value in [json!("canary text"), json!(["canary"]), json!(7.5), json!(null)] {
            let desk = desk().file("ventas.json", with(pointer, value).to_string()).file("gateway.yaml", ONE);
            let printed =
                desk.load("gateway.yaml").map_or_else(|problems| problems.to_string(), |_| String::new());
            assert!(!printed.contains("canary") && !printed.contains("7.5"), "{pointer}: {printed}");
        }
    }
}

#[test]
fn unreadable_manifest_says_why() {
    for (content, expected) in [
        (None, ": cannot read ventas.json: No such file or directory (os error 2)"),
        (Some("{"), ": ventas.json is not JSON: EOF while parsing an object at line 1 column 1"),
        (Some("[]"), ": ventas.json:1: is not an object"),
        (
            Some(
                "{\"type\": \"subagent\", \"id\": \"a\", \"name\": \"a\",\n\"a2a\": {\"agentCardUri\": \"http://a/\",\n\"agentCardUri\": \"http://b/\"}}",
            ),
            ": ventas.json:3: /a2a/agentCardUri: is written twice (first on line 2)",
        ),
    ] {
        let desk = match content {
            Some(content) => desk().file("ventas.json", content),
            None => desk(),
        };
        assert_eq!(desk.report(ONE), format!("gateway.yaml:4: agents.ventas.manifest{expected}"));
    }
}

#[test]
fn tasks_get_place_needs_one_endpoint() {
    let manifest = with("/capabilities/tasks/get/endpoint", json!("https://ventas.example/get")).to_string();
    let several = format!("{ONE}    endpoints: [\"https://a.example/\", \"https://b.example/\"]\n");
    assert_eq!(
        desk().file("ventas.json", &manifest).report(&several),
        "gateway.yaml:5: agents.ventas.endpoints: has several endpoints, and the manifest a place of its own for tasks.get: the \
         gateway could not find the endpoint of a task (write one endpoint, or leave capabilities.tasks.get.endpoint out)"
    );
    let one = format!("{ONE}    endpoints: [\"https://a.example/\"]\n");
    desk().file("ventas.json", &manifest).settings(&one);
}
