//! The agent: its card by HTTP, and everything else by gRPC at a port of its own.

use std::sync::Arc;

use a2a::{
    A2AError, AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Artifact, Message, Part, PartContent,
    Role, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use a2a_grpc::GrpcHandler;
use a2a_pb::proto::a2a_service_server::A2aServiceServer;
use a2a_server::agent_card::agent_card_router;
use a2a_server::{
    AgentExecutor, DefaultRequestHandler, ExecutorContext, HttpPushSender, HttpPushSenderConfig,
    InMemoryPushConfigStore, InMemoryTaskStore, StaticAgentCard,
};
use futures::stream::BoxStream;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};

use crate::story::{EXTENDED, SKILLS, Sink, Stories};

/// Serves until the process is told to stop.
pub(crate) async fn serve(port: u16) {
    let http = TcpListener::bind(("127.0.0.1", port)).await.expect("a port");
    let grpc = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = grpc.local_addr().expect("an address").to_string();
    let (plain, extended) = (card(&address, &SKILLS), card(&address, &EXTENDED));
    // The webhooks of the tests are on this machine.
    let push = HttpPushSender::new(Some(HttpPushSenderConfig { validate_urls: false, ..Default::default() }));
    let handler = DefaultRequestHandler::new(Executor::default(), InMemoryTaskStore::new())
        .with_push_notifications(InMemoryPushConfigStore::new(), push)
        .with_capabilities(plain.capabilities.clone())
        .with_extended_agent_card(extended);
    println!("ready http://{}/", http.local_addr().expect("an address"));
    let service = A2aServiceServer::new(GrpcHandler::new(Arc::new(handler)));
    let by_grpc = tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming(TcpListenerStream::new(grpc));
    let by_http = axum::serve(http, agent_card_router(Arc::new(StaticAgentCard::new(plain))));
    tokio::select! {
        ended = by_grpc => ended.expect("gRPC is served"),
        ended = async { by_http.await } => ended.expect("the card is served"),
    }
}

fn card(address: &str, skills: &[(&str, &str)]) -> AgentCard {
    let skill = |(id, description): &(&str, &str)| AgentSkill {
        id: (*id).to_owned(),
        name: (*id).to_owned(),
        description: (*description).to_owned(),
        tags: vec!["interop".to_owned()],
        examples: None,
        input_modes: None,
        output_modes: None,
        security_requirements: None,
    };
    AgentCard {
        name: "Rust 1.0 agent".to_owned(),
        description: "The interop agent on a2a-lf 0.4, by gRPC".to_owned(),
        version: "1.0.0".to_owned(),
        supported_interfaces: vec![AgentInterface::new(address, "GRPC")],
        capabilities: AgentCapabilities {
            streaming: Some(true),
            push_notifications: Some(true),
            extensions: None,
            extended_agent_card: Some(true),
        },
        default_input_modes: vec!["text/plain".to_owned()],
        default_output_modes: vec!["text/plain".to_owned(), "application/json".to_owned()],
        skills: skills.iter().map(skill).collect(),
        provider: None,
        documentation_url: None,
        icon_url: None,
        security_schemes: None,
        security_requirements: None,
        signatures: None,
    }
}

#[derive(Default)]
struct Executor {
    stories: Arc<Stories>,
}

impl AgentExecutor for Executor {
    fn execute(&self, context: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let (sender, events) = unbounded_channel();
        let stories = self.stories.clone();
        tokio::spawn(async move {
            let sink =
                EventSink { sender, task: context.task_id.clone(), context: context.context_id.clone() };
            let message = context.message.unwrap_or_else(|| Message::new(Role::User, Vec::new()));
            if context.stored_task.is_none() {
                sink.begin(message.clone());
            }
            let skill = message.metadata.as_ref().and_then(|metadata| metadata.get("skillId")?.as_str());
            let words: Vec<&str> = message.parts.iter().filter_map(Part::as_text).collect();
            stories.play(&sink, skill, &words.join("\n")).await;
        });
        Box::pin(UnboundedReceiverStream::new(events))
    }

    fn cancel(&self, context: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let (sender, events) = unbounded_channel();
        let sink = EventSink { sender, task: context.task_id, context: context.context_id };
        self.stories.cancel(sink.task());
        sink.tell(TaskState::Canceled, Vec::new());
        Box::pin(UnboundedReceiverStream::new(events))
    }
}

/// Events of one turn of a task.
struct EventSink {
    sender: UnboundedSender<Result<StreamResponse, A2AError>>,
    task: String,
    context: String,
}

impl EventSink {
    fn begin(&self, message: Message) {
        self.send(StreamResponse::Task(Task {
            id: self.task.clone(),
            context_id: self.context.clone(),
            status: TaskStatus {
                state: TaskState::Submitted,
                message: None,
                timestamp: Some(chrono::Utc::now()),
            },
            artifacts: None,
            history: Some(vec![message]),
            metadata: None,
        }));
    }

    fn send(&self, event: StreamResponse) {
        // The reader may be gone.
        drop(self.sender.send(Ok(event)));
    }
}

impl Sink for EventSink {
    fn task(&self) -> &str {
        &self.task
    }

    fn context(&self) -> &str {
        &self.context
    }

    fn tell(&self, state: TaskState, parts: Vec<Part>) {
        let message = (!parts.is_empty()).then(|| Message {
            task_id: Some(self.task.clone()),
            context_id: Some(self.context.clone()),
            ..Message::new(Role::Agent, parts)
        });
        self.send(StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
            task_id: self.task.clone(),
            context_id: self.context.clone(),
            status: TaskStatus { state, message, timestamp: Some(chrono::Utc::now()) },
            metadata: None,
        }));
    }

    fn give(&self, artifact: &str, content: PartContent, append: bool, last: bool) {
        let part = Part { content, filename: None, media_type: None, metadata: None };
        self.send(StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: self.task.clone(),
            context_id: self.context.clone(),
            artifact: Artifact {
                artifact_id: artifact.to_owned(),
                name: Some(artifact.to_owned()),
                description: None,
                parts: vec![part],
                metadata: None,
                extensions: None,
            },
            append: Some(append),
            last_chunk: Some(last),
            metadata: None,
        }));
    }
}
