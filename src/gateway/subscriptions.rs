//! Streams for notifications: GET of a legacy session, and `subscriptions/listen` of a modern
//! client.
//!
//! Reads docs/spec/mcp.md §1.4, §2.5, §2.13, §2.14. Notifies changes of lists, resources and tasks.
//! The number of streams is bounded. See also `change_set` (waiting) and `change_notifications`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pingora::proxy::Session;
use tokio::sync::OwnedSemaphorePermit;

use super::change_set::{Change, ChangeSet, SubscriptionKey};
use super::endpoint_limits::EndpointLimits;
use super::limits::{QuotaKind, QuotaOwner, QuotaPermit, quota_key};
use super::resources::resource_not_found;
use super::response::{ClientGone, SseWriter};
use super::route::Route;
use super::{ClientContext, Inner, post};
use crate::agents::ForwardedContext;
use crate::auth::Caller;
use crate::bridge::resource_uri::ResourceUri;
use crate::bridge::resource_view::Reachability;
use crate::fault::Fault;
use crate::jsonrpc::{Id, Object};
use crate::mcp::headers::McpHeaders;
use crate::mcp::notifications::{AcceptedFilter, ChangeableList, acknowledged};
use crate::mcp::params::ListenFilter;
use crate::mcp::{ClientCapabilities, ClientParams, Era};
use crate::tasks::TaskEntry;
use crate::telemetry::metrics::GaugeGuard;

/// Most resources and tasks of one stream.
pub(super) const MAX_SUBSCRIPTIONS: usize = 64;
/// Longest wait for agents that are asked for tasks which the gateway has forgotten.
const FOUND_WITHIN: Duration = Duration::from_secs(10);
/// Time after which a client should reconnect when the gateway ended its stream.
const COME_BACK: Duration = Duration::from_secs(5);

/// One stream, and the changes that its client subscribed to.
pub(super) struct Subscription<'a> {
    pub(super) asker: &'a ClientContext,
    pub(super) door: Route<'a>,
    /// The id of the `subscriptions/listen`; `None` for a session.
    pub(super) id: Option<&'a Id>,
    /// Lists, each with true if its changes are notified.
    pub(super) lists: [(ChangeableList, bool); 2],
    /// Subscribed resources that belong to no task.
    pub(super) plain: BTreeSet<String>,
    /// Subscribed tasks.
    pub(super) watching: ChangeSet,
    /// Subscriptions of the session to tasks that do not exist.
    pub(super) missing: BTreeSet<SubscriptionKey>,
    /// Time of the last look at the subscriptions of the session.
    pub(super) looked: Instant,
    pub(super) versions: HashMap<String, u64>,
    pub(super) registry: Option<Vec<(u64, Reachability)>>,
    /// True if the stream listens for live streams of the caller's tasks.
    pub(super) hears_streams: bool,
}

impl Inner {
    /// Handles a GET: the stream of a legacy session.
    pub(super) async fn session_stream(
        &self,
        http: &mut Session,
        (caller, along): (Caller, Option<Arc<ForwardedContext>>),
        door: Route<'_>,
    ) -> Result<(), Result<Fault, ClientGone>> {
        let headers = McpHeaders::read(&http.req_header().headers);
        let not_here = Err(Ok(Fault::MethodNotAllowed("POST")));
        let Some(id) = headers.session.value().filter(|_| headers.takes_stream) else { return not_here };
        let found = self.sessions.find(&self.sealer, caller.name(), id, super::now());
        let (session, _) = found.ok_or(Ok(Fault::SessionNotFound))?;
        let _open = self.acquire_stream_permit(&quota_key(&caller, http))?;
        let asker = ClientContext {
            caller,
            version: session.version,
            capabilities: session.capabilities,
            level: None,
            takes: post::accepts(&headers),
            session: Some(session),
            along,
            limits: EndpointLimits::default(),
            whose: None,
        };
        let mut stream = self.stream(&asker, door, None);
        stream.watching.listen_to(Change::Session, self.sessions.changes());
        let mut events = SseWriter::begin(http, None).await.map_err(Err)?;
        self.tell_of_restart(&asker, &mut events).await.map_err(Err)?;
        self.reevaluate(&mut stream, &mut events).await.map_err(Err)?;
        self.run_subscription(events, stream).await.map_err(Err)
    }

    /// Handles a `subscriptions/listen`.
    pub(super) async fn listen(
        &self,
        http: &mut Session,
        door: Route<'_>,
        asker: &ClientContext,
        id: &Id,
        params: &ClientParams<'_>,
    ) -> Result<(), Result<Fault, ClientGone>> {
        debug_assert_eq!(asker.version.era(), Era::Modern);
        let filter = params.notifications.as_ref();
        let Object(filter) =
            filter.ok_or_else(|| Ok(Fault::InvalidParams("notifications is missing".into())))?;
        if !filter.task_ids.is_empty() && !asker.capabilities.has(ClientCapabilities::TASKS_EXTENSION) {
            return Err(Ok(Fault::MissingCapability(ClientCapabilities::TASKS_EXTENSION)));
        }
        let _open = self.acquire_stream_permit(&quota_key(&asker.caller, http))?;
        let mut stream = self.stream(asker, door, Some(id));
        let (honoured, tasks) = self.apply_filter(&mut stream, filter).await;
        let mut events = SseWriter::begin(http, None).await.map_err(Err)?;
        events.send(&acknowledged(id, &honoured)).await.map_err(Err)?;
        for task in tasks {
            self.notify_task(task, &mut stream, &mut events).await.map_err(Err)?;
        }
        self.run_subscription(events, stream).await.map_err(Err)
    }

    fn acquire_stream_permit(
        &self,
        whose: &QuotaOwner,
    ) -> Result<(OwnedSemaphorePermit, QuotaPermit, GaugeGuard), Result<Fault, ClientGone>> {
        let part = self.shares.acquire(whose, QuotaKind::Stream).map_err(Ok)?;
        let busy = |_| Ok(Fault::Busy("too many open streams"));
        let permit = self.streams.clone().try_acquire_owned().map_err(busy)?;
        Ok((permit, part, self.nobody.stream()))
    }

    fn stream<'a>(&self, asker: &'a ClientContext, door: Route<'a>, id: Option<&'a Id>) -> Subscription<'a> {
        let mut watching = ChangeSet::default();
        watching.listen_to(Change::Cards, self.changes.subscribe());
        Subscription {
            asker,
            door,
            id,
            lists: [(ChangeableList::Tools, true), (ChangeableList::Resources, true)],
            plain: BTreeSet::new(),
            watching,
            missing: BTreeSet::new(),
            looked: Instant::now(),
            versions: self.versions(asker, door),
            registry: None,
            hears_streams: false,
        }
    }

    /// Accepts the part of the filter that can be served. Also returns the tasks for which the
    /// present state is to be sent.
    async fn apply_filter(
        &self,
        stream: &mut Subscription<'_>,
        filter: &ListenFilter<'_>,
    ) -> (AcceptedFilter, Vec<u64>) {
        stream.lists = [(ChangeableList::Tools, filter.tools), (ChangeableList::Resources, filter.resources)];
        let mut honoured =
            AcceptedFilter { tools: filter.tools, resources: filter.resources, ..AcceptedFilter::default() };
        let (asker, door) = (stream.asker, stream.door);
        let uris = filter.uris.iter().map(|uri| SubscriptionKey::Resource(uri.as_str().to_owned()));
        let tasks = filter.task_ids.iter().map(|task| SubscriptionKey::Task(task.as_str().to_owned()));
        let wanted: Vec<SubscriptionKey> = uris.chain(tasks).take(MAX_SUBSCRIPTIONS).collect();
        let found = self.find(asker, door, wanted.iter().filter(|topic| topic.handle().is_some())).await;
        let mut told = Vec::new();
        for topic in &wanted {
            if stream.watching.has(topic) {
                continue;
            }
            match (topic, found.get(topic)) {
                (SubscriptionKey::Resource(uri), None) if self.is_subscribable_uri(asker, door, uri) => {
                    if stream.plain.insert(uri.clone()) {
                        honoured.uris.push(uri.clone());
                    }
                }
                (_, None) => {}
                (topic, Some(entry)) => {
                    let number = stream.watching.watch(topic.clone(), entry);
                    match topic {
                        SubscriptionKey::Resource(uri) => {
                            self.skip(number, stream);
                            honoured.uris.push(uri.clone());
                        }
                        SubscriptionKey::Task(task) | SubscriptionKey::CoreTask(task) => {
                            told.push(number);
                            honoured.task_ids.push(task.clone());
                        }
                    }
                }
            }
        }
        self.watch_new_tasks(stream);
        (honoured, told)
    }

    /// Returns the tasks of these keys that this caller may read. Each is followed from now on.
    pub(super) async fn find<'t>(
        &self,
        asker: &ClientContext,
        door: Route<'_>,
        topics: impl Iterator<Item = &'t SubscriptionKey>,
    ) -> HashMap<&'t SubscriptionKey, Arc<TaskEntry>> {
        let mut found = HashMap::new();
        let all = async {
            for topic in topics {
                let Some(handle) = topic.handle() else { continue };
                if let Ok(Some((entry, known))) = self.readable(asker, door, handle).await {
                    self.followers.ensure_followed(&entry, &known);
                    found.insert(topic, entry);
                }
            }
        };
        if tokio::time::timeout(FOUND_WITHIN, all).await.is_err() {
            tracing::debug!("timed out fetching tasks of subscription from agents");
        }
        found
    }

    /// Returns true if a URI is a resource without a task, and this client may subscribe to it.
    pub(super) fn is_subscribable_uri(&self, asker: &ClientContext, door: Route<'_>, uri: &str) -> bool {
        match ResourceUri::read(uri) {
            Some(ResourceUri::Agent(name)) => self.directory.find(name).is_some_and(|agent| {
                self.can_see(&asker.caller, door, agent) && self.may_read(asker, Some(agent), uri)
            }),
            Some(ResourceUri::Registry) => self.may_read(asker, None, uri),
            // Anonymous callers own no streams.
            Some(ResourceUri::Streams) => !asker.caller.is_anonymous(),
            Some(ResourceUri::Task(_) | ResourceUri::Artifact { .. } | ResourceUri::Stream(_)) | None => {
                false
            }
        }
    }

    /// Handles `resources/subscribe` and `resources/unsubscribe` of legacy clients.
    pub(super) async fn subscribe(
        &self,
        door: Route<'_>,
        asker: &ClientContext,
        params: &ClientParams<'_>,
        begin: bool,
    ) -> Result<(), Fault> {
        let uri = params.uri.as_ref().ok_or_else(|| Fault::InvalidParams("uri is missing".into()))?.as_str();
        let session = asker.session.as_ref().ok_or(Fault::SessionRequired)?;
        if !begin {
            self.sessions.unsubscribe(session, uri);
            self.keep_session(session).await;
            return Ok(());
        }
        let is_there = match ResourceUri::read(uri) {
            Some(ResourceUri::Agent(_) | ResourceUri::Registry) => self.is_subscribable_uri(asker, door, uri),
            Some(ResourceUri::Streams) => true,
            Some(
                ResourceUri::Task(task) | ResourceUri::Artifact { task, .. } | ResourceUri::Stream(task),
            ) => self.readable(asker, door, task).await?.is_some(),
            // Clients try this with URIs of their own; those never cause a notification.
            None => !uri.starts_with("a2a:") && !uri.starts_with("a2a-agent:"),
        };
        match is_there && self.sessions.subscribe(session, uri) {
            true => {
                self.keep_session(session).await;
                Ok(())
            }
            false if is_there => {
                Err(Fault::InvalidParams("too many subscriptions, or too long a uri".into()))
            }
            false => Err(resource_not_found(uri)),
        }
    }

    async fn run_subscription(
        &self,
        mut events: SseWriter<'_>,
        mut stream: Subscription<'_>,
    ) -> Result<(), ClientGone> {
        // A separate deadline: changes of other agents must not postpone it.
        let mut sign = tokio::time::interval(self.settings.calls.keep_alive);
        sign.reset();
        loop {
            tokio::select! {
                signal = stream.watching.next() => match signal {
                    Some(Change::Cards) => self.notify_lists(&mut stream, &mut events).await?,
                    Some(Change::Looks) => self.notify_registry(&mut stream, &mut events).await?,
                    Some(Change::Session) => self.reevaluate(&mut stream, &mut events).await?,
                    Some(Change::Streams) => self.notify_streams(&stream, &mut events).await?,
                    Some(Change::Task(number)) => self.notify_task(number, &mut stream, &mut events).await?,
                    None => return events.end(None).await,
                },
                () = events.wait_for_disconnect() => return Err(ClientGone),
                _ = sign.tick() => {
                    if self.is_over(&events, &stream) {
                        return self.close(events, &stream).await;
                    }
                    self.ensure_followed(&stream);
                    events.keep_alive().await?;
                }
                () = self.closing.begun() => return self.close(events, &stream).await,
            }
        }
    }

    fn is_over(&self, events: &SseWriter<'_>, stream: &Subscription<'_>) -> bool {
        let session = stream.asker.session.as_ref().filter(|_| stream.id.is_none());
        let ended = session
            .is_some_and(|session| self.sessions.is_revoked(session) || session.has_expired(super::now()));
        ended || events.is_shutting_down()
    }

    /// Restarts the follower of every watched task that has none.
    fn ensure_followed(&self, stream: &Subscription<'_>) {
        for entry in stream.watching.entries() {
            // Only a fresh token of the caller helps, and the token of this stream is as old as the
            // stream.
            if entry.visible_state(|inside| inside.awaits_caller_token()) {
                continue;
            }
            if let Some(known) = self.directory.find(entry.agent()).and_then(|agent| agent.known()) {
                self.followers.ensure_followed(entry, &known.along(stream.asker.along.as_ref()));
            }
        }
    }

    async fn close(&self, events: SseWriter<'_>, stream: &Subscription<'_>) -> Result<(), ClientGone> {
        match stream.id {
            None => events.end_with_retry(COME_BACK).await,
            Some(id) => events.end(Some(&self.writer(Era::Modern).listened(id))).await,
        }
    }
}
