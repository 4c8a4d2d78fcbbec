//! The client: each line on standard input is a request as JSON, `{"id", "verb", "request"}`; each line on standard output belongs to
//! one: `{"id", "item"}` for an event, and at the end `{"id", "result"}` or `{"id", "code", "error"}`.

use std::collections::HashMap;
use std::sync::Arc;

use a2a::A2AError;
use a2a_client::middleware::CallInterceptor;
use a2a_client::transport::ServiceParams;
use a2a_client::{A2AClient, BoxStream};
use a2a_grpc::GrpcTransport;
use async_trait::async_trait;
use futures::StreamExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// Adds the headers of the other bindings as metadata.
struct Headers(HashMap<String, String>);

#[async_trait]
impl CallInterceptor for Headers {
    async fn before(&self, _: &str, params: &mut ServiceParams) -> Result<(), A2AError> {
        params.extend(self.0.iter().map(|(name, value)| (name.clone(), vec![value.clone()])));
        Ok(())
    }
}

type Client = A2AClient<GrpcTransport>;

/// Serves the requests until the end of standard input.
pub(crate) async fn run(address: &str, tenant: &str, headers: &[&str]) {
    let headers = headers.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect();
    let transport = GrpcTransport::connect(address).await.expect("a connection");
    let client = A2AClient::new(transport).with_interceptors(vec![Arc::new(Headers(headers))]);
    let client = Arc::new(if tenant.is_empty() { client } else { client.with_tenant(tenant) });
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let client = client.clone();
        tokio::spawn(async move {
            let mut asked: Value = serde_json::from_str(&line).expect("JSON");
            let (id, request) = (asked["id"].take(), asked["request"].take());
            let verb = asked["verb"].as_str().unwrap_or_default().to_owned();
            match answer(&client, &id, &verb, request).await {
                Ok(result) => println!("{}", json!({ "id": id, "result": result })),
                Err(error) => println!("{}", json!({ "id": id, "code": error.code, "error": error.message })),
            }
        });
    }
}

async fn answer(client: &Client, id: &Value, verb: &str, request: Value) -> Result<Value, A2AError> {
    Ok(match verb {
        "send" => json!(client.send_message(&read(request)).await?),
        "stream" => events(id, client.send_streaming_message(&read(request)).await?).await?,
        "resubscribe" => events(id, client.subscribe_to_task(&read(request)).await?).await?,
        "get" => json!(client.get_task(&read(request)).await?),
        "cancel" => json!(client.cancel_task(&read(request)).await?),
        "list" => json!(client.list_tasks(&read(request)).await?),
        "set_push" => json!(client.create_push_config(&read(request)).await?),
        "get_push" => json!(client.get_push_config(&read(request)).await?),
        "list_push" => json!(client.list_push_configs(&read(request)).await?),
        "delete_push" => json!(client.delete_push_config(&read(request)).await?),
        "extended" => json!(client.get_extended_agent_card(&read(request)).await?),
        other => panic!("{other}: no such verb"),
    })
}

fn read<T: DeserializeOwned>(request: Value) -> T {
    serde_json::from_value(request).expect("a request of A2A 1.0")
}

async fn events<T: serde::Serialize>(
    id: &Value,
    mut events: BoxStream<'static, Result<T, A2AError>>,
) -> Result<Value, A2AError> {
    while let Some(event) = events.next().await {
        println!("{}", json!({ "id": id, "item": event? }));
    }
    Ok(Value::Null)
}
