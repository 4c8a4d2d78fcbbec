//! Streams on which the gateway speaks unasked: GET of a legacy session, `subscriptions/listen` of a modern client.
//!
//! Reads mcp.md §1.4, §2.5, §2.13, §2.14. Told of: lists that changed, resources that changed, tasks that changed. Bounded in
//! number. Not here: waiting (see `watching`), what is told (see `telling`), what a call tells (see `pump`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pingora::proxy::Session;
use tokio::sync::OwnedSemaphorePermit;

use super::answer::{Events, Gone};
use super::endpoint_limits::EndpointLimits;
use super::reading::no_such;
use super::route::Door;
use super::shares::{Part, Use, Whose, whose};
use super::watching::{Signal, Topic, Watching};
use super::{Asker, Inner, face};
use crate::agents::Along;
use crate::auth::Caller;
use crate::bridge::registry::Reach;
use crate::bridge::resources::Named;
use crate::fault::Fault;
use crate::jsonrpc::{Id, Object};
use crate::mcp::headers::Headers;
use crate::mcp::notifications::{Honoured, List, acknowledged};
use crate::mcp::params::ListenFilter;
use crate::mcp::{Capabilities, Era, Params};
use crate::tasks::Entry;
use crate::telemetry::metrics::Open;

/// Most resources and tasks that one stream is told of.
pub(super) const MOST: usize = 64;
/// Longest wait for agents that are asked for tasks which the gateway has forgotten.
const FOUND_WITHIN: Duration = Duration::from_secs(10);
/// When a client should come back after the gateway ended its stream.
const COME_BACK: Duration = Duration::from_secs(5);

/// One stream, and what its client wants to be told of.
pub(super) struct Stream<'a> {
    pub(super) asker: &'a Asker,
    pub(super) door: Door<'a>,
    /// The id of the `subscriptions/listen`; `None` for a session.
    pub(super) id: Option<&'a Id>,
    /// Whether changes of the lists are told.
    pub(super) lists: [(List, bool); 2],
    /// Resources that are no task's.
    pub(super) plain: BTreeSet<String>,
    /// The tasks.
    pub(super) watching: Watching,
    /// What a session wants to be told of and is not there.
    pub(super) missing: BTreeSet<Topic>,
    /// When it was last looked what the session wants.
    pub(super) looked: Instant,
    pub(super) versions: HashMap<String, u64>,
    pub(super) registry: Option<Vec<(u64, Reach)>>,
    /// Whether it is heard which tasks of the caller flow.
    pub(super) hears_streams: bool,
}

impl Inner {
    /// Serves a GET: the stream of a legacy session.
    pub(super) async fn session_stream(
        &self,
        http: &mut Session,
        (caller, along): (Caller, Option<Arc<Along>>),
        door: Door<'_>,
    ) -> Result<(), Result<Fault, Gone>> {
        let headers = Headers::read(&http.req_header().headers);
        let not_here = Err(Ok(Fault::MethodNotAllowed("POST")));
        let Some(id) = headers.session.value().filter(|_| headers.takes_stream) else { return not_here };
        let found = self.sessions.find(&self.sealer, caller.name(), id, super::now());
        let (session, _) = found.ok_or(Ok(Fault::SessionNotFound))?;
        let _open = self.room(&whose(&caller, http))?;
        let asker = Asker {
            caller,
            version: session.version,
            capabilities: session.capabilities,
            level: None,
            takes: face::takes(&headers),
            session: Some(session),
            along,
            limits: EndpointLimits::default(),
            whose: None,
        };
        let mut stream = self.stream(&asker, door, None);
        stream.watching.hear(Signal::Session, self.sessions.changes());
        let mut events = Events::begin(http, None).await.map_err(Err)?;
        self.tell_of_restart(&asker, &mut events).await.map_err(Err)?;
        self.look_again(&mut stream, &mut events).await.map_err(Err)?;
        self.speak(events, stream).await.map_err(Err)
    }

    /// Serves a `subscriptions/listen`.
    pub(super) async fn listen(
        &self,
        http: &mut Session,
        door: Door<'_>,
        asker: &Asker,
        id: &Id,
        params: &Params<'_>,
    ) -> Result<(), Result<Fault, Gone>> {
        debug_assert_eq!(asker.version.era(), Era::Modern);
        let filter = params.notifications.as_ref();
        let Object(filter) = filter.ok_or_else(|| Ok(Fault::BadParams("notifications is missing".into())))?;
        if !filter.task_ids.is_empty() && !asker.capabilities.has(Capabilities::TASKS_EXTENSION) {
            return Err(Ok(Fault::MissingCapability(Capabilities::TASKS_EXTENSION)));
        }
        let _open = self.room(&whose(&asker.caller, http))?;
        let mut stream = self.stream(asker, door, Some(id));
        let (honoured, tasks) = self.honour(&mut stream, filter).await;
        let mut events = Events::begin(http, None).await.map_err(Err)?;
        events.send(&acknowledged(id, &honoured)).await.map_err(Err)?;
        for task in tasks {
            self.tell_of(task, &mut stream, &mut events).await.map_err(Err)?;
        }
        self.speak(events, stream).await.map_err(Err)
    }

    fn room(&self, whose: &Whose) -> Result<(OwnedSemaphorePermit, Part, Open), Result<Fault, Gone>> {
        let part = self.shares.take(whose, Use::Stream).map_err(Ok)?;
        let busy = |_| Ok(Fault::Busy("too many open streams"));
        let permit = self.streams.clone().try_acquire_owned().map_err(busy)?;
        Ok((permit, part, self.nobody.stream()))
    }

    fn stream<'a>(&self, asker: &'a Asker, door: Door<'a>, id: Option<&'a Id>) -> Stream<'a> {
        let mut watching = Watching::default();
        watching.hear(Signal::Cards, self.changes.subscribe());
        Stream {
            asker,
            door,
            id,
            lists: [(List::Tools, true), (List::Resources, true)],
            plain: BTreeSet::new(),
            watching,
            missing: BTreeSet::new(),
            looked: Instant::now(),
            versions: self.versions(asker, door),
            registry: None,
            hears_streams: false,
        }
    }

    /// Promises what can be told, and no more. Also says which tasks have their present state to be told.
    async fn honour(&self, stream: &mut Stream<'_>, filter: &ListenFilter<'_>) -> (Honoured, Vec<u64>) {
        stream.lists = [(List::Tools, filter.tools), (List::Resources, filter.resources)];
        let mut honoured =
            Honoured { tools: filter.tools, resources: filter.resources, ..Honoured::default() };
        let (asker, door) = (stream.asker, stream.door);
        let uris = filter.uris.iter().map(|uri| Topic::Resource(uri.as_str().to_owned()));
        let tasks = filter.task_ids.iter().map(|task| Topic::Task(task.as_str().to_owned()));
        let wanted: Vec<Topic> = uris.chain(tasks).take(MOST).collect();
        let found = self.find(asker, door, wanted.iter().filter(|topic| topic.handle().is_some())).await;
        let mut told = Vec::new();
        for topic in &wanted {
            if stream.watching.has(topic) {
                continue;
            }
            match (topic, found.get(topic)) {
                (Topic::Resource(uri), None) if self.is_plain(asker, door, uri) => {
                    if stream.plain.insert(uri.clone()) {
                        honoured.uris.push(uri.clone());
                    }
                }
                (_, None) => {}
                (topic, Some(entry)) => {
                    let number = stream.watching.watch(topic.clone(), entry);
                    match topic {
                        Topic::Resource(uri) => {
                            self.skip(number, stream);
                            honoured.uris.push(uri.clone());
                        }
                        Topic::Task(task) | Topic::CoreTask(task) => {
                            told.push(number);
                            honoured.task_ids.push(task.clone());
                        }
                    }
                }
            }
        }
        self.hear_of_more(stream);
        (honoured, told)
    }

    /// The tasks that these are about, as far as this caller may hear of them. Each is followed from now on.
    pub(super) async fn find<'t>(
        &self,
        asker: &Asker,
        door: Door<'_>,
        topics: impl Iterator<Item = &'t Topic>,
    ) -> HashMap<&'t Topic, Arc<Entry>> {
        let mut found = HashMap::new();
        let all = async {
            for topic in topics {
                let Some(handle) = topic.handle() else { continue };
                if let Ok(Some((entry, known))) = self.readable(asker, door, handle).await {
                    self.followers.attend(&entry, &known);
                    found.insert(topic, entry);
                }
            }
        };
        if tokio::time::timeout(FOUND_WITHIN, all).await.is_err() {
            tracing::debug!("agents take long to say how the tasks of a stream stand");
        }
        found
    }

    /// Whether a URI is a resource that is no task's, and of whose changes this client may hear.
    pub(super) fn is_plain(&self, asker: &Asker, door: Door<'_>, uri: &str) -> bool {
        match Named::read(uri) {
            Some(Named::Agent(name)) => self.directory.find(name).is_some_and(|agent| {
                self.sees(&asker.caller, door, agent) && self.may_read(asker, Some(agent), uri)
            }),
            Some(Named::Registry) => self.may_read(asker, None, uri),
            // Those who are nobody have none that could be told of.
            Some(Named::Streams) => !asker.caller.is_anonymous(),
            Some(Named::Task(_) | Named::Artifact { .. } | Named::Stream(_)) | None => false,
        }
    }

    /// `resources/subscribe` and `resources/unsubscribe` of legacy clients.
    pub(super) async fn subscribe(
        &self,
        door: Door<'_>,
        asker: &Asker,
        params: &Params<'_>,
        begin: bool,
    ) -> Result<(), Fault> {
        let uri = params.uri.as_ref().ok_or_else(|| Fault::BadParams("uri is missing".into()))?.as_str();
        let session = asker.session.as_ref().ok_or(Fault::NoSession)?;
        if !begin {
            self.sessions.unsubscribe(session, uri);
            self.keep_session(session).await;
            return Ok(());
        }
        let is_there = match Named::read(uri) {
            Some(Named::Agent(_) | Named::Registry) => self.is_plain(asker, door, uri),
            Some(Named::Streams) => true,
            Some(Named::Task(task) | Named::Artifact { task, .. } | Named::Stream(task)) => {
                self.readable(asker, door, task).await?.is_some()
            }
            // Clients try this out with URIs of their own; nothing is ever told of those.
            None => !uri.starts_with("a2a:") && !uri.starts_with("a2a-agent:"),
        };
        match is_there && self.sessions.subscribe(session, uri) {
            true => {
                self.keep_session(session).await;
                Ok(())
            }
            false if is_there => Err(Fault::BadParams("too many subscriptions, or too long a uri".into())),
            false => Err(no_such(uri)),
        }
    }

    async fn speak(&self, mut events: Events<'_>, mut stream: Stream<'_>) -> Result<(), Gone> {
        // A deadline of its own: changes of other agents must not put it off.
        let mut sign = tokio::time::interval(self.settings.calls.keep_alive);
        sign.reset();
        loop {
            tokio::select! {
                signal = stream.watching.next() => match signal {
                    Some(Signal::Cards) => self.tell_changes(&mut stream, &mut events).await?,
                    Some(Signal::Looks) => self.tell_registry(&mut stream, &mut events).await?,
                    Some(Signal::Session) => self.look_again(&mut stream, &mut events).await?,
                    Some(Signal::Streams) => self.tell_streams(&stream, &mut events).await?,
                    Some(Signal::Task(number)) => self.tell_of(number, &mut stream, &mut events).await?,
                    None => return events.end(None).await,
                },
                () = events.gone() => return Err(Gone),
                _ = sign.tick() => {
                    if self.is_over(&events, &stream) {
                        return self.close(events, &stream).await;
                    }
                    self.attend_all(&stream);
                    events.keep_alive().await?;
                }
                () = self.closing.begun() => return self.close(events, &stream).await,
            }
        }
    }

    fn is_over(&self, events: &Events<'_>, stream: &Stream<'_>) -> bool {
        let session = stream.asker.session.as_ref().filter(|_| stream.id.is_none());
        let ended = session
            .is_some_and(|session| self.sessions.is_ended(session) || session.has_expired(super::now()));
        ended || events.is_shutting_down()
    }

    /// Sees to it that somebody follows what is watched, if whoever did so has given up.
    fn attend_all(&self, stream: &Stream<'_>) {
        for entry in stream.watching.entries() {
            // With the token of this stream it was tried: it is as old as the stream.
            if entry.look(|inside| inside.waits_for_caller()) {
                continue;
            }
            if let Some(known) = self.directory.find(entry.agent()).and_then(|agent| agent.known()) {
                self.followers.attend(entry, &known.along(stream.asker.along.as_ref()));
            }
        }
    }

    async fn close(&self, events: Events<'_>, stream: &Stream<'_>) -> Result<(), Gone> {
        match stream.id {
            None => events.come_back(COME_BACK).await,
            Some(id) => events.end(Some(&self.writer(Era::Modern).listened(id))).await,
        }
    }
}
