//! Change set of one stream: waits for changes of tasks, of the session and of agents.
//!
//! The first change is reported at once, later changes of the same subject at most once per
//! interval, and the last change always. Each subject is one small future in a set that ends with
//! the stream. The callers bound the number. See also `subscriptions`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::bridge::resource_uri::ResourceUri;
use crate::tasks::{TaskEntry, WatchGuard};

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

/// All changes that one stream waits for.
#[derive(Default)]
pub(super) struct ChangeSet {
    targets: HashMap<u64, WatchedTask>,
    /// Waits for changes of resources that are not tasks.
    resources: HashMap<u64, AbortHandle>,
    last: u64,
    waiting: JoinSet<(Change, Option<watch::Receiver<u64>>)>,
}

impl ChangeSet {
    /// Waits for changes from now on.
    pub(super) fn listen_to(&mut self, signal: Change, changes: watch::Receiver<u64>) {
        self.waiting.spawn(wait(signal, changes, Instant::now()));
    }

    /// Waits for changes of a resource that is not a task. Returns its number.
    pub(super) fn listen_to_resource(&mut self, changes: watch::Receiver<u64>) -> u64 {
        self.last += 1;
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
        let wait = wait(Change::Task(self.last), entry.changes(), Instant::now());
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
                // The task is no longer watched, or the resource will not change any more.
                Ok((Change::Task(_) | Change::Resource(_), None)) | Err(_) => {}
                Ok((Change::Cards | Change::Session, None)) => return None,
            }
        }
    }
}

/// Waits for a change, and then until it may be notified.
async fn wait(
    signal: Change,
    mut changes: watch::Receiver<u64>,
    not_before: Instant,
) -> (Change, Option<watch::Receiver<u64>>) {
    if changes.changed().await.is_err() {
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
