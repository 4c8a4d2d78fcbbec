//! Notifications on a client's stream about changes that the client subscribed to.
//!
//! No state is sent twice, and no notification is older than the state at the time of sending.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::McpServer;
use super::change_set::SubscriptionKey;
use super::subscriptions::{MAX_SUBSCRIPTIONS, Subscription};
use crate::calls::ClientContext;
use crate::fault::ClientGone;
use crate::http_edge::{ResponseSink, SseWriter};
use crate::jsonrpc::Id;
use crate::mcp::notifications::{
    ChangeableList, LoggingLevel, core_task_changed, list_changed, message, resource_updated, task_changed,
};
use crate::mcp::tasks::TaskSnapshot;
use crate::tasks::TaskEntry;

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
        let since = std::mem::replace(&mut stream.evaluated, Instant::now());
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
            if entry.visible_state(|inside| inside.changed.instant < since) {
                self.skip(number, stream);
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
            SubscriptionKey::Resource(_) => entry.visible_state(|inside| {
                let followed = topic.is_stream() && inside.is_followed();
                (inside.changed.instant, inside.open_turn(), inside.is_finished(), followed)
                    .hash(&mut hasher);
                inside.verdict.is_some().hash(&mut hasher);
            }),
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
