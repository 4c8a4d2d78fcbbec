//! Streams for notifications: GET of a legacy session, and `subscriptions/listen` of a modern
//! client.
//!
//! Reads docs/spec/mcp.md §1.4, §2.5, §2.13, §2.14. Notifies changes of lists, resources and tasks.
//! The number of streams is bounded. See also `notifications`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::McpServer;
use super::notifications::{Change, ChangeSet, SubscriptionKey};
use super::post::accepts;
use crate::bridge::resource_uri::ResourceUri;
use crate::calls::{CallRequest, ClientContext};
use crate::fault::{Abort, ClientGone, Fault};
use crate::http_edge::{AccessRecord, ClientConnection, ResponseSink, Route, SseWriter};
use crate::jsonrpc::{Id, Object};
use crate::limits::{UsePermit, quota_owner};
use crate::mcp::classify::McpHeaders;
use crate::mcp::notifications::{AcceptedFilter, ChangeableList, acknowledged};
use crate::mcp::params::ListenFilter;
use crate::mcp::{ClientCapabilities, ClientParams, Era, Method};
use crate::quota::QuotaOwner;
use crate::resources::ChangeSource;
use crate::sessions::ClientLimits;
use crate::tasks::TaskEntry;
use crate::telemetry::metrics::GaugeGuard;

/// Most resources and tasks of one stream.
pub(super) const MAX_SUBSCRIPTIONS: usize = 64;
/// Beginnings of the URIs that no client has for resources of its own.
const FAMILIES: [&str; 6] = ["a2a:", "a2a-agent:", "sparc:", "memory:", "batchtools:", "mcp:"];
/// Longest wait for agents that are asked for tasks which the gateway has forgotten.
const TASKS_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which a client should reconnect when the gateway ended its stream.
const RECONNECT_AFTER: Duration = Duration::from_secs(5);

/// One stream, and the changes that its client subscribed to.
pub(super) struct Subscription<'a> {
    pub(super) client: &'a ClientContext<'a>,
    /// The id of the `subscriptions/listen`; `None` for a session.
    pub(super) id: Option<&'a Id>,
    /// Lists, each with true if its changes are notified.
    pub(super) lists: [(ChangeableList, bool); 3],
    /// Subscribed resources that belong to no task, by the URI of the subscription.
    pub(super) plain: BTreeMap<String, WatchedResource<'a>>,
    /// Subscribed tasks.
    pub(super) watching: ChangeSet,
    /// Subscriptions of the session to tasks that do not exist.
    pub(super) missing: BTreeSet<SubscriptionKey>,
    /// Time at which the subscriptions of the session were evaluated last.
    pub(super) evaluated: Instant,
    pub(super) versions: HashMap<String, u64>,
    /// See [`ServerGeneration::lists`](super::ServerGeneration).
    pub(super) seen_lists: u64,
}

/// A stream that the server of another configuration continues, without a connection.
pub(crate) struct MovedStream {
    client: ClientContext<'static>,
    id: Option<Id>,
    lists: [(ChangeableList, bool); 3],
    /// Subscribed resources that belong to no task, with their marks.
    resources: Vec<(String, u64)>,
    watching: ChangeSet,
    missing: BTreeSet<SubscriptionKey>,
    evaluated: Instant,
    versions: HashMap<String, u64>,
    seen_lists: u64,
    open: OpenStream,
}

/// A watched resource that is not a task.
pub(super) struct WatchedResource<'a> {
    /// The number in the change set.
    pub(super) number: u64,
    /// Mark of the content at the last notification.
    pub(super) marked: u64,
    pub(super) mark: Box<dyn Fn() -> u64 + Send + Sync + 'a>,
}

impl<'a> Subscription<'a> {
    /// Returns the stream for the server of another configuration.
    fn into_moved(mut self, open: OpenStream) -> MovedStream {
        let watching = &mut self.watching;
        let resources = std::mem::take(&mut self.plain).into_iter().map(|(uri, resource)| {
            watching.forget_resource(resource.number);
            (uri, resource.marked)
        });
        let resources = resources.collect();
        MovedStream {
            client: self.client.without_route(),
            id: self.id.cloned(),
            lists: self.lists,
            resources,
            watching: self.watching,
            missing: self.missing,
            evaluated: self.evaluated,
            versions: self.versions,
            seen_lists: self.seen_lists,
            open,
        }
    }

    /// Watches a resource from now on.
    pub(super) fn watch_resource(&mut self, uri: String, source: ChangeSource<'a>) {
        let ChangeSource { changes, mark } = source;
        let marked = mark();
        let number = self.watching.listen_to_resource(changes);
        self.plain.insert(uri, WatchedResource { number, marked, mark });
    }

    /// Stops watching the resources that are not `wanted`.
    pub(super) fn retain_resources(&mut self, wanted: &BTreeSet<SubscriptionKey>) {
        let watching = &mut self.watching;
        self.plain.retain(|uri, resource| {
            let is_wanted = wanted.contains(&SubscriptionKey::Resource(uri.clone()));
            if !is_wanted {
                watching.forget_resource(resource.number);
            }
            is_wanted
        });
    }
}

/// Permits of an open stream, until it ends.
struct OpenStream {
    _permit: UsePermit,
    _counted: GaugeGuard,
}

impl McpServer {
    /// Handles a GET: the stream of a legacy session.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which there is no stream, or its end.
    pub(super) async fn session_stream(
        &self,
        http: &mut impl ClientConnection,
        record: &AccessRecord,
        route: Route<'_>,
        moved: &mut Option<Box<MovedStream>>,
    ) -> Result<(), Abort> {
        let headers = McpHeaders::read(&http.head().headers);
        let id = headers.session.value().filter(|_| headers.takes_stream);
        let id = id.ok_or(Fault::MethodNotAllowed("POST"))?;
        let caller = record.caller.clone();
        let found = self.sessions.find(caller.name(), id);
        let (session, _) = found.ok_or(Fault::SessionNotFound)?;
        let accepts = accepts(&headers);
        let owner = quota_owner(&caller, http.client_network());
        let open = self.open_stream(&owner).await?;
        let client = ClientContext {
            caller,
            route,
            version: session.version,
            capabilities: session.capabilities,
            session: Some(session),
            level: None,
            accepts,
            forwarded: record.forwarded.clone(),
            limits: ClientLimits::default(),
            quota_owner: Some(owner),
            software: None,
        };
        let mut subscription = self.subscription(&client, None);
        subscription.watching.listen_to(Change::Session, self.sessions.changes());
        let mut events = SseWriter::begin(http, None).await?;
        self.warn_of_restart(&client, &mut events).await?;
        self.reevaluate(&mut subscription, &mut events).await?;
        Ok(self.run_subscription(events, subscription, open, moved).await?)
    }

    /// Handles a `subscriptions/listen`.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which there is no stream, or its end.
    pub(super) async fn listen(
        &self,
        http: &mut impl ClientConnection,
        request: CallRequest<'_>,
        moved: &mut Option<Box<MovedStream>>,
    ) -> Result<(), Abort> {
        let CallRequest { client, id, params, .. } = request;
        debug_assert_eq!(client.era(), Era::Modern);
        let filter = params.notifications.as_ref();
        let Object(filter) = filter.ok_or_else(|| Fault::InvalidParams("notifications is missing".into()))?;
        if !filter.task_ids.is_empty() && !client.capabilities.has(ClientCapabilities::TASKS_EXTENSION) {
            return Err(Fault::MissingCapability(ClientCapabilities::TASKS_EXTENSION).into());
        }
        let open = self.open_stream(&quota_owner(&client.caller, http.client_network())).await?;
        let mut subscription = self.subscription(client, Some(id));
        let (honoured, tasks) = self.apply_filter(&mut subscription, filter).await;
        let mut events = SseWriter::begin(http, None).await?;
        events.send(&acknowledged(id, &honoured)).await?;
        for task in tasks {
            self.notify_task(task, &mut subscription, &mut events).await?;
        }
        Ok(self.run_subscription(events, subscription, open, moved).await?)
    }

    /// Continues a stream that the server of another configuration has begun, for the caller of the
    /// record. Everything that the caller may not see any more is left out; the stream ends if the
    /// caller is another one, or may not listen.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(crate) async fn resume(
        &self,
        http: &mut impl ClientConnection,
        record: &AccessRecord,
        route: Route<'_>,
        stream: MovedStream,
        moved: &mut Option<Box<MovedStream>>,
    ) -> Result<(), ClientGone> {
        let is_same = stream.client.caller.name() == record.caller.name();
        let MovedStream {
            client,
            id,
            lists,
            resources,
            watching,
            missing,
            evaluated,
            versions,
            seen_lists,
            open,
        } = stream;
        let (caller, forwarded) = (record.caller.clone(), record.forwarded.clone());
        let client = ClientContext { caller, forwarded, route, ..client };
        let mut stream = Subscription {
            client: &client,
            id: id.as_ref(),
            lists,
            plain: BTreeMap::new(),
            watching,
            missing,
            evaluated,
            versions,
            seen_lists,
        };
        let mut events = SseWriter::resume(http);
        let may_listen = || self.authorizer().authorize_method(client.requester(), Method::Listen).is_ok();
        if !is_same || (stream.id.is_some() && !may_listen()) {
            return self.close(events, &stream).await;
        }
        let is_readable = |handle: &str| self.lookup().open_handle(&client, handle).is_some();
        stream.watching.retain_if(|topic| topic.handle().is_some_and(is_readable));
        for (uri, marked) in resources {
            let Ok(Some(source)) = self.resources.resubscribe(&client, &uri).await else { continue };
            stream.watch_resource(uri.clone(), source);
            if let Some(resource) = stream.plain.get_mut(&uri) {
                resource.marked = marked;
                let number = resource.number;
                self.notify_resource(number, &mut stream, &mut events).await?;
            }
        }
        self.notify_lists(&mut stream, &mut events).await?;
        self.run_subscription(events, stream, open, moved).await
    }

    /// Ends a stream of which the caller is not admitted any more.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(crate) async fn end_moved(
        &self,
        http: &mut impl ClientConnection,
        stream: &MovedStream,
    ) -> Result<(), ClientGone> {
        self.end_stream(SseWriter::resume(http), stream.id.as_ref()).await
    }

    async fn open_stream(&self, owner: &QuotaOwner) -> Result<OpenStream, Fault> {
        let permit = self.limits.acquire_stream(Some(owner)).await?;
        Ok(OpenStream { _permit: permit, _counted: self.no_agent.stream() })
    }

    fn subscription<'a>(&'a self, client: &'a ClientContext<'a>, id: Option<&'a Id>) -> Subscription<'a> {
        let mut watching = ChangeSet::default();
        watching.listen_to(Change::Cards, self.discovery.catalogue.changes());
        Subscription {
            client,
            id,
            lists: [ChangeableList::Tools, ChangeableList::Resources, ChangeableList::Prompts]
                .map(|list| (list, true)),
            plain: BTreeMap::new(),
            watching,
            missing: BTreeSet::new(),
            evaluated: Instant::now(),
            versions: self.card_versions(client),
            seen_lists: self.generation.lists,
        }
    }

    /// Accepts the part of the filter that can be served. Also returns the tasks for which the
    /// present state is to be sent.
    async fn apply_filter<'a>(
        &'a self,
        stream: &mut Subscription<'a>,
        filter: &ListenFilter<'_>,
    ) -> (AcceptedFilter, Vec<u64>) {
        stream.lists = [
            (ChangeableList::Tools, filter.tools),
            (ChangeableList::Resources, filter.resources),
            (ChangeableList::Prompts, filter.prompts),
        ];
        let mut honoured = AcceptedFilter {
            tools: filter.tools,
            resources: filter.resources,
            prompts: filter.prompts,
            ..AcceptedFilter::default()
        };
        let client = stream.client;
        let uris = filter.uris.iter().map(|uri| SubscriptionKey::Resource(uri.as_str().to_owned()));
        let tasks = filter.task_ids.iter().map(|task| SubscriptionKey::Task(task.as_str().to_owned()));
        let wanted: Vec<SubscriptionKey> = uris.chain(tasks).take(MAX_SUBSCRIPTIONS).collect();
        let found = self.find(client, wanted.iter().filter(|topic| topic.handle().is_some())).await;
        let mut told = Vec::new();
        for topic in &wanted {
            if stream.watching.has(topic) {
                continue;
            }
            match (topic, found.get(topic)) {
                (SubscriptionKey::Resource(uri), None) if topic.handle().is_none() => {
                    if self.watch_resource(stream, uri).await {
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
        (honoured, told)
    }

    /// Returns the tasks of these keys that this caller may read. Each is followed from now on.
    pub(super) async fn find<'t>(
        &self,
        client: &ClientContext<'_>,
        topics: impl Iterator<Item = &'t SubscriptionKey>,
    ) -> HashMap<&'t SubscriptionKey, Arc<TaskEntry>> {
        let mut found = HashMap::new();
        let all = async {
            for topic in topics {
                let Some(handle) = topic.handle() else { continue };
                if let Ok(Some((entry, known))) = self.lookup().readable(client, handle).await {
                    self.lookup().followers.ensure_followed(&entry, &known);
                    found.insert(topic, entry);
                }
            }
        };
        if tokio::time::timeout(TASKS_TIMEOUT, all).await.is_err() {
            tracing::debug!("timed out fetching tasks of subscription from agents");
        }
        found
    }

    /// Watches a resource that is not a task. Returns true if it is new, and this client may
    /// subscribe to it.
    async fn watch_resource<'a>(&'a self, stream: &mut Subscription<'a>, uri: &str) -> bool {
        if stream.plain.contains_key(uri) {
            return false;
        }
        match self.resources.subscribe(stream.client, uri).await {
            Ok(Some(source)) => {
                stream.watch_resource(uri.to_owned(), source);
                true
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// Handles `resources/unsubscribe` of legacy clients.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(super) async fn unsubscribe(
        &self,
        client: &ClientContext<'_>,
        params: &ClientParams<'_>,
    ) -> Result<(), Fault> {
        let uri = params.uri.as_ref().ok_or_else(|| Fault::InvalidParams("uri is missing".into()))?.as_str();
        let session = client.session.as_ref().ok_or(Fault::SessionRequired)?;
        self.sessions.unsubscribe(session, uri).await;
        Ok(())
    }

    /// Handles `resources/subscribe` of legacy clients.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(super) async fn subscribe(
        &self,
        client: &ClientContext<'_>,
        params: &ClientParams<'_>,
    ) -> Result<(), Fault> {
        let uri = params.uri.as_ref().ok_or_else(|| Fault::InvalidParams("uri is missing".into()))?.as_str();
        let session = client.session.as_ref().ok_or(Fault::SessionRequired)?;
        let mut mark = None;
        let topic = SubscriptionKey::Resource(uri.to_owned());
        let is_there = match topic.handle() {
            Some(task) => {
                let found = self.lookup().readable(client, task).await?;
                // Not for the stream of a task: that the gateway begins to follow it is a change too.
                let watched = found.as_ref().filter(|_| !topic.is_stream());
                mark = watched.map(|(entry, _)| topic.resource_mark(entry));
                found.is_some()
            }
            // Anonymous callers too, although nothing in their list changes.
            None if ResourceUri::read(uri) == Some(ResourceUri::Streams) => true,
            None if self.resources.is_own(uri) => {
                let source = self.resources.subscribe(client, uri).await?;
                mark = source.as_ref().map(|source| (source.mark)());
                source.is_some()
            }
            // Clients try this with URIs of their own; those never cause a notification.
            None => !FAMILIES.iter().any(|scheme| uri.starts_with(scheme)),
        };
        if !is_there {
            return Err(Fault::no_such_resource(uri));
        }
        if !self.sessions.subscribe(session, uri, mark).await {
            return Err(Fault::InvalidParams("too many subscriptions, or too long a uri".into()));
        }
        Ok(())
    }

    async fn run_subscription<'a, S: ResponseSink>(
        &'a self,
        mut events: SseWriter<'_, S>,
        mut stream: Subscription<'a>,
        open: OpenStream,
        moved: &mut Option<Box<MovedStream>>,
    ) -> Result<(), ClientGone> {
        // A separate deadline: changes of other agents must not postpone it.
        let mut sign = tokio::time::interval(self.settings.keep_alive);
        sign.reset();
        loop {
            if self.generation.is_superseded() {
                *moved = Some(Box::new(stream.into_moved(open)));
                return Ok(());
            }
            tokio::select! {
                signal = stream.watching.next() => match signal {
                    Some(Change::Cards) => self.notify_lists(&mut stream, &mut events).await?,
                    Some(Change::Session) => self.reevaluate(&mut stream, &mut events).await?,
                    Some(Change::Resource(number)) => {
                        self.notify_resource(number, &mut stream, &mut events).await?;
                    }
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
                () = self.drain.begun() => return self.close(events, &stream).await,
            }
        }
    }

    fn is_over<S: ResponseSink>(&self, events: &SseWriter<'_, S>, stream: &Subscription<'_>) -> bool {
        let session = stream.client.session.as_ref().filter(|_| stream.id.is_none());
        session.is_some_and(|session| self.sessions.is_over(session)) || events.is_shutting_down()
    }

    /// Restarts the follower of every watched task that has none.
    fn ensure_followed(&self, stream: &Subscription<'_>) {
        for entry in stream.watching.entries() {
            // Only a fresh token of the caller helps, and the token of this stream is as old as the
            // stream.
            if entry.visible_state(|inside| inside.awaits_caller_token()) {
                continue;
            }
            if let Some(known) = self.discovery.directory.find(entry.agent()).and_then(|agent| agent.known())
            {
                self.lookup()
                    .followers
                    .ensure_followed(entry, &known.along(stream.client.forwarded.as_ref()));
            }
        }
    }

    async fn close<S: ResponseSink>(
        &self,
        events: SseWriter<'_, S>,
        stream: &Subscription<'_>,
    ) -> Result<(), ClientGone> {
        self.end_stream(events, stream.id).await
    }

    async fn end_stream<S: ResponseSink>(
        &self,
        events: SseWriter<'_, S>,
        id: Option<&Id>,
    ) -> Result<(), ClientGone> {
        match id {
            None => events.end_with_retry(RECONNECT_AFTER).await,
            Some(id) => events.end(Some(&self.writer(Era::Modern).listened(id))).await,
        }
    }
}
