//! The texts of problems: all in one run, each with its line and path.

use super::desk::{BASE, Desk, report};

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn one_run_finds_everything() {
    let text = "\
public_url: gateway.example.com
listener:
  - address: 1
listeners:
  - address: localhost:8080
    tls: { certificate: missing.crt, key: missing.key }
  - adress: 127.0.0.1:1
seal_key: short
agents:
  Weather:
    card: http://weather/
    headers:
      Authorization: Bearer ${env:WEATHER_TOKEN}
      Host: elsewhere
    timeouts:
      total: 5 minutes
      conect: 1s
  plain:
    tools: per_skil
    streaming: yes
    description: 7
  plain:
    card: ${env:CARD}
    tls: { certificate: missing.crt }
calls:
  budget: 0s
  keep_alive: 2m
  stream_after: 30
limits:
  body: lots
  depth: -1
mcp: [1]
zebra: 1
";
    let expected = "\
gateway.yaml:1: public_url: is not a whole URL (write https://host/path)
gateway.yaml:2: listener: unknown key (did you mean listeners?)
gateway.yaml:5: listeners[0].address: is not an IP address and a port (write 127.0.0.1:8080)
gateway.yaml:6: listeners[0].tls.certificate: cannot read missing.crt: No such file or directory (os error 2)
gateway.yaml:6: listeners[0].tls.key: cannot read missing.key: No such file or directory (os error 2)
gateway.yaml:7: listeners[1].adress: unknown key (did you mean address?)
gateway.yaml:7: listeners[1].address: is missing (write an IP address and a port, such as 127.0.0.1:8080)
gateway.yaml:8: seal_key: is shorter than 32 characters (make one with `openssl rand -hex 32`)
gateway.yaml:10: agents.Weather: is not a name for an agent (a lower-case letter or digit, then up to 31 lower-case letters, digits, - and _)
gateway.yaml:13: agents.Weather.headers.Authorization: environment variable WEATHER_TOKEN is not set
gateway.yaml:14: agents.Weather.headers.Host: is a header that the gateway writes itself (remove it)
gateway.yaml:16: agents.Weather.timeouts.total: expected a duration: a whole number and a unit, such as 250ms, 30s, 5m, 2h or 30d
gateway.yaml:17: agents.Weather.timeouts.conect: unknown key (did you mean connect?)
gateway.yaml:22: agents.plain: is written twice (first on line 18)
gateway.yaml:23: agents.plain.card: environment variable CARD is not set
gateway.yaml:24: agents.plain.tls.certificate: cannot read missing.crt: No such file or directory (os error 2)
gateway.yaml:24: agents.plain.tls.key: is missing (the certificate needs its key)
gateway.yaml:26: calls.budget: 0ms is out of bounds (from 1s to 1h)
gateway.yaml:27: calls.keep_alive: 2m is out of bounds (from 1s to 1m)
gateway.yaml:28: calls.stream_after: has no unit; expected a duration: a whole number and a unit, such as 250ms, 30s, 5m, 2h or 30d
gateway.yaml:30: limits.body: expected a size: a whole number, alone (bytes) or with a unit, such as 1024, 64KiB, 4MiB or 10MB
gateway.yaml:31: limits.depth: expected a whole number, found a number
gateway.yaml:32: mcp: expected a section (keys, each with a value), found a list
gateway.yaml:33: zebra: unknown key (known: include, public_url, listeners, admin, health, ready, seal_key, agents, agent_defaults, manifests, sources, outbound, mcp, resources, prompts, calls, cards, sessions, limits, tasks, streams, background, push, threads, state, log, tracing, shutdown, upgrade, reload, auth, rules)";
    pretty(&report(text), expected);
}

/// Compares line by line, so that a difference can be seen.
fn pretty(actual: &str, expected: &str) {
    let (actual, expected): (Vec<_>, Vec<_>) = (actual.lines().collect(), expected.lines().collect());
    for (line, wanted) in actual.iter().zip(&expected) {
        assert_eq!(line, wanted);
    }
    assert_eq!(actual.len(), expected.len(), "{actual:#?}");
}

#[test]
fn missing_section_says_what_to_write() {
    let expected = "\
gateway.yaml:1: listeners: is missing (write `listeners:` and below it `  - address: 127.0.0.1:8080`; only `stdio` needs none)
gateway.yaml:1: agents: is missing (write `agents:`, below it a name, and below that `card: URL`)";
    pretty(&report("threads: 1\n"), expected);
    let expected = "\
gateway.yaml:1: listeners: is empty (write `listeners:` and below it `  - address: 127.0.0.1:8080`; only `stdio` needs none)
gateway.yaml:2: agents: is empty (write `agents:`, below it a name, and below that `card: URL`)";
    pretty(&report("listeners: []\nagents:\n"), expected);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn each_of_these_is_one_problem() {
    for (added, expected) in [
        ("threads: 5000", "3: threads: 5000 is out of bounds (from 0 to 1024)"),
        ("threads: '4'", "3: threads: expected a whole number, found a text"),
        ("seal_key:", "3: seal_key: expected a text, found nothing (write a value, or remove the key)"),
        ("seal_key: []", "3: seal_key: is an empty list (write a key, or remove it)"),
        (
            "admin: { address: 127.0.0.1:8080 }",
            "3: admin.address: 127.0.0.1:8080 is a listener for clients already",
        ),
        (
            "admin: { address: ':9' }",
            "3: admin.address: is not an IP address and a port (write 0.0.0.0:9 for every address, 127.0.0.1:9 for this machine only)",
        ),
        ("mcp: { page_size: 0 }", "3: mcp.page_size: 0 is out of bounds (from 1 to 1000)"),
        ("mcp: { server_name: '' }", "3: mcp.server_name: is not a name (1 to 64 characters)"),
        (
            "mcp: { allowed_origins: [app.example] }",
            "3: mcp.allowed_origins[0]: is not an origin (write scheme://host or scheme://host:port, without a slash at the end)",
        ),
        (
            "admin: { allowed_hosts: ['https://a'] }",
            "3: admin.allowed_hosts[0]: is a URL, not a host (write host or host:port, such as agents.example.com)",
        ),
        (
            "limits: { address_connections: 1000001 }",
            "3: limits.address_connections: 1000001 is out of bounds (from 0 to 1000000)",
        ),
        (
            "outbound: { webhooks: { allow: [10.0.0.1/8] } }",
            "3: outbound.webhooks.allow[0]: is an address within a network (write the network's first address)",
        ),
        (
            "mcp: { allowed_hosts: ['https://a'] }",
            "3: mcp.allowed_hosts[0]: is a URL, not a host (write host or host:port, such as agents.example.com)",
        ),
        (
            "mcp: { allowed_hosts: a.example }",
            "3: mcp.allowed_hosts: expected a list, found a text (begin each item with `- `)",
        ),
        (
            "calls: { stream_after: 50s }",
            "3: calls.stream_after: stream_after (50s) is longer than budget (45s)",
        ),
        (
            "cards: { min_refresh: 2h }",
            "3: cards.min_refresh: min_refresh (2h) is longer than max_refresh (1h)",
        ),
        ("cards: { retry: 1m }", "3: cards.retry: retry (1m) is longer than min_refresh (30s)"),
        ("calls: { max_rounds: 10 }", "3: calls.max_rounds: 10 is out of bounds (from 0 to 9)"),
        (
            "calls: { stream_timeout: for_ever }",
            "3: calls.stream_timeout: is not one of: budget, forever (did you mean forever?)",
        ),
        (
            "calls: { clients: { own: {} } }",
            "3: calls.clients.own: gives no limit (write budget: 4s, or rounds: off)",
        ),
        (
            "calls: { clients: { agno: { client_name: x } } }",
            "3: calls.clients.agno: gives no limit (write budget: 4s, or rounds: off)",
        ),
        (
            "calls: { budget: 30s, clients: { own: { budget: 40s } } }",
            "3: calls.clients.own.budget: 40s is longer than calls.budget (30s); raise that",
        ),
        (
            "calls: { clients: { own: { budget: 1ms } } }",
            "3: calls.clients.own.budget: 1ms is out of bounds (from 100ms to 1h)",
        ),
        (
            "calls: { clients: { own: { user_agent: '*', rounds: off } } }",
            "3: calls.clients.own.user_agent: fits every client (set calls.budget instead)",
        ),
        (
            "calls: { clients: { own: { client_name: [''], rounds: off } } }",
            "3: calls.clients.own.client_name[0]: is not a pattern (1 to 128 bytes)",
        ),
        (
            "calls: { clients: { own: { rounds: maybe } } }",
            "3: calls.clients.own.rounds: is not one of: on, off",
        ),
        (
            "calls: { clients: [own] }",
            "3: calls.clients: expected a section (keys, each with a value), found a list",
        ),
        ("calls: { cancel_grace: 2h }", "3: calls.cancel_grace: 2h is out of bounds (from 0ms to 1h)"),
        ("calls: { on_decline: stop }", "3: calls.on_decline: is not one of: keep, cancel"),
        (
            "tasks: { ttl: 2 }",
            "3: tasks.ttl: has no unit; expected a duration: a whole number and a unit, such as 250ms, 30s, 5m, 2h or 30d",
        ),
        ("tasks: { max: 0 }", "3: tasks.max: 0 is out of bounds (from 1 to 10000000)"),
        (
            "tasks: { data_dir: '' }",
            "3: tasks.data_dir: is no path (write the path of a folder, or remove the key)",
        ),
        ("tasks: { data_dir: gateway.yaml }", "3: tasks.data_dir: gateway.yaml is not a folder"),
        (
            "streams: { retry_max: 500ms }",
            "3: streams.retry_max: retry_base (1s) is longer than retry_max (500ms)",
        ),
        ("background: { keep: 10m }", "3: background.keep: unknown key (known: max, lifetime)"),
        ("limits: { body: 5GiB }", "3: limits.body: 5GiB is out of bounds (from 1KiB to 1GiB)"),
        ("log: { format: yaml }", "3: log.format: is not one of: text, json"),
        (
            "log: { level: infos }",
            "3: log.level: is not a level (write error, warn, info, debug or trace, or info,pingora=warn)",
        ),
        (
            "log: { level: off, format: Text }",
            "3: log.format: is not one of: text, json (did you mean text?)",
        ),
        (
            "public_url: https://u:p@a/",
            "3: public_url: has a user name or a password in it (write credentials under `headers`)",
        ),
        (
            "\"a\\nb\": 1",
            "3: a\u{fffd}b: unknown key (known: include, public_url, listeners, admin, health, ready, seal_key, agents, agent_defaults, manifests, sources, outbound, mcp, resources, prompts, calls, cards, sessions, limits, tasks, streams, background, push, threads, state, log, tracing, shutdown, upgrade, reload, auth, rules)",
        ),
    ] {
        assert_eq!(report(&format!("{BASE}{added}\n")), format!("gateway.yaml:{expected}"), "{added}");
    }
}

#[test]
fn push_needs_url_and_listener() {
    let expected = "\
gateway.yaml:3: push.enabled: agents could not reach the gateway (set public_url)
gateway.yaml:3: push.enabled: no listener takes them in (add push to `serve` of a listener)";
    pretty(&report(&format!("{BASE}push: {{ enabled: true }}\n")), expected);
}

#[test]
fn engine_of_shared_state_is_checked() {
    let key = "seal_key: 0123456789abcdef0123456789abcdef\n";
    for (added, expected) in [
        ("state: { url: 'redis://a' }", "3: state: needs seal_key, the same at all replicas"),
        (
            "seal_key: 0123456789abcdef0123456789abcdef\nstate: { url: 'http://a' }",
            "4: state.url: is not the URL of an engine (write redis://HOST:PORT, or rediss:// for TLS; a `@` or `/` of a \
             password is `%40` or `%2F`; or file:PATH for one process)",
        ),
        (
            "seal_key: 0123456789abcdef0123456789abcdef\nstate: { url: 'redis://ann:p/w@a' }",
            "4: state.url: is not the URL of an engine (write redis://HOST:PORT, or rediss:// for TLS; a `@` or `/` of a \
             password is `%40` or `%2F`; or file:PATH for one process)",
        ),
        (
            "seal_key: 0123456789abcdef0123456789abcdef\nstate: { url: 'redis://a', sentinel_password: secret }",
            "4: state.sentinel_password: has no use without sentinels (set topology to sentinel)",
        ),
        (
            "seal_key: 0123456789abcdef0123456789abcdef\nstate: { timeout: 1s }",
            "4: state.url: is missing (write the URL of the engine, such as redis://valkey.internal:6379)",
        ),
        (
            "seal_key: 0123456789abcdef0123456789abcdef\nstate: { url: ['redis://a', 'redis://b'] }",
            "4: state.url: has several URLs (set topology to cluster or sentinel)",
        ),
        (
            "seal_key: 0123456789abcdef0123456789abcdef\nstate: { url: 'file:' }",
            "4: state.url: names no file (write file:PATH, such as file:/var/lib/mcp-a2a-gateway/state.redb)",
        ),
        (
            "seal_key: 0123456789abcdef0123456789abcdef\nstate: { url: 'file://host/a' }",
            "4: state.url: names no file (write file:PATH, such as file:/var/lib/mcp-a2a-gateway/state.redb)",
        ),
        (
            "seal_key: 0123456789abcdef0123456789abcdef\nstate: { url: ['memory:', 'redis://b'] }",
            "4: state.url: has several URLs (set topology to cluster or sentinel)",
        ),
        (
            "seal_key: 0123456789abcdef0123456789abcdef\nstate: { url: 'file:/d/tasks.redb' }\ntasks: { data_dir: /d }",
            "4: state.url: is the file of tasks.data_dir (name another file)",
        ),
        (
            "seal_key: 0123456789abcdef0123456789abcdef\nstate: { url: 'memory:', password: secret }",
            "4: state.password: has no use with an engine within this process (state.url)",
        ),
        (
            "seal_key: 0123456789abcdef0123456789abcdef\nstate: { url: 'redis://a', prefix: 'a b' }",
            "4: state.prefix: is not a prefix (1 to 64 letters, digits, `-`, `_` and `.`)",
        ),
        (
            "seal_key: 0123456789abcdef0123456789abcdef\nstate: { url: 'redis://a', timeout: 1m }",
            "4: state.timeout: 1m is out of bounds (from 10ms to 10s)",
        ),
    ] {
        assert_eq!(report(&format!("{BASE}{added}\n")), format!("gateway.yaml:{expected}"), "{added}");
    }
    let secret = report(&format!("{BASE}{key}state: {{ url: 'redis:/ann:secret@a' }}\n"));
    assert!(!secret.contains("secret"), "{secret}");
}

#[test]
fn host_belongs_to_one_agent() {
    let agents = |one: &str, other: &str| {
        format!(
            "listeners: [{{address: 127.0.0.1:8080}}]\nagents:\n  a: {{card: http://a/, a2a: {{host: {one}}}}}\n  b: {{card: http://b/, \
             a2a: {{host: {other}}}}}\n"
        )
    };
    let problem = report(&agents("x.example", "X.example"));
    assert!(problem.contains("agents.b.a2a.host: is the host of the agent a already"), "{problem}");
    let problem = report(&agents("https://x.example", "y.example"));
    assert!(problem.contains("agents.a.a2a.host: is a URL, not a host"), "{problem}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn each_of_these_is_one_agent_problem() {
    for (added, expected) in [
        (
            "tool_name: x",
            "tool_name: is only for `tools: per_agent` (write it below skills.ID for a skill's tool)",
        ),
        ("protocol: 1.0", "protocol: expected a text, found a number (put it in quotes)"),
        ("protocol: '2.0'", "protocol: is not one of: auto, 0.1, 0.3, 1.0 (did you mean 1.0?)"),
        (
            "output_modes: [text]",
            "output_modes[0]: is not a media type (write type/subtype, such as text/plain)",
        ),
        ("extensions: ['a,b:c']", "extensions[0]: is not the URI of an extension"),
        ("streaming: no", "streaming: expected true or false, found a text (yes, no, on and off are texts)"),
        ("task: always", "task: is not one of: optional, required, never"),
        ("push: on", "push: expected true or false, found a text (yes, no, on and off are texts)"),
        ("headers: { 'a b': c }", "headers.a b: is not the name of a header"),
        ("headers: { X-A: b, x-a: c }", "headers.x-a: is there twice (upper and lower case are the same)"),
        (
            "headers: { a: \"b\\nc\" }",
            "headers.a: has a line break or a NUL in it (only one newline at its end is removed)",
        ),
        ("headers: { a: \"b\\u0007\" }", "headers.a: has a character that no header may have"),
        ("headers: { a: [b] }", "headers.a: expected a text, found a list"),
        ("timeouts: { total: 1m }", "timeouts.total: total (1m) is shorter than first_byte (2m)"),
        (
            "endpoints: ['http://A.example', 'http://a.example:80/']",
            "endpoints[1]: is written twice (first on line 5)",
        ),
        ("endpoints: ['ftp://a/']", "endpoints[0]: has the scheme ftp (write http or https)"),
        (
            "endpoints: ['http://u:p@a/']",
            "endpoints[0]: has a user name or a password in it (write credentials under `headers`)",
        ),
        ("breaker: { failures: 0 }", "breaker.failures: 0 is out of bounds (from 1 to 1000000)"),
        ("breaker: { base: 1m }", "breaker.base: max (30s) is shorter than base (1m)"),
        ("health: { path: live }", "health.path: is not a path (write /healthz)"),
        ("health: { interval: 0s }", "health.interval: 0ms is out of bounds (from 10ms to 1h)"),
        ("queue: { size: 1 }", "queue: is only for an agent with max_calls (nothing waits without it)"),
        ("queue: { wait: 2h }", "queue.wait: 2h is out of bounds (from 10ms to 1h)"),
        (
            "skills: { s: { tool_name: a.b } }",
            "skills.s.tool_name: is not a name for a tool (1 to 64 letters, digits, - and _)",
        ),
        ("skills: { s: { task: no } }", "skills.s.task: is not one of: optional, required, never"),
        ("skills: { s: { hiden: true } }", "skills.s.hiden: unknown key (did you mean hidden?)"),
        (
            "skills: { s: { input_schema: { type: array } } }",
            "skills.s.input_schema: a tool's arguments are an object (write `type: object` in the schema)",
        ),
        (
            "skills: { s: { input_schema: 7 } }",
            "skills.s.input_schema: is not a JSON Schema (write an object that says `type: object`)",
        ),
        (
            "skills: { s: { input_schema: none.json } }",
            "skills.s.input_schema: cannot read none.json: No such file or directory (os error 2)",
        ),
        (
            "skills: { s: { input_schema: list.json } }",
            "skills.s.input_schema: is not a JSON Schema (write an object that says `type: object`)",
        ),
        (
            "skills: { s: { input_schema: '${file:broken.json}' } }",
            "skills.s.input_schema: broken.json is not JSON: EOF while parsing an object at line 1 column 1",
        ),
        ("tls: { key: gw.key }", "tls.certificate: is missing (the key needs its certificate)"),
        ("tls: { ca: gw.key }", "tls.ca: holds no certificate in PEM"),
        (
            "tls: { ca: broken.crt }",
            "tls.ca: holds a certificate that cannot be read: invalid peer certificate: BadEncoding",
        ),
        (
            "tls: { certificate: gw.crt, key: gw.crt }",
            "tls.key: holds no private key in PEM (PKCS#8, PKCS#1 or SEC1, without a passphrase)",
        ),
        (
            "tls: { certificate: gw.crt, key: other.key }",
            "tls.certificate: does not belong to the key beside it",
        ),
    ] {
        let (certificate, key) = super::secrets::identity();
        let desk = Desk::new()
            .file("gw.crt", certificate)
            .file("gw.key", key)
            .file("other.key", super::secrets::identity().1)
            .file("broken.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
            .file("list.json", "[]")
            .file("broken.json", "{");
        let text = format!(
            "listeners: [{{address: 127.0.0.1:8080}}]\nagents:\n  a:\n    card: http://a/\n    {added}\n"
        );
        assert_eq!(desk.report(&text), format!("gateway.yaml:5: agents.a.{expected}"), "{added}");
    }
}

#[test]
fn costly_or_external_schema_is_refused() {
    for schema in [
        "{ type: object, properties: { a: { type: nonsense } } }",
        "{ type: object, properties: { a: { pattern: '(?=a)b' } } }",
        "{ type: object, properties: { a: { pattern: '(a{1000}){1000}' } } }",
        "{ type: object, $ref: 'http://127.0.0.1:1/schema.json' }",
        "{ type: object, $ref: 'file:///etc/passwd' }",
    ] {
        let text = format!(
            "listeners: [{{address: 127.0.0.1:8080}}]\nagents:\n  a:\n    card: http://a/\n    skills:\n      s:\n        \
             input_schema: {schema}\n"
        );
        let report = report(&text);
        let start = "gateway.yaml:7: agents.a.skills.s.input_schema: is not a valid JSON Schema";
        assert!(report.starts_with(start), "{report}");
        assert_eq!(report.lines().count(), 1, "{report}");
    }
}

#[test]
fn card_may_be_readable_file() {
    for (card, expected) in [
        (
            "none.json",
            "cannot read none.json: No such file or directory (os error 2) (for a URL write https:// before it)",
        ),
        ("list.json", "list.json holds no agent card (a JSON object)"),
        ("ftp://a/", "has the scheme ftp (write http or https)"),
    ] {
        let text =
            format!("listeners: [{{address: 127.0.0.1:8080}}]\nagents: {{ a: {{ card: '{card}' }} }}\n");
        let report = Desk::new().file("list.json", "[]").report(&text);
        assert_eq!(report, format!("gateway.yaml:2: agents.a.card: {expected}"));
    }
}

#[test]
fn outbound_patterns_have_one_spelling() {
    let text = format!(
        "{BASE}outbound:\n  allow: [10.0.0.1/8, 10.0.0.0/33, 'https://a.example/', 'a:x', 0x7f.1, '*.example', ok.example]\n"
    );
    let expected = "\
outbound.allow[0]: is an address within a network (write the network's first address)
outbound.allow[1]: has more bits than its addresses
outbound.allow[2]: is a URL, not a host (write host or host:port, such as agents.example.com)
outbound.allow[3]: has a port that is no port
outbound.allow[4]: is an odd spelling of an IPv4 address (write it as four decimal numbers)
outbound.allow[5]: is not a host (write host or host:port, such as agents.example.com)
";
    let told = report(&text);
    let told: String = told.lines().map(|line| format!("{}\n", line.split_once(": ").unwrap().1)).collect();
    assert_eq!(told, expected);
}

#[test]
fn card_signing_keys_are_all_usable() {
    let good = include_str!("../golden/signatures/keys.jwks");
    let secret = r#"{"keys":[{"kty":"oct","kid":"a","k":"AAAA"}]}"#;
    for (keys, expected) in [
        (secret.to_owned(), "keys[0] is a shared secret, not a public key"),
        (
            good.replacen("\"kid\": \"key-ES256\"", "\"x5t\": \"a\"", 1),
            "keys[0] has no kid (cards name their key by it)",
        ),
        (
            good.replacen("\"use\": \"sig\"", "\"use\": \"enc\"", 1),
            "keys[0] is not for signatures (its use is another)",
        ),
        (r#"{"keys":[]}"#.to_owned(), "holds no key"),
        ("{}".to_owned(), "is no JWKS that can be used: missing field `keys`"),
    ] {
        let desk = Desk::new().file("keys.jwks", keys);
        let told = desk.report(&format!("{BASE}cards: {{ signature: {{ keys: keys.jwks }} }}\n"));
        assert!(told.contains("cards.signature.keys: ") && told.contains(expected), "{expected}: {told}");
    }
    let told = report(&BASE.replace("agents:", "cards: { signature: { required: false } }\nagents:"));
    assert!(told.contains("cards.signature.keys: is missing"), "{told}");
    let desk = Desk::new().file("keys.jwks", good);
    let settings =
        desk.settings(&format!("{BASE}cards: {{ signature: {{ keys: keys.jwks, required: false }} }}\n"));
    let signature = settings.agents[0].signature.as_ref().unwrap();
    assert_eq!((signature.keys.keys.len(), signature.required), (5, false));
}
