//! The memory bank: values that clients store with tools and read as resources.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::auth::rules::{auth, key_of};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, complaint};
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, in_time};

const MEMORY: &str = "resources: { memory: {} }";

async fn tool(client: &McpClient, name: &str, arguments: Value) -> Value {
    client.modern("tools/call", json!({ "name": name, "arguments": arguments })).await.result().await
}

async fn store(client: &McpClient, namespace: &str, key: &str, value: Value) -> Value {
    let stored =
        tool(client, "memory_store", json!({ "namespace": namespace, "key": key, "value": value })).await;
    assert_eq!(stored["isError"], false, "{stored}");
    stored["structuredContent"].clone()
}

/// The content of a resource.
async fn read(client: &McpClient, uri: &str) -> Value {
    let result = client.modern("resources/read", json!({ "uri": uri })).await.result().await;
    let text = result["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{uri}: {result}"));
    serde_json::from_str(text).unwrap()
}

async fn is_unknown(client: &McpClient, uri: &str) -> bool {
    client.modern("resources/read", json!({ "uri": uri })).await.json().await["error"].is_object()
}

#[tokio::test]
async fn stored_values_have_the_shapes() {
    let scene = Scene::tuned(MEMORY).await;
    let client = scene.gateway.client();
    let stored = store(&client, "notes", "task:7:specification", json!({ "goal": "a song" })).await;
    assert_eq!(stored["uri"], "memory://data/notes/task%3A7%3Aspecification");
    store(&client, "notes", "task:7:completion", json!([1, null])).await;

    let keys = read(&client, "memory://namespace/notes/keys").await;
    assert_eq!(keys["namespace"], "notes");
    assert_eq!(keys["keys"][1]["key"], "task:7:specification");
    assert_eq!((&keys["keys"][0]["size"], &keys["keys"][0]["ttl"]), (&json!(8), &Value::Null));
    assert_eq!((&keys["stats"]["total"], &keys["stats"]["size"]), (&json!(2), &json!(25)));
    assert!(keys["stats"]["oldestEntry"].as_str().unwrap() <= keys["keys"][0]["accessed"].as_str().unwrap());

    let uri = "memory://data/notes/task:7:specification";
    read(&client, uri).await;
    let value = read(&client, uri).await;
    assert_eq!((&value["key"], &value["value"]["goal"]), (&json!("task:7:specification"), &json!("a song")));
    assert_eq!(value["metadata"]["accessCount"], 2);
    assert_eq!(value["metadata"]["namespace"], "notes");
    let other = read(&client, "mcp://mcp-a2a-gateway/memory/data/notes/task:7:specification").await;
    assert_eq!(other["value"], value["value"], "the other spelling");

    let found = read(&client, "memory://search/notes?pattern=task:*:specification").await;
    assert_eq!(found["pattern"], "task:*:specification");
    assert_eq!(found["results"][0]["key"], "task:7:specification");
    assert_eq!(found["results"][0]["score"], 1.0);
    assert_eq!(found["results"][0]["preview"], r#"{"goal":"a song"}"#);
    assert_eq!(found["results"][0]["metadata"]["accessCount"], 3);
    assert_eq!(found["pagination"], json!({ "total": 1, "totalIsExact": true, "page": 1, "limit": 20 }));
    let ranked = read(&client, "memory://search/notes?pattern=song").await;
    assert_eq!(ranked["results"][0]["key"], "task:7:specification");
    let score = ranked["results"][0]["score"].as_f64().unwrap();
    assert!(score > 0.0 && score < 1.0, "{score}");

    let deleted =
        tool(&client, "memory_delete", json!({ "namespace": "notes", "key": "task:7:completion" })).await;
    assert_eq!(deleted["structuredContent"]["deleted"], true);
    assert!(is_unknown(&client, "memory://data/notes/task:7:completion").await);
}

#[tokio::test]
async fn memory_is_listed_with_its_facts() {
    let scene = Scene::tuned(MEMORY).await;
    let client = scene.gateway.client();
    store(&client, "notes", "a", json!(1)).await;
    let list = client.modern("resources/list", json!({})).await.result().await;
    let row = list["resources"].as_array().unwrap().iter();
    let row = row.filter(|row| row["uri"] == "memory://namespace/notes/keys").collect::<Vec<_>>();
    assert_eq!(row.len(), 1, "{list}");
    let facts = &row[0]["_meta"];
    assert_eq!((&facts["type"], &facts["cachePolicy"]), (&json!("memory"), &json!("realtime")));
    assert_eq!(facts["permissions"], json!(["read", "write"]));
    let templates = client.modern("resources/templates/list", json!({})).await.result().await;
    let templates = templates["resourceTemplates"].as_array().unwrap();
    let of_memory = |template: &&Value| template["uriTemplate"].as_str().unwrap().starts_with("memory://");
    assert_eq!(templates.iter().filter(of_memory).count(), 3);
    let read = client.modern("resources/read", json!({ "uri": "memory://data/notes/a" })).await;
    let facts = read.result().await["contents"][0]["_meta"].clone();
    assert_eq!((&facts["resourceId"], &facts["type"]), (&json!("memory://data/notes/a"), &json!("memory")));
    assert!(facts["schema"].as_str().unwrap().ends_with("#/$defs/memoryData"), "{facts}");
}

#[tokio::test]
async fn policy_of_memory_filters_and_expires() {
    let policy = "policy: { rate: 3, redact: [/value/password], max_age: 1s }";
    let scene = Scene::tuned(&format!("resources: {{ memory: {{ {policy} }} }}")).await;
    let client = scene.gateway.client();
    store(&client, "n", "k", json!({ "user": "ann", "password": "secret" })).await;
    let uri = "memory://data/n/k";
    assert_eq!(read(&client, uri).await["value"], json!({ "user": "ann", "password": "***" }));
    expires_under_rate(&client, uri).await;
}

/// Reads a resource until it has expired for readers; the rate of its family refuses some of them.
pub(crate) async fn expires_under_rate(client: &McpClient, uri: &str) {
    let mut saw_rate = false;
    let expired = async {
        loop {
            let answer = client.modern("resources/read", json!({ "uri": uri })).await;
            match answer.status {
                429 => saw_rate = true,
                _ if answer.json().await["error"].is_object() => break,
                _ => {}
            }
        }
    };
    in_time("the resource to expire for readers", expired).await;
    assert!(saw_rate, "the rate of the family");
}

#[tokio::test]
async fn memory_is_off_until_configured() {
    let scene = Scene::new().await;
    let client = scene.gateway.client();
    let tools = client.modern("tools/list", json!({})).await.result().await.to_string();
    assert!(!tools.contains("memory_store") && !tools.contains("batch_start"));
    assert!(is_unknown(&client, "memory://namespace/n/keys").await);
    assert!(is_unknown(&client, "batchtools://queue/status").await);
}

#[tokio::test]
async fn pages_of_keys_follow_the_cursor() {
    let scene = Scene::tuned(MEMORY).await;
    let client = scene.gateway.client();
    for number in 0..5 {
        store(&client, "n", &format!("k{number}"), json!(number)).await;
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = read(&client, &format!("memory://namespace/n/keys?limit=2&cursor={cursor}")).await;
        seen.extend(page["keys"].as_array().unwrap().iter().map(|key| key["key"].clone()));
        match page["nextCursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    assert_eq!(seen, ["k0", "k1", "k2", "k3", "k4"]);
    let second = read(&client, "memory://search/n?pattern=k*&limit=2&page=2").await;
    assert_eq!(second["results"][0]["key"], "k2");
    assert_eq!((&second["pagination"]["total"], &second["pagination"]["page"]), (&json!(5), &json!(2)));
}

#[tokio::test]
async fn callers_do_not_see_each_other() {
    let settings = format!("{MEMORY}\n{}", auth(&["ann", "ben"]));
    let scene = Scene::tuned(&settings).await;
    let by = |name| scene.gateway.client().header("X-Api-Key", &key_of(name));
    let (ann, ben) = (by("ann"), by("ben"));
    store(&ann, "n", "secret", json!("of ann")).await;
    store(&ben, "n", "own", json!("of ben")).await;
    for uri in [
        "memory://namespace/n/keys",
        "memory://search/n?pattern=*",
        "memory://search/n?pattern=ann",
        "mcp://mcp-a2a-gateway/memory/namespace/n/keys",
    ] {
        assert!(!read(&ben, uri).await.to_string().contains("secret"), "{uri}");
    }
    assert!(is_unknown(&ben, "memory://data/n/secret").await);
    let deleted = tool(&ben, "memory_delete", json!({ "namespace": "n", "key": "secret" })).await;
    assert_eq!(deleted["structuredContent"]["deleted"], false);
    assert_eq!(read(&ann, "memory://data/n/secret").await["value"], "of ann");
}

#[tokio::test]
async fn conversation_keeps_its_own_values() {
    let settings = format!("{MEMORY}\n{}", auth(&["ann", "ben"]));
    let scene = Scene::of(Card::v1().skill("sing"), "", &settings).await;
    scene.agent.on_send(|_| Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "la")]));
    let by = |name| scene.gateway.client().header("X-Api-Key", &key_of(name));
    let (ann, ben) = (by("ann"), by("ben"));
    let sung = tool(&ann, "bard_sing", json!({ "text": "x" })).await;
    let told = sung["content"][1]["text"].as_str().unwrap_or_else(|| panic!("{sung}"));
    let context = told.split('"').nth(1).unwrap_or_else(|| panic!("{told}"));
    store(&ann, context, "k", json!(1)).await;
    store(&ann, "plain", "other", json!(1)).await;
    let keys = read(&ann, &format!("memory://namespace/{context}/keys")).await;
    assert_eq!((&keys["stats"]["total"], &keys["keys"][0]["key"]), (&json!(1), &json!("k")));
    let stolen = read(&ben, &format!("memory://namespace/{context}/keys")).await;
    assert_eq!(stolen["keys"], json!([]), "the handle of another caller");
    let list = ann.modern("resources/list", json!({})).await.result().await.to_string();
    assert!(list.contains(&format!("memory://namespace/{context}/keys")), "{list}");
    assert!(!list.contains(RAW_CONTEXT) && !keys.to_string().contains(RAW_CONTEXT));
}

#[tokio::test]
async fn refusal_names_the_bound() {
    let settings = "resources: { memory: { value_bytes: 1KiB, caller_keys: 2 } }";
    let scene = Scene::tuned(settings).await;
    let client = scene.gateway.client();
    let arguments = |key: &str, value: &str| json!({ "namespace": "n", "key": key, "value": value });
    let refused = tool(&client, "memory_store", arguments("a", &"x".repeat(1100))).await;
    assert!(complaint(&refused).contains("resources.memory.value_bytes allows 1024"), "{refused}");
    store(&client, "n", "a", json!(1)).await;
    store(&client, "n", "b", json!(1)).await;
    let refused = tool(&client, "memory_store", arguments("c", "x")).await;
    assert!(complaint(&refused).contains("resources.memory.caller_keys allows (2)"), "{refused}");
    let bad = client.modern("resources/read", json!({ "uri": "memory://search/n?pattern=[" })).await;
    let bad = bad.json().await;
    assert!(bad["error"]["message"].as_str().unwrap().contains("glob"), "{bad}");
}

/// The text with which a store is refused once the bound is reached; fewer than 20 values fit.
async fn refused_store(client: &McpClient, value: &str) -> String {
    for number in 0..20 {
        let before = read(client, "memory://namespace/n/keys").await;
        let arguments = json!({ "namespace": "n", "key": format!("more-{number}"), "value": value });
        let stored = tool(client, "memory_store", arguments).await;
        if stored["isError"] == true {
            let after = read(client, "memory://namespace/n/keys").await;
            assert_eq!(after["stats"], before["stats"], "a refused value takes no room");
            return complaint(&stored).to_owned();
        }
    }
    panic!("no bound");
}

#[tokio::test]
async fn bytes_of_caller_are_bounded() {
    let settings = format!("resources: {{ memory: {{ caller_bytes: 8KiB }} }}\n{}", auth(&["ann", "ben"]));
    let scene = Scene::tuned(&settings).await;
    let by = |name| scene.gateway.client().header("X-Api-Key", &key_of(name));
    let (ann, ben) = (by("ann"), by("ben"));
    let value = "x".repeat(2000);
    let refused = refused_store(&ann, &value).await;
    assert!(refused.contains("resources.memory.caller_bytes allows (8192)"), "{refused}");
    store(&ben, "n", "k", json!(value)).await;
    // A smaller value in the place of another needs no room, and a deletion makes room.
    store(&ann, "n", "more-0", json!("x")).await;
    store(&ann, "n", "again", json!(value)).await;
    tool(&ann, "memory_delete", json!({ "namespace": "n", "key": "again" })).await;
    store(&ann, "n", "more-0", json!(value)).await;
}

#[tokio::test]
async fn bounds_of_all_callers_are_named() {
    for (bounds, told) in [
        ("{ max_keys: 3 }", "resources.memory.max_keys allows (3)"),
        ("{ max_bytes: 8KiB }", "resources.memory.max_bytes allows (8192)"),
    ] {
        let settings = format!("resources: {{ memory: {bounds} }}\n{}", auth(&["ann", "ben"]));
        let scene = Scene::tuned(&settings).await;
        let by = |name| scene.gateway.client().header("X-Api-Key", &key_of(name));
        let value = "x".repeat(1500);
        store(&by("ann"), "n", "first", json!(value)).await;
        let refused = refused_store(&by("ben"), &value).await;
        assert!(refused.contains("all callers") && refused.contains(told), "{refused}");
        let deleted = tool(&by("ann"), "memory_delete", json!({ "namespace": "n", "key": "first" })).await;
        assert_eq!(deleted["structuredContent"]["deleted"], true);
        store(&by("ben"), "n", "last", json!(value)).await;
    }
}

#[tokio::test]
async fn expired_value_is_gone_and_notified() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let settings =
        format!("resources: {{ memory: {{ ttl: 2s }} }}\ntasks: {{ data_dir: {} }}", data.display());
    let scene = Scene::tuned(&settings).await;
    let client = scene.gateway.client();
    let uris = ["memory://data/n/brief", "memory://data/n/capped"];
    let wanted = json!({ "notifications": { "resourceSubscriptions": uris } });
    for (key, ttl, kept) in [("brief", json!(1), 1), ("capped", json!(3600), 2)] {
        let arguments = json!({ "namespace": "n", "key": key, "value": "x", "ttl": ttl });
        let stored = tool(&client, "memory_store", arguments).await;
        assert_eq!(stored["structuredContent"]["ttl"], kept, "the operator bounds it: {stored}");
    }
    let mut stream = client.modern("subscriptions/listen", wanted).await;
    let mut expired = Vec::new();
    in_time("the expiry", async {
        while expired.len() < uris.len() {
            let message = stream.next_message().await;
            if message["method"] == "notifications/resources/updated" {
                expired.push(message["params"]["uri"].as_str().unwrap().to_owned());
            }
        }
    })
    .await;
    expired.sort();
    assert_eq!(expired, uris);
    for uri in uris {
        assert!(is_unknown(&client, uri).await, "{uri}");
    }
    let keys = read(&client, "memory://namespace/n/keys").await;
    assert_eq!((&keys["keys"], &keys["stats"]["total"]), (&json!([]), &json!(0)));
    assert_eq!(read(&client, "memory://search/n?pattern=*").await["results"], json!([]));
    drop(scene);
    let second = Scene::tuned(&settings).await;
    assert!(is_unknown(&second.gateway.client(), uris[0]).await, "it does not return with a restart");
}

#[tokio::test]
async fn rules_deny_reading_and_writing() {
    let rules = "rules:\n  - deny: true\n    callers: [\"key:ben\"]\n    tools: memory_store\n  - deny: true\n    callers: \
                 [\"key:ben\"]\n    resources: \"memory://data/*\"\n  - callers: [\"key:*\"]\n";
    let settings = format!("{MEMORY}\n{}{rules}", auth(&["ann", "ben"]));
    let scene = Scene::tuned(&settings).await;
    let by = |name| scene.gateway.client().header("X-Api-Key", &key_of(name));
    let (ann, ben) = (by("ann"), by("ben"));
    store(&ann, "n", "k", json!(1)).await;
    let params = json!({ "name": "memory_store", "arguments": { "namespace": "n", "key": "k", "value": 1 } });
    let refused = ben.modern("tools/call", params).await.json().await;
    assert!(refused["error"].is_object(), "{refused}");
    assert!(is_unknown(&ben, "memory://data/n/k").await);
    let keys = ben.modern("resources/read", json!({ "uri": "memory://namespace/n/keys" })).await;
    let facts = keys.result().await["contents"][0]["_meta"].clone();
    assert_eq!(facts["permissions"], json!(["read"]), "no permission to write");
}

#[tokio::test]
async fn subscriber_hears_of_its_key_once() {
    let scene = Scene::tuned(MEMORY).await;
    let (client, session) = (scene.gateway.client(), scene.session().await);
    store(&client, "n", "watched", json!(1)).await;
    let uri = "memory://data/n/watched";
    let answer = session.call("resources/subscribe", json!({ "uri": uri })).await;
    assert_eq!(answer.result().await, json!({}));
    let mut stream = session.listen(None).await;
    store(&client, "n", "other", json!(1)).await;
    store(&client, "n", "watched", json!(2)).await;
    let told = in_time("a notification", stream.next_message()).await;
    assert_eq!(told["method"], "notifications/resources/updated");
    assert_eq!(told["params"]["uri"], uri);
    let search = "memory://search/n?pattern=watched";
    let answer = session.call("resources/subscribe", json!({ "uri": search })).await;
    assert_eq!(answer.result().await, json!({}));
    store(&client, "n", "third", json!(1)).await;
    let told = in_time("a notification of the search", stream.next_message()).await;
    assert_eq!(told["params"]["uri"], search);
    assert_eq!(read(&client, uri).await["value"], 2);
}

/// A change between the subscription and the moment at which the stream of the session begins.
#[tokio::test]
async fn change_before_the_stream_is_notified() {
    let scene = Scene::tuned(MEMORY).await;
    let (client, session) = (scene.gateway.client(), scene.session().await);
    let uris = ["memory://data/n/watched", "memory://namespace/n/keys", "memory://data/n/still"];
    store(&client, "n", "still", json!(1)).await;
    for uri in uris {
        session.call("resources/subscribe", json!({ "uri": uri })).await.result().await;
    }
    store(&client, "n", "watched", json!(1)).await;
    let mut stream = session.listen(None).await;
    let mut told = Vec::new();
    for _ in 0..2 {
        let message = in_time("a notification", stream.next_message()).await;
        told.push(message["params"]["uri"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(told, uris[..2]);
    store(&client, "n", "still", json!(2)).await;
    let mut later = Vec::new();
    for _ in 0..2 {
        let message = in_time("a notification", stream.next_message()).await;
        later.push(message["params"]["uri"].as_str().unwrap_or_default().to_owned());
    }
    later.sort();
    assert_eq!(later, [uris[2], uris[1]], "each change once");
}

#[tokio::test]
async fn memory_survives_a_restart() {
    let folder = TempDir::new().unwrap();
    let settings = format!("{MEMORY}\ntasks: {{ data_dir: {} }}", folder.path().join("data").display());
    let first = Scene::tuned(&settings).await;
    store(&first.gateway.client(), "n", "k", json!({ "deep": [1.50] })).await;
    read(&first.gateway.client(), "memory://data/n/k").await;
    let lasting = json!({ "namespace": "n", "key": "brief", "value": 1, "ttl": 3600 });
    tool(&first.gateway.client(), "memory_store", lasting).await;
    // Killed, not ended in order.
    drop(first);
    let second = Scene::tuned(&settings).await;
    let client = second.gateway.client();
    let value = read(&client, "memory://data/n/k").await;
    assert_eq!(value["value"], json!({ "deep": [1.50] }));
    let keys = read(&client, "memory://namespace/n/keys").await;
    assert_eq!((&keys["stats"]["total"], &keys["keys"][0]["ttl"]), (&json!(2), &json!(3600)));
}

/// A gateway that stores finished tasks, and an agent that finishes one at once for each message.
async fn recording(folder: &TempDir) -> Scene {
    let settings = format!(
        "resources: {{ memory: {{ task_results: true, value_bytes: 4KiB }}, sparc: {{}} }}\n{}\ntasks: {{ data_dir: {} }}\n",
        auth(&["ann", "ben"]),
        folder.path().join("data").display()
    );
    let scene = Scene::tuned(&settings).await;
    scene.agent.on_send(|request| {
        let text = request.text();
        let mut task = v1::bare_completed(&format!("raw-{text}"), RAW_CONTEXT, &text.repeat(40));
        if text == "phase" {
            task["metadata"] = json!({ "sparcPhase": "specification" });
        }
        if text == "large" {
            task["artifacts"][0]["parts"] = json!([{ "text": "x".repeat(10_000) }]);
        }
        Reply::events([json!({ "task": task })])
    });
    scene
}

/// The rows of `resources/list`.
async fn list(client: &McpClient) -> Value {
    client.modern("resources/list", json!({})).await.result().await["resources"].clone()
}

/// The only namespace, once it has so many keys.
async fn namespace_with(client: &McpClient, count: usize) -> String {
    let found = async {
        loop {
            let namespace = list(client).await.as_array().unwrap().iter().find_map(|row| {
                let uri = row["uri"].as_str()?;
                uri.strip_prefix("memory://namespace/")?.strip_suffix("/keys").map(str::to_owned)
            });
            let Some(namespace) = namespace else { continue };
            let keys = read(client, &format!("memory://namespace/{namespace}/keys")).await;
            if keys["keys"].as_array().unwrap().len() == count {
                break namespace;
            }
        }
    };
    in_time("the namespace of the conversation", found).await
}

/// The stored tasks with a matching key.
async fn stored(client: &McpClient, namespace: &str, pattern: &str) -> Vec<(String, Value)> {
    let found = read(client, &format!("memory://search/{namespace}?pattern={pattern}")).await;
    let mut stored = Vec::new();
    for result in found["results"].as_array().unwrap() {
        let key = result["key"].as_str().unwrap().to_owned();
        let value = read(client, &format!("memory://data/{namespace}/{key}")).await["value"].clone();
        stored.push((key, value));
    }
    stored
}

#[tokio::test]
async fn finished_tasks_are_stored() {
    let folder = TempDir::new().unwrap();
    let scene = recording(&folder).await;
    let by = |name| scene.gateway.client().header("X-Api-Key", &key_of(name));
    let (ann, ben) = (by("ann"), by("ben"));
    for text in ["phase", "plain", "large"] {
        let result = tool(&ann, TOOL, json!({ "text": text })).await;
        assert_eq!(result["isError"], false, "{result}");
    }
    let namespace = namespace_with(&ann, 3).await;
    let keys = read(&ann, &format!("memory://namespace/{namespace}/keys")).await;
    assert!(!keys.to_string().contains("raw-"), "{keys}");
    let found = stored(&ann, &namespace, "task:*:specification").await;
    let [(key, task)] = &found[..] else { panic!("{found:?}") };
    let handle = key.strip_prefix("task:").unwrap().strip_suffix(":specification").unwrap();
    assert_eq!((&task["taskId"], &task["state"]), (&json!(handle), &json!("completed")), "{task}");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "phase".repeat(40));
    let others = stored(&ann, &namespace, "task:*:result").await;
    assert_eq!(others.len(), 2, "{others:?}");
    let by_uri = others.iter().filter(|(_, task)| task["artifacts"][0]["parts"].is_null()).count();
    assert_eq!(by_uri, 1, "a large artifact is named by its URI");
    assert!(!list(&ben).await.to_string().contains("memory://namespace"), "nothing for another caller");
    assert!(is_unknown(&ben, &format!("memory://data/{namespace}/{key}")).await);
}
