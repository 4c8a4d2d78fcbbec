//! What the client of a stream is told, when something that it waits for has changed.
//!
//! Nothing is told twice, and nothing that is old by the time it is told. Not here: waiting (see `watching`), the stream itself
//! (see `listen`).

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::answer::{Events, Gone};
use super::listen::{MOST, Stream};
use super::reading::reach;
use super::route::Door;
use super::watching::{Signal, Topic};
use super::{Asker, Inner};
use crate::bridge::registry::Reach;
use crate::bridge::resources::{REGISTRY, STREAMS, agent_of};
use crate::jsonrpc::Id;
use crate::mcp::notifications::{
    Level, List, core_task_changed, list_changed, message, resource_updated, task_changed,
};
use crate::mcp::tasks::TaskSnapshot;
use crate::tasks::Entry;

/// Told to a session of before.
const RESTARTED: &str = "The gateway was started again. It does not know any more which resources this session was subscribed to: \
                         read those that matter, and subscribe to them again.";

impl Inner {
    /// Tells the client of a session that began before this process, and of which nothing is known here, that its subscriptions are
    /// lost. Not 404: hardly any client begins a new session then.
    pub(super) async fn tell_of_restart(&self, asker: &Asker, events: &mut Events<'_>) -> Result<(), Gone> {
        let Some(session) = &asker.session else { return Ok(()) };
        // With a data directory all that is to be known is.
        if self.ledger.keeps()
            || session.began() >= Duration::from_millis(self.begun.unix_ms)
            || self.sessions.is_remembered(session)
        {
            return Ok(());
        }
        events.send(&message(Level::Warning, "gateway", RESTARTED)).await?;
        // A client that had subscribed to a resource reads it again, at least.
        events.send(&list_changed(List::Resources, None)).await
    }

    /// Looks what a session wants to be told of by now.
    pub(super) async fn look_again(
        &self,
        stream: &mut Stream<'_>,
        events: &mut Events<'_>,
    ) -> Result<(), Gone> {
        let Some(session) = &stream.asker.session else { return Ok(()) };
        let since = std::mem::replace(&mut stream.looked, Instant::now());
        let uris = self.sessions.subscriptions(session).into_iter().map(Topic::Resource);
        let tasks = self.sessions.tasks(session).into_iter().map(Topic::CoreTask);
        let has_tasks = stream.asker.version.has_core_tasks();
        let wanted: BTreeSet<Topic> = uris.chain(tasks.filter(|_| has_tasks)).take(MOST).collect();
        stream.watching.keep(&wanted);
        stream.missing.retain(|topic| wanted.contains(topic));
        stream.plain.clear();
        let mut new = Vec::new();
        for topic in wanted {
            match topic {
                Topic::Resource(uri) if self.is_plain(stream.asker, stream.door, &uri) => {
                    stream.plain.insert(uri);
                }
                topic if stream.watching.has(&topic) || stream.missing.contains(&topic) => {}
                topic => new.push(topic),
            }
        }
        self.hear_of_more(stream);
        let found = self.find(stream.asker, stream.door, new.iter()).await;
        for topic in &new {
            let Some(entry) = found.get(topic) else {
                stream.missing.insert(topic.clone());
                continue;
            };
            let number = stream.watching.watch(topic.clone(), entry);
            // What changed after the client subscribed and before the stream got to know of it is told now.
            if entry.look(|inside| inside.changed.instant < since) {
                self.skip(number, stream);
            }
            self.tell_of(number, stream, events).await?;
        }
        Ok(())
    }

    /// Tells of a task, if there is news.
    pub(super) async fn tell_of(
        &self,
        number: u64,
        stream: &mut Stream<'_>,
        events: &mut Events<'_>,
    ) -> Result<(), Gone> {
        let (asker, id) = (stream.asker, stream.id);
        let Some(target) = stream.watching.target(number) else { return Ok(()) };
        let mark = Some(self.mark(&target.topic, target.entry(), asker, id));
        if target.mark == mark {
            return Ok(());
        }
        target.mark = mark;
        events.send(&self.text(&target.topic, target.entry(), (asker, id), false)).await
    }

    /// Takes the present state of a task for told.
    pub(super) fn skip(&self, number: u64, stream: &mut Stream<'_>) {
        let (asker, id) = (stream.asker, stream.id);
        if let Some(target) = stream.watching.target(number) {
            target.mark = Some(self.mark(&target.topic, target.entry(), asker, id));
        }
    }

    /// What a client would be told, in short, so that nothing is told twice.
    fn mark(&self, topic: &Topic, entry: &Arc<Entry>, asker: &Asker, id: Option<&Id>) -> u64 {
        let mut hasher = DefaultHasher::new();
        match topic {
            Topic::Resource(_) => entry.look(|inside| {
                let followed = topic.is_stream() && inside.is_followed();
                (inside.changed.instant, inside.open_turn(), inside.is_finished(), followed)
                    .hash(&mut hasher);
                inside.verdict.is_some().hash(&mut hasher);
            }),
            Topic::Task(_) | Topic::CoreTask(_) => {
                self.text(topic, entry, (asker, id), true).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// The notification, with or without the time of the change.
    fn text(
        &self,
        topic: &Topic,
        entry: &Arc<Entry>,
        (asker, id): (&Asker, Option<&Id>),
        timeless: bool,
    ) -> Vec<u8> {
        let snapshot = |handle| {
            let task = self.snapshot(entry, handle, asker);
            if timeless { TaskSnapshot { last_updated_at: String::new(), ..task } } else { task }
        };
        match (topic, id) {
            (Topic::Resource(uri), id) => resource_updated(uri, id),
            (Topic::Task(handle), Some(id)) => {
                let task = snapshot(handle);
                self.with_detail(entry, asker, |detail| task_changed(&task, detail, id))
            }
            (Topic::Task(handle) | Topic::CoreTask(handle), _) => core_task_changed(&snapshot(handle)),
        }
    }

    pub(super) async fn tell_changes(
        &self,
        stream: &mut Stream<'_>,
        events: &mut Events<'_>,
    ) -> Result<(), Gone> {
        let after = self.versions(stream.asker, stream.door);
        let before = std::mem::replace(&mut stream.versions, after);
        if before == stream.versions {
            return Ok(());
        }
        for (list, _) in stream.lists.into_iter().filter(|(_, told)| *told) {
            events.send(&list_changed(list, stream.id)).await?;
        }
        for uri in &stream.plain {
            let changed = agent_of(uri).is_some_and(|name| before.get(name) != stream.versions.get(name));
            if changed {
                events.send(&resource_updated(uri, stream.id)).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn tell_registry(
        &self,
        stream: &mut Stream<'_>,
        events: &mut Events<'_>,
    ) -> Result<(), Gone> {
        let after = Some(self.standing(stream.asker, stream.door));
        let is_news = stream.registry != after;
        stream.registry = after;
        if is_news && stream.plain.contains(REGISTRY) {
            events.send(&resource_updated(REGISTRY, stream.id)).await?;
        }
        Ok(())
    }

    pub(super) async fn tell_streams(
        &self,
        stream: &Stream<'_>,
        events: &mut Events<'_>,
    ) -> Result<(), Gone> {
        if stream.plain.contains(STREAMS) {
            events.send(&resource_updated(STREAMS, stream.id)).await?;
        }
        Ok(())
    }

    /// Hears of agents, and of the caller's tasks, that come and go, once the client wants to.
    pub(super) fn hear_of_more(&self, stream: &mut Stream<'_>) {
        if !stream.hears_streams && stream.plain.contains(STREAMS) {
            stream.watching.hear(Signal::Streams, self.tasks.changes_of(stream.asker.caller.name()));
            stream.hears_streams = true;
        }
        if stream.registry.is_none() && stream.plain.contains(REGISTRY) {
            stream.watching.hear(Signal::Looks, self.directory.changes());
            stream.registry = Some(self.standing(stream.asker, stream.door));
        }
    }

    /// How the agents behind a door stand, as the registry shows it.
    fn standing(&self, asker: &Asker, door: Door<'_>) -> Vec<(u64, Reach)> {
        let behind = self.directory.agents().iter().filter(|agent| self.sees(&asker.caller, door, agent));
        behind.map(|agent| (agent.version(), reach(agent))).collect()
    }

    /// How many cards each agent behind a door has had.
    pub(super) fn versions(&self, asker: &Asker, door: Door<'_>) -> HashMap<String, u64> {
        let behind = self.directory.agents().iter().filter(|agent| self.sees(&asker.caller, door, agent));
        behind.map(|agent| (agent.settings.name.clone(), agent.version())).collect()
    }
}
