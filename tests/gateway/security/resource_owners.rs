//! Every URI and handle of one caller, tried by another caller in both eras: read, listed,
//! subscribed, completed, changed. See also `advisories_callers` (tasks, sessions, questions).

use serde_json::{Value, json};

use crate::auth::rules::{auth, key_of};
use crate::kit::scene::{Scene, TOOL, complaint};
use crate::support::payload::v1;
use crate::support::{Answer, Card, LegacySession, McpClient, Reply, Signal, in_time};

const SETTINGS: &str = "resources: { sparc: {}, memory: {}, batchtools: {} }\ncalls: { task_after: 0s }\n";
/// Part of everything that the first caller stores, and of everything that an agent tells it.
const CANARY: &str = "CANARY-of-ann";
/// A handle that nothing has.
const MADE_UP: &str = "made-up";
const UPDATED: &str = "notifications/resources/updated";

/// A client of one era.
enum Reader {
    Modern(McpClient),
    Legacy(LegacySession),
}

impl Reader {
    async fn send(&self, method: &str, params: Value) -> Answer {
        match self {
            Self::Modern(client) => client.modern(method, params).await,
            Self::Legacy(session) => session.call(method, params).await,
        }
    }

    /// The response to a request, without ids and times.
    async fn ask(&self, method: &str, params: Value) -> Value {
        timeless(self.send(method, params).await.json().await)
    }

    async fn read(&self, uri: &str) -> Value {
        self.ask("resources/read", json!({ "uri": uri })).await
    }

    async fn tool(&self, name: &str, arguments: Value) -> Value {
        self.send("tools/call", json!({ "name": name, "arguments": arguments })).await.result().await
    }

    /// A stream of the updates of these resources, and those that the gateway accepted.
    async fn listen(&self, uris: &[String]) -> (Answer, Vec<String>) {
        match self {
            Self::Modern(client) => {
                let wanted = json!({ "notifications": { "resourceSubscriptions": uris } });
                let mut stream = client.modern("subscriptions/listen", wanted).await;
                let promised = stream.next_message().await;
                let accepted = promised["params"]["notifications"]["resourceSubscriptions"].as_array();
                let accepted = accepted.into_iter().flatten().map(|uri| uri.as_str().unwrap().to_owned());
                (stream, accepted.collect())
            }
            Self::Legacy(session) => {
                let mut accepted = Vec::new();
                for uri in uris {
                    let answer = session.call("resources/subscribe", json!({ "uri": uri })).await;
                    if answer.json().await["result"].is_object() {
                        accepted.push(uri.clone());
                    }
                }
                (session.listen(None).await, accepted)
            }
        }
    }
}

/// Removes the members that differ between two equal answers.
fn timeless(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let keeps = |name: &String| !["id", "lastModified", "timestamp"].contains(&name.as_str());
            members
                .into_iter()
                .filter(|(name, _)| keeps(name))
                .map(|(name, value)| (name, timeless(value)))
                .collect()
        }
        Value::Array(elements) => elements.into_iter().map(timeless).collect(),
        Value::String(text) => match serde_json::from_str::<Value>(&text) {
            Ok(inside @ Value::Object(_)) => timeless(inside),
            _ => Value::String(text),
        },
        other => other,
    }
}

/// The address of a resource: the text before a handle, the handle, and the text after it.
#[derive(Clone)]
struct Address {
    before: &'static str,
    handle: String,
    after: &'static str,
}

impl Address {
    fn new(before: &'static str, handle: &str, after: &'static str) -> Self {
        Self { before, handle: handle.to_owned(), after }
    }

    /// Both spellings of the URI with this handle.
    fn spellings(&self, handle: &str) -> [String; 2] {
        let uri = format!("{}{handle}{}", self.before, self.after);
        let alias = format!("mcp://mcp-a2a-gateway/{}", uri.replacen("://", "/", 1));
        [uri, alias]
    }
}

/// The belongings of the first caller: a task that runs, a batch that runs, and stored values.
struct Belongings {
    scene: Scene,
    /// Tasks of the agent end once this is open.
    go: Signal,
    task: String,
    context: String,
    other_context: String,
}

impl Belongings {
    async fn new() -> Self {
        let settings = format!("{SETTINGS}{}", auth(&["ann", "ben", "cat"]));
        let scene = Scene::of(Card::v1().skill("sing"), "", &settings).await;
        let go = Signal::new();
        let until = go.clone();
        scene.agent.on_stream(move |request| {
            let (id, context) =
                (format!("raw-{}", request.text()), format!("raw-context-{}", request.text()));
            let mut task = v1::task(&id, &context, "working");
            task["task"]["metadata"] = json!({ "sparcPhase": "specification" });
            let said = v1::status_update(&id, &context, "working", Some(CANARY));
            let made = v1::artifact_update(&id, &context, CANARY, false, true);
            let end = v1::status_update(&id, &context, "completed", Some(CANARY));
            Reply::stream().event(task).event(said).event(made).wait(&until).event(end)
        });
        let (task, context) = begin(&scene, "one").await;
        let (_, other_context) = begin(&scene, "two").await;
        let made = Self { scene, go, task, context, other_context };
        for namespace in ["plain", &made.context] {
            made.store("ann", namespace, &format!("{CANARY}-key"), CANARY).await;
        }
        let call = json!({ "tool": TOOL, "arguments": { "text": format!("{CANARY}-batch") } });
        let start = json!({ "calls": [call, call], "wait": false, "maxConcurrency": 1 });
        let batch = made.modern("ann").tool("batch_start", start).await;
        assert_eq!(batch["structuredContent"]["batchId"], "batch_001", "{batch}");
        made.scene
            .agent
            .wait_for("the call of the batch", |log| log.calls("SendStreamingMessage").len() == 3)
            .await;
        made
    }

    fn client(&self, caller: &str) -> McpClient {
        by(&self.scene, caller)
    }

    fn modern(&self, caller: &str) -> Reader {
        Reader::Modern(self.client(caller))
    }

    async fn readers(&self, caller: &str) -> [Reader; 2] {
        [self.modern(caller), Reader::Legacy(self.client(caller).legacy().await)]
    }

    async fn store(&self, caller: &str, namespace: &str, key: &str, value: &str) {
        let arguments = json!({ "namespace": namespace, "key": key, "value": value });
        let stored = self.modern(caller).tool("memory_store", arguments).await;
        assert_eq!(stored["isError"], false, "{stored}");
    }

    /// Resources of the caller that a handle or a name leads to.
    fn addresses(&self) -> Vec<Address> {
        let key = "/keys";
        let mut all = vec![
            Address::new("a2a://tasks/", &self.task, ""),
            Address::new("a2a://task/", &self.task, ""),
            Address::new("a2a://task/", &self.task, "/artifacts/report"),
            Address::new("a2a://streams/", &self.task, ""),
            Address::new("sparc://workflow/", &self.context, ""),
            Address::new("batchtools://batches/", "batch_001", ""),
        ];
        for namespace in ["plain", &self.context] {
            all.push(Address::new("memory://namespace/", namespace, key));
            all.push(Address::new("memory://data/", namespace, "/CANARY-of-ann-key"));
            all.push(Address::new("memory://search/", namespace, "?pattern=*"));
            all.push(Address::new("memory://search/", namespace, "?pattern=canary"));
        }
        all
    }
}

fn by(scene: &Scene, caller: &str) -> McpClient {
    scene.gateway.client().header("X-Api-Key", &key_of(caller))
}

/// Begins a task of the first caller; returns the handles of the task and of its conversation.
async fn begin(scene: &Scene, text: &str) -> (String, String) {
    let client = by(scene, "ann").with_tasks();
    let call = json!({ "name": TOOL, "arguments": { "text": text } });
    let made = client.modern("tools/call", call).await.result().await;
    let task = made["taskId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let uri = json!({ "uri": format!("a2a://task/{task}") });
    let reads = async {
        loop {
            let read = client.modern("resources/read", uri.clone()).await.json().await;
            let view = timeless(read)["result"]["contents"][0]["text"].clone();
            if view["artifacts"][0].is_object() {
                return view["contextId"].as_str().unwrap().to_owned();
            }
        }
    };
    (task, in_time("the artifact", reads).await)
}

/// Resources that each caller has, under the same URI.
const OWN_VIEWS: [&str; 4] = [
    "batchtools://metrics/performance",
    "batchtools://queue/status",
    "batchtools://config/settings",
    "a2a://streams",
];

#[tokio::test]
async fn handle_of_another_caller_reads_as_made_up() {
    let owned = Belongings::new().await;
    for (mine, theirs) in owned.readers("ann").await.iter().zip(owned.readers("ben").await) {
        for address in owned.addresses() {
            let [fake, fake_alias] = address.spellings(MADE_UP);
            for (uri, fake) in address.spellings(&address.handle).iter().zip([fake, fake_alias]) {
                let seen = mine.read(uri).await;
                assert!(seen["result"]["contents"][0].is_object(), "the owner reads {uri}: {seen}");
                let told = theirs.read(uri).await;
                assert_ne!(told, seen, "{uri}");
                let told = told.to_string();
                assert!(!told.replace(uri.as_str(), "").contains(CANARY), "{uri}: {told}");
                let unknown = theirs.read(&fake).await.to_string().replace(MADE_UP, "HANDLE");
                assert_eq!(told.replace(&address.handle, "HANDLE"), unknown, "{uri}");
            }
        }
    }
}

#[tokio::test]
async fn views_of_callers_are_apart() {
    let owned = Belongings::new().await;
    for (index, own) in owned.readers("ann").await.iter().enumerate() {
        for uri in OWN_VIEWS {
            let theirs = owned.readers("ben").await[index].read(uri).await;
            let fresh = owned.readers("cat").await[index].read(uri).await;
            assert_eq!(theirs, fresh, "{uri}");
            let mine = own.read(uri).await;
            let is_equal =
                ["batchtools://metrics/performance", "batchtools://config/settings"].contains(&uri);
            assert_eq!(mine == theirs, is_equal, "{uri}: {mine}");
        }
    }
    let change = json!({ "maxConcurrency": 1, "thresholds": { "queueSize": 3 } });
    owned.modern("ann").tool("batch_configure", change).await;
    owned.go.open();
    let ended = async {
        loop {
            let seen = owned.modern("ann").read("batchtools://batches/batch_001").await;
            if seen["result"]["contents"][0]["text"]["status"] == "completed" {
                break;
            }
        }
    };
    in_time("the end of the batch", ended).await;
    for uri in OWN_VIEWS {
        let [mine, theirs, fresh] = [
            owned.modern("ann").read(uri).await,
            owned.modern("ben").read(uri).await,
            owned.modern("cat").read(uri).await,
        ];
        assert_eq!(theirs, fresh, "{uri}");
        assert_eq!(mine == theirs, uri == "a2a://streams", "{uri}: {mine}");
    }
}

#[tokio::test]
async fn lists_and_completions_are_of_their_caller() {
    let owned = Belongings::new().await;
    let secrets = [CANARY, &owned.task, &owned.context, &owned.other_context, "batch_001", "plain"];
    for (mine, theirs) in owned.readers("ann").await.iter().zip(owned.readers("ben").await) {
        let listed = mine.ask("resources/list", json!({})).await.to_string();
        for uri in [
            format!("a2a://task/{}", owned.task),
            format!("sparc://workflow/{}", owned.context),
            format!("memory://namespace/{}/keys", owned.context),
            "memory://namespace/plain/keys".to_owned(),
            "batchtools://batches/batch_001".to_owned(),
        ] {
            assert!(listed.contains(&uri), "the owner has {uri}: {listed}");
        }
        let listed = theirs.ask("resources/list", json!({})).await.to_string();
        assert!(!secrets.iter().any(|secret| listed.contains(secret)), "{listed}");
        let templates = theirs.ask("resources/templates/list", json!({})).await;
        let mut completed = 0;
        for template in templates["result"]["resourceTemplates"].as_array().unwrap() {
            let uri = template["uriTemplate"].as_str().unwrap();
            for variable in uri.split('{').skip(1).filter_map(|rest| rest.split_once('}')) {
                for name in variable.0.trim_start_matches('?').split(',') {
                    let params = json!({
                        "ref": { "type": "ref/resource", "uri": uri }, "argument": { "name": name, "value": "" },
                    });
                    let told = theirs.ask("completion/complete", params.clone()).await.to_string();
                    assert!(!secrets.iter().any(|secret| told.contains(secret)), "{uri} {name}: {told}");
                    let own = mine.ask("completion/complete", params).await.to_string();
                    completed += usize::from(secrets.iter().any(|secret| own.contains(secret)));
                }
            }
        }
        assert!(completed >= 4, "the owner is offered its own: {completed}");
    }
}

#[tokio::test]
async fn changes_of_another_caller_are_not_notified() {
    let owned = Belongings::new().await;
    let sentinel = "memory://namespace/mine/keys".to_owned();
    let mut wanted: Vec<String> =
        owned.addresses().iter().flat_map(|address| address.spellings(&address.handle)).collect();
    wanted.extend(OWN_VIEWS.map(str::to_owned));
    wanted.push(sentinel.clone());
    let mut streams = Vec::new();
    for reader in owned.readers("ben").await {
        let (stream, accepted) = reader.listen(&wanted).await;
        for uri in &accepted {
            let is_name =
                ["memory://", "mcp://mcp-a2a-gateway/memory/"].iter().any(|start| uri.starts_with(start));
            assert!(is_name || OWN_VIEWS.contains(&uri.as_str()), "{uri} is of another caller");
        }
        assert!(accepted.contains(&sentinel));
        streams.push((stream, reader));
    }
    let uris =
        owned.addresses().iter().flat_map(|address| address.spellings(&address.handle)).collect::<Vec<_>>();
    let (mut mine, _) = owned.modern("ann").listen(&uris).await;
    for namespace in ["plain", &owned.context] {
        owned.store("ann", namespace, &format!("{CANARY}-key"), "changed").await;
    }
    owned.modern("ann").tool("batch_configure", json!({ "maxConcurrency": 1 })).await;
    let cancelled = owned.modern("ann").tool("batch_cancel", json!({ "batchId": "batch_001" })).await;
    assert_eq!(cancelled["structuredContent"]["canceled"], true, "{cancelled}");
    owned.go.open();
    let mut unheard = vec!["memory://", "batchtools://", "a2a://task/", "sparc://"];
    let all_heard = async {
        while !unheard.is_empty() {
            let message = mine.next_message().await;
            let uri = message["params"]["uri"].as_str().unwrap_or_default();
            unheard.retain(|start| message["method"] != UPDATED || !uri.starts_with(start));
        }
    };
    in_time("the changes, for their owner", all_heard).await;
    owned.store("ben", "mine", "k", "x").await;
    for (mut stream, _reader) in streams {
        let first = in_time("the own change", async {
            loop {
                let message = stream.next_message().await;
                if message["method"] == UPDATED {
                    return message["params"]["uri"].clone();
                }
            }
        })
        .await;
        assert_eq!(first, sentinel, "nothing of the other caller came before it");
    }
}

#[tokio::test]
async fn tools_do_not_change_values_of_others() {
    let owned = Belongings::new().await;
    let key = format!("{CANARY}-key");
    for theirs in owned.readers("ben").await {
        for namespace in ["plain", &owned.context] {
            let place = json!({ "namespace": namespace, "key": key });
            let deleted = theirs.tool("memory_delete", place).await;
            assert_eq!(deleted["structuredContent"]["deleted"], false, "{deleted}");
        }
        let refused = theirs.tool("batch_cancel", json!({ "batchId": "batch_001" })).await;
        assert!(complaint(&refused).contains("no batch"), "{refused}");
        // A namespace of its own that is named like the conversation of the other.
        let stored = json!({ "namespace": owned.context, "key": "stolen", "value": "of ben" });
        assert_eq!(theirs.tool("memory_store", stored).await["isError"], false);
    }
    let mine = owned.modern("ann");
    for namespace in ["plain", &owned.context] {
        let kept = mine.read(&format!("memory://data/{namespace}/{key}")).await;
        assert_eq!(kept["result"]["contents"][0]["text"]["value"], CANARY, "{kept}");
    }
    let stolen = mine.read(&format!("memory://data/{}/stolen", owned.context)).await;
    assert!(stolen["error"].is_object(), "{stolen}");
    let keys = mine.read(&format!("memory://namespace/{}/keys", owned.context)).await;
    assert_eq!(keys["result"]["contents"][0]["text"]["stats"]["total"], 1, "{keys}");
    let batch = mine.read("batchtools://batches/batch_001").await;
    assert_eq!(batch["result"]["contents"][0]["text"]["status"], "running", "{batch}");
}

#[tokio::test]
async fn conversations_of_one_caller_are_apart() {
    let owned = Belongings::new().await;
    let mine = owned.modern("ann");
    let key = format!("{CANARY}-key");
    // The names that the gateway may use inside, as names of a client.
    for namespace in [
        owned.other_context.as_str(),
        "raw-context-one",
        "bard/raw-context-one",
        "cbard/raw-context-one",
        "nplain",
        "%6Eplain",
    ] {
        let escaped = namespace.replace('%', "%25").replace('/', "%2F");
        let data = mine.read(&format!("memory://data/{escaped}/{key}")).await;
        assert!(data["error"].is_object(), "{namespace}: {data}");
        for uri in
            [format!("memory://namespace/{escaped}/keys"), format!("memory://search/{escaped}?pattern=*")]
        {
            let seen = mine.read(&uri).await.to_string();
            assert!(!seen.contains(CANARY), "{uri}: {seen}");
        }
    }
    owned.store("ann", &owned.other_context, "apart", "x").await;
    let keys = mine.read(&format!("memory://namespace/{}/keys", owned.context)).await;
    assert_eq!(keys["result"]["contents"][0]["text"]["stats"]["total"], 1, "{keys}");
    let other = mine.read(&format!("sparc://workflow/{}", owned.other_context)).await;
    let seen = &other["result"]["contents"][0]["text"];
    assert_eq!(seen["history"].as_array().map(Vec::len), Some(1), "the task of this conversation: {other}");
    assert!(!other.to_string().contains(&owned.task), "{other}");
}
