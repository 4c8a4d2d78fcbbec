//! What one stream of a client waits for: its tasks, its session, the agents.
//!
//! The first change is heard at once, the next ones of the same thing at most once in a while, and the last one always. Each
//! thing is one small future in a set that ends with the stream. Bounded by who fills it. Not here: what the client is told of it
//! (see `listen`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::bridge::resources::Named;
use crate::tasks::{Entry, Watcher};

/// The shortest time between two tellings of one thing.
const PACE: Duration = Duration::from_millis(50);

/// One thing that a client is told of, by the name under which it asked for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Topic {
    /// A resource, by its URI.
    Resource(String),
    /// A task of the extension, by its handle.
    Task(String),
    /// A task of the core, by its handle.
    CoreTask(String),
}

impl Topic {
    /// The handle of the task that it is about, if it is about one.
    pub(super) fn handle(&self) -> Option<&str> {
        match self {
            Self::Task(handle) | Self::CoreTask(handle) => Some(handle),
            Self::Resource(uri) => match Named::read(uri)? {
                Named::Task(handle) | Named::Stream(handle) | Named::Artifact { task: handle, .. } => {
                    Some(handle)
                }
                Named::Agent(_) | Named::Registry | Named::Streams => None,
            },
        }
    }

    /// Whether it is about the stream of a task rather than the task.
    pub(super) fn is_stream(&self) -> bool {
        match self {
            Self::Resource(uri) => matches!(Named::read(uri), Some(Named::Stream(_))),
            Self::Task(_) | Self::CoreTask(_) => false,
        }
    }
}

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// The card of an agent.
    Cards,
    /// A card was looked at; perhaps an agent came or went.
    Looks,
    /// What some session wants.
    Session,
    /// Which tasks of the caller flow.
    Streams,
    /// The task of this number.
    Task(u64),
}

/// A task that is watched.
pub(super) struct Target {
    pub(super) topic: Topic,
    /// What was told last, in short; `None`: nothing yet.
    pub(super) mark: Option<u64>,
    watcher: Watcher,
    waiting: AbortHandle,
}

impl Target {
    /// The task.
    pub(super) fn entry(&self) -> &Arc<Entry> {
        self.watcher.entry()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.waiting.abort();
    }
}

/// Everything that one stream waits for.
#[derive(Default)]
pub(super) struct Watching {
    targets: HashMap<u64, Target>,
    last: u64,
    waiting: JoinSet<(Signal, Option<watch::Receiver<u64>>)>,
}

impl Watching {
    /// Waits for changes from now on.
    pub(super) fn hear(&mut self, signal: Signal, changes: watch::Receiver<u64>) {
        self.waiting.spawn(wait(signal, changes, Instant::now()));
    }

    /// Watches a task from now on. Returns its number.
    pub(super) fn watch(&mut self, topic: Topic, entry: &Arc<Entry>) -> u64 {
        self.last += 1;
        let wait = wait(Signal::Task(self.last), entry.changes(), Instant::now());
        let waiting = self.waiting.spawn(wait);
        self.targets.insert(self.last, Target { topic, mark: None, watcher: entry.watch(), waiting });
        self.last
    }

    /// The task of this number, if it is still watched.
    pub(super) fn target(&mut self, number: u64) -> Option<&mut Target> {
        self.targets.get_mut(&number)
    }

    /// All tasks that are watched.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.targets.values().map(Target::entry)
    }

    /// Whether this is watched.
    pub(super) fn has(&self, topic: &Topic) -> bool {
        self.targets.values().any(|target| target.topic == *topic)
    }

    /// Watches nothing but these any more.
    pub(super) fn keep(&mut self, wanted: &BTreeSet<Topic>) {
        self.targets.retain(|_, target| wanted.contains(&target.topic));
    }

    /// What has changed next; whoever is told must look only now. `None`: nothing will change any more. May be dropped and
    /// called again.
    pub(super) async fn next(&mut self) -> Option<Signal> {
        loop {
            match self.waiting.join_next().await? {
                Ok((signal, Some(mut changes))) => {
                    // Marked as seen before anybody looks: what changes from here on is heard again.
                    changes.mark_unchanged();
                    let waiting = self.waiting.spawn(wait(signal, changes, Instant::now() + PACE));
                    match signal {
                        Signal::Task(number) => match self.targets.get_mut(&number) {
                            Some(target) => target.waiting = waiting,
                            None => {
                                waiting.abort();
                                continue;
                            }
                        },
                        Signal::Cards | Signal::Looks | Signal::Session | Signal::Streams => {}
                    }
                    return Some(signal);
                }
                // The task is not watched any more.
                Ok((Signal::Task(_), None)) | Err(_) => {}
                Ok((Signal::Cards | Signal::Looks | Signal::Session | Signal::Streams, None)) => return None,
            }
        }
    }
}

/// Waits for a change, and then until it may be told.
async fn wait(
    signal: Signal,
    mut changes: watch::Receiver<u64>,
    not_before: Instant,
) -> (Signal, Option<watch::Receiver<u64>>) {
    if changes.changed().await.is_err() {
        return (signal, None);
    }
    tokio::time::sleep_until(not_before).await;
    (signal, Some(changes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::work::Work;
    use crate::tasks::Times;

    fn entry() -> Arc<Entry> {
        Arc::new(Entry::new("bard".into(), [7; 16], Work::new(100), Times::now()))
    }

    fn topic(text: &str) -> Topic {
        Topic::Resource(text.to_owned())
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
        assert_eq!(Topic::CoreTask("h".into()).handle(), Some("h"));
    }

    #[tokio::test]
    async fn many_changes_are_few_wake_ups_and_the_last_one_is_heard() {
        let sender = watch::Sender::new(0_u64);
        let mut watching = Watching::default();
        watching.hear(Signal::Cards, sender.subscribe());
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
                assert_eq!(watching.next().await, Some(Signal::Cards));
                heard = *sender.borrow();
                wakes += 1;
            }
        };
        tokio::join!(send, hear);
        let paces = begun.elapsed().as_millis() / PACE.as_millis();
        assert!(u128::from(wakes) <= paces + 2, "{wakes} wake-ups in {paces} paces");
        let more = tokio::time::timeout(2 * PACE, watching.next()).await;
        assert!(more.is_err(), "all is told");
        drop(sender);
        assert_eq!(watching.next().await, None);
    }

    #[tokio::test]
    async fn what_is_not_wanted_any_more_is_not_watched() {
        let (one, other) = (entry(), entry());
        let mut watching = Watching::default();
        watching.watch(topic("one"), &one);
        let number = watching.watch(topic("other"), &other);
        assert_eq!((one.look(|inside| inside.watchers()), watching.entries().count()), (1, 2));
        watching.keep(&BTreeSet::from([topic("other")]));
        assert!(!watching.has(&topic("one")) && watching.has(&topic("other")));
        assert_eq!(one.look(|inside| inside.watchers()), 0);
        one.want_cancel();
        other.want_cancel();
        assert_eq!(watching.next().await, Some(Signal::Task(number)));
        assert_eq!(watching.target(number).map(|target| target.topic.clone()), Some(topic("other")));
        drop(watching);
        assert_eq!(other.look(|inside| inside.watchers()), 0);
    }
}
