//! Notifications on a client's stream about changes that the client subscribed to, and the wait for
//! changes of tasks, of the session and of agents.
//!
//! No state is sent twice, and no notification is older than the state at the time of sending. The
//! first change is reported at once, later changes of the same subject at most once per interval,
//! and the last change always. Each subject is one small future in a set that ends with the stream.
//! The callers bound the number. See also `subscriptions`.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::McpServer;
use super::subscriptions::{MAX_SUBSCRIPTIONS, Subscription};
use crate::bridge::resource_uri::ResourceUri;
use crate::calls::ClientContext;
use crate::fault::ClientGone;
use crate::http_edge::{ResponseSink, SseWriter};
use crate::jsonrpc::Id;
use crate::mcp::notifications::{
    ChangeableList, LoggingLevel, core_task_changed, list_changed, message, resource_updated, task_changed,
};
use crate::mcp::tasks::TaskSnapshot;
use crate::tasks::{TaskChanges, TaskEntry, WatchGuard};

/// Warning to a session that an earlier process began.
const RESTARTED: &str = "The gateway was started again. It does not know any more which resources this session was subscribed to: \
                         read those that matter, and subscribe to them again.";

/// Client of a notification, and the id of its `subscriptions/listen`.
#[derive(Clone, Copy)]
struct Subscriber<'a> {
    client: &'a ClientContext<'a>,
    id: Option<&'a Id>,
}

impl McpServer {
    /// Warns the client of a session of an earlier process that its subscriptions are lost, unless
    /// the state of the session is known. Not 404: few clients begin a new session on 404.
    pub(super) async fn warn_of_restart(
        &self,
        client: &ClientContext<'_>,
        events: &mut SseWriter<'_, impl ResponseSink>,
    ) -> Result<(), ClientGone> {
        let Some(session) = &client.session else { return Ok(()) };
        // With a data directory, the state of all sessions is known.
        if self.sessions.is_remembered(session)
            || session.began() >= Duration::from_millis(self.settings.started.unix_ms)
        {
            return Ok(());
        }
        events.send(&message(LoggingLevel::Warning, "gateway", RESTARTED)).await?;
        // A client that had subscribed to a resource at least reads it again.
        events.send(&list_changed(ChangeableList::Resources, None)).await
    }

    /// Brings the stream up to date with the present subscriptions of its session.
    pub(super) async fn reevaluate<'a>(
        &'a self,
        stream: &mut Subscription<'a>,
        events: &mut SseWriter<'_, impl ResponseSink>,
    ) -> Result<(), ClientGone> {
        let client = stream.client;
        let Some(session) = &client.session else { return Ok(()) };
        let since = std::mem::replace(&mut stream.evaluated, std::time::Instant::now());
        let uris = self.sessions.subscriptions(session).into_iter().map(SubscriptionKey::Resource);
        let tasks = self.sessions.tasks(session).into_iter().map(SubscriptionKey::CoreTask);
        let has_tasks = stream.client.version.has_core_tasks();
        let wanted: BTreeSet<SubscriptionKey> =
            uris.chain(tasks.filter(|_| has_tasks)).take(MAX_SUBSCRIPTIONS).collect();
        stream.watching.retain(&wanted);
        stream.missing.retain(|topic| wanted.contains(topic));
        stream.retain_resources(&wanted);
        let mut new = Vec::new();
        for topic in wanted {
            match topic {
                topic if stream.watching.has(&topic) || stream.missing.contains(&topic) => {}
                topic if topic.handle().is_some() => new.push(topic),
                SubscriptionKey::Resource(uri) if stream.plain.contains_key(&uri) => {}
                SubscriptionKey::Resource(uri) => {
                    let resumed = self.resources.resubscribe(client, &uri).await;
                    let Ok(Some(source)) = resumed else { continue };
                    stream.watch_resource(uri.clone(), source);
                    // Changes between the client's subscription and this moment are notified now.
                    let before = self.sessions.take_mark(session, &uri);
                    if let Some((resource, before)) = stream.plain.get_mut(&uri).zip(before) {
                        resource.marked = before;
                        let number = resource.number;
                        self.notify_resource(number, stream, events).await?;
                    }
                }
                SubscriptionKey::Task(_) | SubscriptionKey::CoreTask(_) => {}
            }
        }
        let found = self.find(stream.client, new.iter()).await;
        for topic in &new {
            let Some(entry) = found.get(topic) else {
                stream.missing.insert(topic.clone());
                continue;
            };
            let number = stream.watching.watch(topic.clone(), entry);
            // Changes between the client's subscription and this moment are notified now.
            let before = match topic {
                SubscriptionKey::Resource(uri) => self.sessions.take_mark(session, uri),
                SubscriptionKey::Task(_) | SubscriptionKey::CoreTask(_) => None,
            };
            // Without a mark of that time, only changes since the stream began are known. The present
            // mark is computed before the time is read: otherwise a change between the two would be in
            // the mark, and would never be notified.
            let present = self.mark_of(topic, entry, Subscriber { client, id: stream.id });
            let is_unchanged = entry.visible_state(|inside| inside.changed.instant < since);
            if let Some(target) = stream.watching.target(number) {
                target.mark = before.or(Some(present).filter(|_| is_unchanged));
            }
            self.notify_task(number, stream, events).await?;
        }
        Ok(())
    }

    /// Sends the state of a task, if it differs from the state that was sent last.
    pub(super) async fn notify_task(
        &self,
        number: u64,
        stream: &mut Subscription<'_>,
        events: &mut SseWriter<'_, impl ResponseSink>,
    ) -> Result<(), ClientGone> {
        let to = Subscriber { client: stream.client, id: stream.id };
        let Some(target) = stream.watching.target(number) else { return Ok(()) };
        let mark = Some(self.mark_of(&target.topic, target.entry(), to));
        if target.mark == mark {
            return Ok(());
        }
        target.mark = mark;
        events.send(&self.encode_notification(&target.topic, target.entry(), to, false)).await
    }

    /// Records the present state of a task as sent.
    pub(super) fn skip(&self, number: u64, stream: &mut Subscription<'_>) {
        let to = Subscriber { client: stream.client, id: stream.id };
        if let Some(target) = stream.watching.target(number) {
            target.mark = Some(self.mark_of(&target.topic, target.entry(), to));
        }
    }

    /// Returns a hash of the notification content, so that no state is sent twice.
    fn mark_of(&self, topic: &SubscriptionKey, entry: &Arc<TaskEntry>, to: Subscriber<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        match topic {
            SubscriptionKey::Resource(_) => return topic.resource_mark(entry),
            SubscriptionKey::Task(_) | SubscriptionKey::CoreTask(_) => {
                self.encode_notification(topic, entry, to, true).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// Encodes the notification, with or without the time of the change.
    fn encode_notification(
        &self,
        topic: &SubscriptionKey,
        entry: &Arc<TaskEntry>,
        to: Subscriber<'_>,
        timeless: bool,
    ) -> Vec<u8> {
        let Subscriber { client, id } = to;
        let snapshot = |handle| {
            let task = self.lookup().snapshot(entry, handle, client);
            if timeless { TaskSnapshot { last_updated_at: String::new(), ..task } } else { task }
        };
        match (topic, id) {
            (SubscriptionKey::Resource(uri), id) => resource_updated(uri, id),
            (SubscriptionKey::Task(handle), Some(id)) => {
                let task = snapshot(handle);
                self.with_task_detail(entry, client, |detail| task_changed(&task, detail, id))
            }
            (SubscriptionKey::Task(handle) | SubscriptionKey::CoreTask(handle), _) => {
                core_task_changed(&snapshot(handle))
            }
        }
    }

    pub(super) async fn notify_lists(
        &self,
        stream: &mut Subscription<'_>,
        events: &mut SseWriter<'_, impl ResponseSink>,
    ) -> Result<(), ClientGone> {
        let after = self.card_versions(stream.client);
        let before = std::mem::replace(&mut stream.versions, after);
        let lists = std::mem::replace(&mut stream.seen_lists, self.generation.lists);
        if before == stream.versions && lists == stream.seen_lists {
            return Ok(());
        }
        for (list, _) in stream.lists.into_iter().filter(|(_, told)| *told) {
            events.send(&list_changed(list, stream.id)).await?;
        }
        Ok(())
    }

    /// Sends the notification for a resource that is not a task, if its mark differs from the last.
    pub(super) async fn notify_resource(
        &self,
        number: u64,
        stream: &mut Subscription<'_>,
        events: &mut SseWriter<'_, impl ResponseSink>,
    ) -> Result<(), ClientGone> {
        let mut watched = stream.plain.iter_mut();
        let Some((uri, resource)) = watched.find(|(_, resource)| resource.number == number) else {
            return Ok(());
        };
        let present = (resource.mark)();
        if std::mem::replace(&mut resource.marked, present) == present {
            return Ok(());
        }
        events.send(&resource_updated(uri, stream.id)).await
    }

    /// Returns the number of cards that each agent visible on this route has had.
    pub(super) fn card_versions(&self, client: &ClientContext<'_>) -> HashMap<String, u64> {
        let visible = self.authorizer().visible_agents(client.requester());
        visible.map(|agent| (agent.settings.name.clone(), agent.version())).collect()
    }
}

/// Shortest time between two notifications of one subject.
const MIN_NOTIFY_INTERVAL: Duration = Duration::from_millis(50);

/// Subject of a subscription, with the name under which the client subscribed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SubscriptionKey {
    /// A resource, by its URI.
    Resource(String),
    /// A task of the extension, by its handle.
    Task(String),
    /// A task of the core, by its handle.
    CoreTask(String),
}

impl SubscriptionKey {
    /// Returns the handle of the task, if the subject is a task.
    pub(super) fn handle(&self) -> Option<&str> {
        match self {
            Self::Task(handle) | Self::CoreTask(handle) => Some(handle),
            Self::Resource(uri) => match ResourceUri::read(uri)? {
                ResourceUri::Task(handle)
                | ResourceUri::Stream(handle)
                | ResourceUri::Artifact { task: handle, .. } => Some(handle),
                ResourceUri::Agent(_) | ResourceUri::Registry | ResourceUri::Streams => None,
            },
        }
    }

    /// Returns a hash of the state of the task that a notification of its resource is about.
    pub(super) fn resource_mark(&self, entry: &TaskEntry) -> u64 {
        let mut hasher = DefaultHasher::new();
        entry.visible_state(|inside| {
            let followed = self.is_stream() && inside.is_followed();
            (inside.changed.instant, inside.open_turn(), inside.is_finished(), followed).hash(&mut hasher);
            inside.verdict.is_some().hash(&mut hasher);
        });
        hasher.finish()
    }

    /// Returns true if the subject is the stream of a task rather than the task.
    pub(super) fn is_stream(&self) -> bool {
        match self {
            Self::Resource(uri) => matches!(ResourceUri::read(uri), Some(ResourceUri::Stream(_))),
            Self::Task(_) | Self::CoreTask(_) => false,
        }
    }
}

/// Subject that has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The card of an agent.
    Cards,
    /// The subscriptions of a session.
    Session,
    /// The resource with this number, which is not a task.
    Resource(u64),
    /// The task with this number.
    Task(u64),
}

/// Watched task.
pub(super) struct WatchedTask {
    pub(super) topic: SubscriptionKey,
    /// Hash of the last notification; `None` before the first.
    pub(super) mark: Option<u64>,
    watcher: WatchGuard,
    waiting: AbortHandle,
}

impl WatchedTask {
    /// Returns the entry of the task.
    pub(super) fn entry(&self) -> &Arc<TaskEntry> {
        self.watcher.entry()
    }
}

impl Drop for WatchedTask {
    fn drop(&mut self) {
        self.waiting.abort();
    }
}

/// Receiver of the changes of one subject.
enum ChangeReceiver {
    Task(TaskChanges),
    Other(watch::Receiver<u64>),
}

impl ChangeReceiver {
    /// Waits for the next change. Returns false if nothing can change any more. Cancel-safe.
    async fn changed(&mut self) -> bool {
        match self {
            Self::Task(changes) => {
                changes.changed().await;
                true
            }
            Self::Other(changes) => changes.changed().await.is_ok(),
        }
    }

    /// Marks all changes so far as seen.
    fn mark_unchanged(&mut self) {
        match self {
            Self::Task(changes) => changes.mark_unchanged(),
            Self::Other(changes) => changes.mark_unchanged(),
        }
    }
}

/// All changes that one stream waits for.
#[derive(Default)]
pub(super) struct ChangeSet {
    targets: HashMap<u64, WatchedTask>,
    /// Waits for changes of resources that are not tasks.
    resources: HashMap<u64, AbortHandle>,
    last: u64,
    waiting: JoinSet<(Change, Option<ChangeReceiver>)>,
}

impl ChangeSet {
    /// Waits for changes from now on.
    pub(super) fn listen_to(&mut self, signal: Change, changes: watch::Receiver<u64>) {
        self.waiting.spawn(wait(signal, ChangeReceiver::Other(changes), Instant::now()));
    }

    /// Waits for changes of a resource that is not a task. Returns its number.
    pub(super) fn listen_to_resource(&mut self, changes: watch::Receiver<u64>) -> u64 {
        self.last += 1;
        let changes = ChangeReceiver::Other(changes);
        let waiting = self.waiting.spawn(wait(Change::Resource(self.last), changes, Instant::now()));
        self.resources.insert(self.last, waiting);
        self.last
    }

    /// Stops waiting for changes of a resource.
    pub(super) fn forget_resource(&mut self, number: u64) {
        if let Some(waiting) = self.resources.remove(&number) {
            waiting.abort();
        }
    }

    /// Watches a task from now on. Returns its number.
    pub(super) fn watch(&mut self, topic: SubscriptionKey, entry: &Arc<TaskEntry>) -> u64 {
        self.last += 1;
        let changes = ChangeReceiver::Task(entry.changes());
        let wait = wait(Change::Task(self.last), changes, Instant::now());
        let waiting = self.waiting.spawn(wait);
        self.targets.insert(self.last, WatchedTask { topic, mark: None, watcher: entry.watch(), waiting });
        self.last
    }

    /// Returns the task with this number, if it is still watched.
    pub(super) fn target(&mut self, number: u64) -> Option<&mut WatchedTask> {
        self.targets.get_mut(&number)
    }

    /// Returns all watched tasks.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<TaskEntry>> {
        self.targets.values().map(WatchedTask::entry)
    }

    /// Returns true if the subject is watched.
    pub(super) fn has(&self, topic: &SubscriptionKey) -> bool {
        self.targets.values().any(|target| target.topic == *topic)
    }

    /// Stops watching the tasks of subjects that are not `wanted`.
    pub(super) fn retain_if(&mut self, wanted: impl Fn(&SubscriptionKey) -> bool) {
        self.targets.retain(|_, target| wanted(&target.topic));
    }

    /// Stops watching all subjects but `wanted`.
    pub(super) fn retain(&mut self, wanted: &BTreeSet<SubscriptionKey>) {
        self.targets.retain(|_, target| wanted.contains(&target.topic));
    }

    /// Waits for the next change; its receiver must read the state only afterwards. `None` if
    /// nothing can change any more. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Change> {
        loop {
            match self.waiting.join_next().await? {
                Ok((signal, Some(mut changes))) => {
                    // Marked as seen before the state is read: changes from here on are reported
                    // again.
                    changes.mark_unchanged();
                    let waiting =
                        self.waiting.spawn(wait(signal, changes, Instant::now() + MIN_NOTIFY_INTERVAL));
                    match signal {
                        Change::Task(number) => match self.targets.get_mut(&number) {
                            Some(target) => target.waiting = waiting,
                            None => {
                                waiting.abort();
                                continue;
                            }
                        },
                        Change::Resource(number) => match self.resources.get_mut(&number) {
                            Some(known) => *known = waiting,
                            None => {
                                waiting.abort();
                                continue;
                            }
                        },
                        Change::Cards | Change::Session => {}
                    }
                    return Some(signal);
                }
                // The subject is no longer watched, or the resource will not change any more.
                Ok((Change::Task(_) | Change::Resource(_), None)) | Err(_) => {}
                Ok((Change::Cards | Change::Session, None)) => return None,
            }
        }
    }
}

/// Waits for a change, and then until it may be notified.
async fn wait(
    signal: Change,
    mut changes: ChangeReceiver,
    not_before: Instant,
) -> (Change, Option<ChangeReceiver>) {
    if !changes.changed().await {
        return (signal, None);
    }
    tokio::time::sleep_until(not_before).await;
    (signal, Some(changes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::output::AgentOutput;
    use crate::tasks::Timestamp;

    fn entry() -> Arc<TaskEntry> {
        Arc::new(TaskEntry::new("bard".into(), [7; 16], AgentOutput::new(100), Timestamp::now()))
    }

    fn topic(text: &str) -> SubscriptionKey {
        SubscriptionKey::Resource(text.to_owned())
    }

    #[test]
    fn a_topic_knows_its_task() {
        for (uri, handle, is_stream) in [
            ("a2a://task/h", Some("h"), false),
            ("a2a://tasks/h", Some("h"), false),
            ("a2a://task/h/artifacts/a", Some("h"), false),
            ("a2a://streams/h", Some("h"), true),
            ("a2a://streams", None, false),
            ("a2a://agents/registry", None, false),
            ("a2a-agent://h", None, false),
            ("test://h", None, false),
        ] {
            assert_eq!((topic(uri).handle(), topic(uri).is_stream()), (handle, is_stream), "{uri}");
        }
        assert_eq!(SubscriptionKey::CoreTask("h".into()).handle(), Some("h"));
    }

    #[tokio::test]
    async fn many_changes_are_few_wake_ups_and_the_last_one_is_heard() {
        let sender = watch::Sender::new(0_u64);
        let mut watching = ChangeSet::default();
        watching.listen_to(Change::Cards, sender.subscribe());
        let begun = Instant::now();
        let (mut heard, mut wakes) = (0, 0_u32);
        let send = async {
            for _ in 0..1000 {
                sender.send_modify(|count| *count += 1);
                tokio::task::yield_now().await;
            }
        };
        let hear = async {
            while heard < 1000 {
                assert_eq!(watching.next().await, Some(Change::Cards));
                heard = *sender.borrow();
                wakes += 1;
            }
        };
        tokio::join!(send, hear);
        let paces = begun.elapsed().as_millis() / MIN_NOTIFY_INTERVAL.as_millis();
        assert!(u128::from(wakes) <= paces + 2, "{wakes} wake-ups in {paces} paces");
        let more = tokio::time::timeout(2 * MIN_NOTIFY_INTERVAL, watching.next()).await;
        assert!(more.is_err(), "all is told");
        drop(sender);
        assert_eq!(watching.next().await, None);
    }

    #[tokio::test]
    async fn unsubscribed_resources_are_not_watched() {
        let (one, other) = (entry(), entry());
        let mut watching = ChangeSet::default();
        watching.watch(topic("one"), &one);
        let number = watching.watch(topic("other"), &other);
        assert_eq!((one.visible_state(|inside| inside.watchers()), watching.entries().count()), (1, 2));
        watching.retain(&BTreeSet::from([topic("other")]));
        assert!(!watching.has(&topic("one")) && watching.has(&topic("other")));
        assert_eq!(one.visible_state(|inside| inside.watchers()), 0);
        one.request_cancel();
        other.request_cancel();
        assert_eq!(watching.next().await, Some(Change::Task(number)));
        assert_eq!(watching.target(number).map(|target| target.topic.clone()), Some(topic("other")));
        drop(watching);
        assert_eq!(other.visible_state(|inside| inside.watchers()), 0);
    }
}
