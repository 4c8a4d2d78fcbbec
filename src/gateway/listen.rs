//! Streams on which the gateway speaks unasked: GET of a legacy session, `subscriptions/listen` of a modern client.
//!
//! Told of: lists that changed, resources that changed. Bounded in number. Not here: what a call tells (see `pump`).

use std::collections::HashMap;
use std::time::Duration;

use pingora::proxy::Session;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::answer::{Events, Gone};
use super::route::Door;
use super::sessions;
use super::{Asker, Inner};
use crate::bridge::resources::agent_of;
use crate::fault::Fault;
use crate::jsonrpc::{Id, Object};
use crate::mcp::Params;
use crate::mcp::headers::Headers;
use crate::mcp::notifications::{Honoured, List, acknowledged, list_changed, resource_updated};
use crate::telemetry::metrics::Open;

/// Most resources of one `subscriptions/listen`.
const MOST_URIS: usize = 64;
/// When a client should come back after the gateway ended its stream.
const COME_BACK: Duration = Duration::from_secs(5);

/// What one stream is told of.
enum Wants {
    /// All that a legacy session may hear, and the resources that it subscribed to by now.
    Session(Box<sessions::Session>),
    /// What a modern client asked for, under the id of its request.
    Subscription(Id, Honoured),
}

impl Inner {
    /// Serves a GET: the stream of a legacy session.
    pub(super) async fn session_stream(
        &self,
        http: &mut Session,
        caller: &str,
        door: Door<'_>,
    ) -> Result<(), Result<Fault, Gone>> {
        let headers = Headers::read(&http.req_header().headers);
        let not_here = Err(Ok(Fault::MethodNotAllowed("POST")));
        let Some(id) = headers.session.value().filter(|_| headers.takes_stream) else { return not_here };
        let found = self.sessions.find(&self.sealer, caller, id, super::now());
        let (session, _) = found.ok_or(Ok(Fault::SessionNotFound))?;
        let _open = self.room()?;
        let events = Events::begin(http, None).await.map_err(Err)?;
        self.speak(events, Wants::Session(Box::new(session)), door).await.map_err(Err)
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
        debug_assert_eq!(asker.version.era(), crate::mcp::Era::Modern);
        let filter = params.notifications.as_ref();
        let Object(filter) = filter.ok_or_else(|| Ok(Fault::BadParams("notifications is missing".into())))?;
        // Only what can be told is promised: the agents behind this door.
        let uris = filter.uris.iter().map(|uri| uri.as_str()).filter(|uri| self.is_behind(door, uri));
        let uris = uris.take(MOST_URIS).map(str::to_owned).collect();
        let honoured =
            Honoured { tools: filter.tools, resources: filter.resources, uris, task_ids: Vec::new() };
        let _open = self.room()?;
        let mut events = Events::begin(http, None).await.map_err(Err)?;
        events.send(&acknowledged(id, &honoured)).await.map_err(Err)?;
        self.speak(events, Wants::Subscription(id.clone(), honoured), door).await.map_err(Err)
    }

    fn room(&self) -> Result<(OwnedSemaphorePermit, Open), Result<Fault, Gone>> {
        let busy = |_| Ok(Fault::Busy("too many open streams"));
        let permit = self.streams.clone().try_acquire_owned().map_err(busy)?;
        Ok((permit, self.nobody.stream()))
    }

    fn is_behind(&self, door: Door<'_>, uri: &str) -> bool {
        let Some(name) = agent_of(uri) else { return false };
        let behind = match door {
            Door::OneAgent(agent) => agent == name,
            Door::AllAgents | Door::Health | Door::Push(_) => true,
        };
        behind && self.directory.find(name).is_some()
    }

    async fn speak(&self, mut events: Events<'_>, wants: Wants, door: Door<'_>) -> Result<(), Gone> {
        let mut changes = self.changes.subscribe();
        let mut versions = self.versions(door);
        // A deadline of its own: changes of other agents must not put it off.
        let mut sign = tokio::time::interval(self.settings.calls.keep_alive);
        sign.reset();
        loop {
            tokio::select! {
                changed = changes.changed() => {
                    if changed.is_err() {
                        return events.end(None).await;
                    }
                    let before = std::mem::replace(&mut versions, self.versions(door));
                    self.tell_changes(&mut events, &wants, &before, &versions).await?;
                }
                () = events.gone() => return Err(Gone),
                _ = sign.tick() => {
                    if self.is_over(&events, &wants) {
                        return self.close(events, &wants).await;
                    }
                    events.keep_alive().await?;
                }
                () = self.closing() => return self.close(events, &wants).await,
            }
        }
    }

    fn is_over(&self, events: &Events<'_>, wants: &Wants) -> bool {
        let ended = match wants {
            Wants::Session(session) => self.sessions.is_ended(session) || session.has_expired(super::now()),
            Wants::Subscription(..) => false,
        };
        ended || events.is_shutting_down()
    }

    async fn close(&self, events: Events<'_>, wants: &Wants) -> Result<(), Gone> {
        match wants {
            Wants::Session(_) => events.come_back(COME_BACK).await,
            Wants::Subscription(id, _) => {
                let end = self.writer(crate::mcp::Era::Modern).listened(id);
                events.end(Some(&end)).await
            }
        }
    }

    async fn closing(&self) {
        let mut closing: watch::Receiver<bool> = self.closing.subscribe();
        if closing.wait_for(|closing| *closing).await.is_err() {
            std::future::pending().await
        }
    }

    async fn tell_changes(
        &self,
        events: &mut Events<'_>,
        wants: &Wants,
        before: &HashMap<String, u64>,
        after: &HashMap<String, u64>,
    ) -> Result<(), Gone> {
        if before == after {
            return Ok(());
        }
        let (tools, resources, id, uris) = match wants {
            Wants::Session(session) => (true, true, None, self.sessions.subscriptions(session)),
            Wants::Subscription(id, honoured) => {
                (honoured.tools, honoured.resources, Some(id), honoured.uris.iter().cloned().collect())
            }
        };
        for list in [(List::Tools, tools), (List::Resources, resources)].iter().filter(|(_, told)| *told) {
            events.send(&list_changed(list.0, id)).await?;
        }
        for uri in uris {
            let changed = agent_of(&uri).is_some_and(|name| before.get(name) != after.get(name));
            if changed {
                events.send(&resource_updated(&uri, id)).await?;
            }
        }
        Ok(())
    }

    /// How many cards each agent behind a door has had.
    fn versions(&self, door: Door<'_>) -> HashMap<String, u64> {
        let behind = self.directory.agents().iter().filter(|agent| match door {
            Door::OneAgent(name) => agent.settings.name == name,
            Door::AllAgents | Door::Health | Door::Push(_) => true,
        });
        behind.map(|agent| (agent.settings.name.clone(), agent.version())).collect()
    }
}
