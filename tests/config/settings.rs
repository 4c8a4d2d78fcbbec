//! The examples, key by key, and the JSON Schema.

use std::path::{Path, PathBuf};

use mcp_a2a_gateway::config::{
    self, CardSource, Protocol, Secret, Services, Settings, TaskMode, TlsProfile, ToolGranularity, load_with,
    schema,
};

use super::secrets::{authority, identity};

/// Loads an example of the repository. Every variable that it may name is a PEM or a key of 32
/// characters.
fn example(path: &Path) -> Settings {
    let (certificate, key) = identity();
    let (ca, crl) = authority();
    let environment = |name: &str| {
        let value = match name {
            // These stand in for keys that an example leaves out.
            "DATA_DIR" | "SSE_MAX_ATTEMPTS" => return None,
            _ if name.ends_with("_MS") => return None,
            "CLIENTS_CA" => ca.clone(),
            "CLIENTS_CRL" => crl.clone(),
            _ if name.ends_with("CERTIFICATE") || name.ends_with("CA") => certificate.clone(),
            _ if name.ends_with("_CARD_URI") => "http://127.0.0.1:9999/".to_owned(),
            _ if name.ends_with("TLS_KEY") => key.clone(),
            _ => format!("{name:-<32}"),
        };
        Some(value.into())
    };
    load_with(path, &environment).unwrap_or_else(|problems| panic!("{problems}"))
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every YAML file below a folder that may not exist.
fn examples(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let files = paths.flat_map(|path| if path.is_dir() { examples(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect()
}

#[test]
fn examples_are_valid_and_fit_schema() {
    let schema = serde_json::from_str(&schema()).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let found = ["config", "examples"].map(|folder| examples(&repository().join(folder))).concat();
    assert!(found.len() >= 2, "{found:?}");
    for path in found {
        example(&path);
        let text = std::fs::read_to_string(&path).unwrap();
        let options = serde_saphyr::options! { strict_booleans: true, emit_comments: false };
        let value: serde_json::Value = serde_saphyr::from_str_with_options(&text, options).unwrap();
        let errors: Vec<_> = schema.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", path.display());
    }
}

#[test]
fn full_example_names_every_key() {
    let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
    let text = config::example();
    let mut sections = vec![&schema];
    sections.extend(schema["$defs"].as_object().unwrap().values());
    let keys =
        sections.iter().filter_map(|section| section["properties"].as_object()).flat_map(|keys| keys.keys());
    for key in keys {
        assert!(text.contains(&format!("{key}:")), "{key}");
    }
}

#[test]
fn production_example_is_read() {
    let settings = example(&repository().join("examples/production.yaml"));
    assert_eq!(settings.public_url.as_deref(), Some("https://gateway.example.com"));
    let [listener, plain] = settings.listeners.as_slice() else { panic!("{settings:?}") };
    assert_eq!(listener.address.to_string(), "0.0.0.0:8443");
    let tls = listener.tls.as_ref().unwrap();
    let [main, _more] = tls.certificates.as_slice() else { panic!("{tls:?}") };
    assert!(main.certificate.expose().starts_with("-----BEGIN CERTIFICATE"));
    assert!(main.key.expose().starts_with("-----BEGIN PRIVATE KEY"));
    let clients = tls.client_auth.as_ref().unwrap();
    assert_eq!(
        (tls.profile, clients.required, clients.accept_expired_crl),
        (TlsProfile::Intermediate, true, false)
    );
    assert!(clients.ca[0].expose().starts_with("-----BEGIN CERTIFICATE"));
    assert!(clients.crl[0].expose().starts_with("-----BEGIN X509 CRL"));
    assert_eq!(
        (listener.serve, plain.serve),
        (
            Services { mcp: true, a2a: true, grpc: true, health: true, push: false },
            Services { mcp: false, a2a: false, grpc: true, health: true, push: true }
        )
    );
    assert_eq!(settings.admin.unwrap().address.to_string(), "127.0.0.1:9090");
    let keys: Vec<_> = settings.seal_keys.iter().map(Secret::expose).collect();
    assert_eq!(keys, ["GATEWAY_SEAL_KEY----------------", "GATEWAY_OLD_SEAL_KEY------------"]);
    assert_eq!(settings.mcp.allowed_origins, ["https://app.example.com"]);
    assert_eq!(settings.mcp.allowed_hosts, ["gateway.internal:8443"]);
    assert_eq!(settings.mcp.instructions.as_deref(), Some("Ask weather for forecasts."));
}

#[test]
fn agents_of_production_example_are_read() {
    let settings = example(&repository().join("examples/production.yaml"));
    let [helpdesk, weather] = settings.agents.as_slice() else { panic!("{settings:?}") };
    assert_eq!(
        (helpdesk.name.as_str(), helpdesk.tools, helpdesk.protocol),
        ("helpdesk", ToolGranularity::Agent, Protocol::V0_3)
    );
    assert_eq!(helpdesk.tool_name.as_deref(), Some("ask_helpdesk"));
    let card = "https://weather.internal/.well-known/agent-card.json";
    assert_eq!((weather.name.as_str(), &weather.card), ("weather", &CardSource::Url(card.into())));
    let (name, value) = &weather.headers[0];
    assert_eq!((name.as_str(), value.expose()), ("authorization", "Bearer WEATHER_TOKEN-------------------"));
    assert!(weather.tls.ca.is_some() && weather.tls.certificate.is_some() && weather.tls.key.is_some());
    assert_eq!(
        (weather.tools, weather.protocol, weather.streaming),
        (ToolGranularity::Skill, Protocol::Auto, true)
    );
}

#[test]
fn tools_of_production_example_are_read() {
    let settings = example(&repository().join("examples/production.yaml"));
    let weather = &settings.agents[1];
    assert_eq!(weather.description.as_deref(), Some("Knows the weather of every city."));
    let forecast = &weather.skills["forecast"];
    assert_eq!(forecast.tool_name.as_deref(), Some("get_forecast"));
    assert_eq!(forecast.description.as_deref(), Some("The forecast for a city."));
    assert_eq!(forecast.input_schema.as_ref().unwrap()["properties"]["days"]["maximum"], 14);
    assert!(!forecast.hidden && weather.skills["debug"].hidden);
    assert_eq!(weather.output_modes.as_deref().unwrap(), ["text/plain", "application/json"]);
    assert_eq!(weather.extensions, ["https://example.com/ext/units/v1"]);
    assert_eq!(weather.allow_hosts, ["weather-eu.internal", "weather-us.internal:8443"]);
}

#[test]
fn every_key_reaches_its_setting() {
    let text = "\
listeners: [{ address: '[::1]:0', serve: [mcp, a2a, push], grpc: false }, { address: '[::1]:0' }]
agents:
  a: { card: card.json, timeouts: { connect: 11s, first_byte: 12s, idle: 13s, total: 14s }, streaming: false, protocol: '1.0', push: false, a2a: { translate: false, host: agent.example }, max_calls: 16, rate: 17, task: required,
    endpoints: ['https://one.example/rpc', 'https://two.example/rpc'], breaker: { failures: 18, base: 19s, max: 20s }, health: { path: /healthz, interval: 23s, timeout: 24s }, queue: { size: 25, wait: 26s },
    skills: { s: { input_schema: schema.json, task: never } } }
mcp: { page_size: 21, list_ttl: 22s, server_name: mine, allowed_origins: ['*', 'null'], allowed_hosts: ['*'], subagent_tools: false, find_agent: false, resource_links: all }
calls: { budget: 33s, stream_after: 32s, keep_alive: 31s, task_after: 34s, round_timeout: 35s, max_rounds: 3, round_grace: 36s, stream_timeout: forever, on_decline: cancel, cancel_grace: 37s, clients: { own: { client_name: [Host, 'Host *'], user_agent: 'h/*', budget: 30s, rounds: on }, agno: { rounds: off }, haystack: {} } }
cards: { min_refresh: 41s, max_refresh: 42s, retry: 40s }
sessions: { ttl: 51m, max_cached: 52 }
limits: { body: 61KiB, depth: 62, response: 63KiB, event: 64KiB, artifacts: 65KiB, batch: 66, header_read: 67s, body_read: 68s, write_stall: 69s, keep_alive: 70s, streams: 71, calls: 72, caller_rate: 73, caller_burst: 74, caller_calls: 75, caller_streams: 76, caller_tasks: 78, bytes: 80MiB, caller_bytes: 81MiB, auth_failures: 79, header: 33KiB, connections: 77, address_connections: 80 }
tasks: { ttl: 101s, sweep_interval: 102s, max: 103, max_bytes: 104KiB, keep_artifacts: 105KiB, compress_after: 107s, poll_interval: 106s, data_dir: kept }
streams: { idle_timeout: 111s, retry_base: 112s, retry_max: 113s, max_attempts: 114, stalled_after: 115s }
background: { max: 81, lifetime: 84s }
outbound: { allow: [A.example, 'b.example:8443', 10.0.0.0/8, 127.0.0.1], webhooks: { allow: [c.example], http: true }, proxy: { url: 'http://ann:pw@p.example:3128', no_proxy: [d.example], resolve: proxy } }
push: { enabled: true }
threads: 3
seal_key: 0123456789abcdef0123456789abcdef
state: { url: ['redis://ann:pw@a', 'valkey://b:1'], topology: sentinel, master: mine, username: ann, password: pw, sentinel_username: sue, sentinel_password: spw, content: ids, timeout: 600ms, prefix: pre }
log: { format: json, level: 'info,pingora=warn', audit_arguments: true, redact: [/a/0] }
shutdown: { grace: 0s, drain: 91s }
upgrade: { directory: handover }
public_url: https://gateway.example.com/below/
";
    let desk =
        super::desk::Desk::new().file("card.json", "{}").file("schema.json", r#"{ "type": "object" }"#);
    let (card, kept, upgrade) = (desk.path("card.json"), desk.path("kept"), desk.path("handover"));
    let settings = desk.settings(text);
    let shown = format!("{settings:?}");
    for part in [
        r#"public_url: Some("https://gateway.example.com/below")"#,
        "serve: Services { mcp: true, a2a: true, grpc: false, health: false, push: true }",
        "AgentTimeouts { connect: 11s, first_byte: 12s, idle: 13s, total: 14s }, streaming: false, push: false, translate: false, a2a_host: Some(\"agent.example\"), endpoints: [\"https://one.example/rpc\", \"https://two.example/rpc\"], breaker: Breaker { failures: 18, base: 19s, max: 20s }, health: Some(Health { path: \"/healthz\", interval: 23s, timeout: 24s }), max_calls: 16, queue: Queue { size: 25, wait: 26s }, rate: 17, task: Required",
        "protocol: V1",
        r#"Mcp { allowed_origins: ["*", "null"], allowed_hosts: ["*"], page_size: 21, list_ttl: 22s, instructions: None, server_name: "mine", subagent_tools: false, find_agent: false, resource_links: All }"#,
        "Calls { budget: 33s, stream_after: 32s, keep_alive: 31s, task_after: 34s, round_timeout: 35s, max_rounds: 3, round_grace: 36s, stream_timeout: Forever, on_decline: Cancel, cancel_grace: 37s, clients: [",
        r#"clients: [KnownClient { name: "agno", client_names: ["agno*"], user_agents: ["agno*"], budget: None, rounds: Some(false) }, KnownClient { name: "own", client_names: ["Host", "Host *"], user_agents: ["h/*"], budget: Some(30s), rounds: Some(true) }, KnownClient { name: "llama-index","#,
        "Cards { min_refresh: 41s, max_refresh: 42s, retry: 40s }",
        "Sessions { ttl: 3060s, max_cached: 52 }",
        "Limits { body: 62464, depth: 62, response: 64512, event: 65536, artifacts: 66560, batch: 66, header_read: 67s, body_read: 68s, write_stall: 69s, keep_alive: 70s, streams: 71, calls: 72, caller_rate: 73, caller_burst: 74, caller_calls: 75, caller_streams: 76, caller_tasks: 78, bytes: 83886080, caller_bytes: 84934656, auth_failures: 79, header: 33792, connections: 77, address_connections: 80 }",
        "Tasks { ttl: 101s, sweep_interval: 102s, max: 103, max_bytes: 106496, keep_artifacts: 107520, compress_after: 107s, poll_interval: 106s, ",
        "Streams { idle_timeout: 111s, retry_base: 112s, retry_max: 113s, max_attempts: 114, stalled_after: 115s }",
        r#"Outbound { allow: AllowList([Host("a.example"), Host("b.example:8443"), Network(Network(10.0.0.0/8)), Network(Network(127.0.0.1/32))]), webhooks: Webhooks { allow: AllowList([Host("c.example")]), http: true, is_resolved_by_proxy: true }, proxy: EgressProxy { url: Some(ProxyServer { host: Name("p.example"), port: 3128, credentials: Some(***) }), no_proxy: AllowList([Host("d.example")]), resolve: Proxy } }"#,
        "Background { max: 81, lifetime: 84s }",
        "Push { enabled: true }",
        "threads: 3",
        r#"state: Some(State { location: Servers([***, ***]), topology: Sentinel, master: "mine", username: Some("ann"), password: Some(***), sentinel_username: Some("sue"), sentinel_password: Some(***), content: Ids, tls: "#,
        r#"timeout: 600ms, prefix: "pre" })"#,
        r#"Log { format: Json, level: "info,pingora=warn", audit_arguments: true, redact: ["/a/0"] }"#,
        "Shutdown { grace: 0ns, drain: 91s }",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    assert_eq!(settings.agents[0].card, CardSource::File(card));
    assert_eq!(settings.tasks.data_dir, Some(kept));
    assert_eq!(settings.upgrade.directory, Some(upgrade));
    let task_of = |skill| settings.agents[0].task_of(skill);
    assert_eq!((task_of("s"), task_of("another")), (TaskMode::Never, TaskMode::Required));
    assert_eq!(settings.agents[0].skills["s"].input_schema, Some(serde_json::json!({ "type": "object" })));
}

/// `UPDATE=1` writes the files that are made from the declarations of the keys.
#[test]
fn generated_files_are_current() {
    for (name, text) in [
        ("schemas/config.schema.json", schema()),
        ("config/full.yaml", config::example()),
        ("docs/reference/configuration.md", config::key_reference()),
    ] {
        let path = repository().join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == text, "{name} is old; run UPDATE=1 cargo test --test config");
    }
}

/// Every line of the full example that is not commented out has the default.
#[test]
fn full_example_has_the_defaults() {
    let full = super::desk::settings(&config::example());
    let least = "listeners: [{ address: 0.0.0.0:8443 }]\nagents: { weather: { card: \"https://weather.internal/.well-known/agent-card.json\" } }\n";
    assert_eq!(format!("{full:?}"), format!("{:?}", super::desk::settings(least)));
}

#[test]
fn schema_and_gateway_refuse_alike() {
    let schema = serde_json::from_str(&schema()).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let good = serde_json::json!({ "listeners": [{ "address": "127.0.0.1:1" }], "agents": { "a": { "card": "http://a" } } });
    assert!(schema.is_valid(&good));
    let from_manifests =
        serde_json::json!({ "listeners": [{ "address": "127.0.0.1:1" }], "manifests": "here" });
    assert!(schema.is_valid(&from_manifests));
    for (pointer, value) in [
        ("/zebra", serde_json::json!(1)),
        ("/threads", serde_json::json!(-1)),
        ("/calls", serde_json::json!({ "budget": 3 })),
        ("/limits", serde_json::json!({ "body": "lots" })),
        ("/agents", serde_json::json!({ "A": { "card": "http://a" } })),
        ("/agents", serde_json::json!({ "a": {} })),
        ("/manifests", serde_json::json!(1)),
        ("/agents", serde_json::json!({})),
        ("/listeners", serde_json::json!([])),
        ("/auth", serde_json::json!({})),
    ] {
        let mut bad = good.clone();
        bad[pointer.trim_start_matches('/')] = value;
        assert!(!schema.is_valid(&bad), "{bad}");
    }
}
