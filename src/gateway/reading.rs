//! What can be read: `resources/list` and `resources/read`.
//!
//! Reads mcp.md §2.5, §3.4. Who may read a task is who holds its handle; what is not there and what is somebody else's read the
//! same. Not here: the URIs and what is in them (see `bridge`), being told of changes (see `watching`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use http::Uri;

use super::hold::NotFound;
use super::route::Door;
use super::{Asker, Inner};
use crate::a2a::State;
use crate::agents::{Agent, Declared, Known};
use crate::bridge::registry::{Abilities, AgentEntry, EndpointCount, ExtensionEntry, Reach, registry};
use crate::bridge::resources::{Named, REGISTRY, STREAMS, agent_uri, task_uri};
use crate::bridge::view::{self, Seen, Stream, artifact_contents};
use crate::config::CardSource;
use crate::fault::Fault;
use crate::jsonrpc::Id;
use crate::mcp::Params;
use crate::mcp::content::{Body, Embedded};
use crate::mcp::reply::Writer;
use crate::mcp::resources::{Contents, Resource, ResourceList};
use crate::mcp::tasks::iso8601;
use crate::seal::Listing;
use crate::tasks::{Entry, Phase, Verdict};

const JSON: &str = "application/json";
/// Artifacts of more bytes are only named in the resource of their task.
const MOST_INLINE: usize = 64 * 1024;

/// One line of a list.
struct Line {
    uri: String,
    name: String,
    description: Option<String>,
}

/// A task as numbers and words, for the list of streams.
struct Flow {
    task: String,
    state: State,
    watchers: usize,
    followed: bool,
    since: String,
}

impl Flow {
    fn stream(&self) -> Stream<'_> {
        let Self { task, state, watchers, followed, since } = self;
        Stream { task, state: *state, watchers: *watchers, followed: *followed, since }
    }
}

impl Inner {
    /// `resources/list`: the agents, the registry, the live streams; and the tasks of a caller that is somebody.
    pub(super) fn resources(
        &self,
        door: Door<'_>,
        asker: &Asker,
        writer: &Writer<'_>,
        id: &Id,
        params: &Params<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let after = self.cursor(asker, Listing::Resources, params)?;
        let most = self.settings.mcp.page_size;
        let mut lines = self.lines(door, asker);
        lines.sort_by(|one, other| one.uri.cmp(&other.uri));
        let start = after.map_or(0, |after| lines.partition_point(|line| line.uri <= after));
        let rest = lines.get(start..).unwrap_or_default();
        let page = rest.get(..most).unwrap_or(rest);
        let more = if rest.len() > page.len() { page.last() } else { None };
        let resources = page.iter().map(|line| Resource {
            uri: line.uri.clone(),
            name: &line.name,
            description: line.description.as_deref(),
            media_type: JSON,
        });
        let next_cursor = more.map(|line| self.next(asker, Listing::Resources, &line.uri));
        let list = ResourceList { resources: resources.collect(), next_cursor };
        // Tasks come and go at any time; agents do not.
        Ok(if asker.caller.is_anonymous() { writer.listed(id, &list) } else { writer.live(id, &list) })
    }

    fn lines(&self, door: Door<'_>, asker: &Asker) -> Vec<Line> {
        let line = |uri: String, name: &str, description: &str| Line {
            uri,
            name: name.to_owned(),
            description: Some(description.to_owned()).filter(|text| !text.is_empty()),
        };
        let mut lines = vec![
            line(
                REGISTRY.to_owned(),
                "registry",
                "Every A2A agent here: whether it can be called, and its card",
            ),
            line(STREAMS.to_owned(), "streams", "Your tasks whose agents are listened to now"),
        ];
        for (agent, known) in self.seen(asker, door) {
            let uri = agent_uri(&agent.settings.name);
            if !self.may_read(asker, Some(&agent), &uri) {
                continue;
            }
            lines.push(line(uri, &known.card.name, &known.card.description));
        }
        for (handle, entry) in self.owned(door, asker) {
            let state = self.standpoint(&entry, asker).state.word();
            let name = format!("task of {}", entry.agent());
            lines.push(line(task_uri(&handle), &name, &format!("A task, {state}")));
        }
        lines
    }

    /// The tasks of a caller that are remembered here, by handle. All who are nobody share one name: they own nothing.
    pub(super) fn owned(&self, door: Door<'_>, asker: &Asker) -> Vec<(String, Arc<Entry>)> {
        let mut owned = Vec::new();
        if asker.caller.is_anonymous() {
            return owned;
        }
        for entry in self.tasks.owned_by(asker.caller.name(), Instant::now()) {
            let agent = self.directory.find(entry.agent());
            if agent.is_some_and(|agent| self.sees(&asker.caller, door, agent)) {
                owned.push((self.handle_of(&entry, asker), entry));
            }
        }
        owned.sort_by(|one, other| one.0.cmp(&other.0));
        owned
    }

    /// `resources/read`.
    pub(super) async fn read(
        &self,
        door: Door<'_>,
        asker: &Asker,
        writer: &Writer<'_>,
        id: &Id,
        params: &Params<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let uri = params.uri.as_ref().ok_or_else(|| Fault::BadParams("uri is missing".into()))?.as_str();
        let unknown = || no_such(uri);
        let contents = match Named::read(uri).ok_or_else(unknown)? {
            Named::Agent(name) => {
                let agent = self.directory.find(name).ok_or_else(unknown)?;
                self.permit_resource((asker, door), Some(agent), uri)?;
                let contents = json(uri, self.described(asker, door, name).ok_or_else(unknown)?);
                return Ok(writer.listed(id, &Contents { contents }));
            }
            Named::Registry if !self.may_read(asker, None, uri) => return Err(unknown()),
            Named::Registry => json(uri, self.registry(asker, door)),
            Named::Streams => json(uri, self.streams(door, asker)),
            Named::Stream(handle) => {
                let (entry, _) = self.readable(asker, door, handle).await?.ok_or_else(unknown)?;
                json(uri, view::stream(&self.flow(handle, &entry, asker).stream()))
            }
            Named::Task(handle) => {
                let (entry, known) = self.readable(asker, door, handle).await?.ok_or_else(unknown)?;
                self.freshen(&entry, &known).await;
                json(uri, self.shown(handle, &entry, asker))
            }
            Named::Artifact { task, artifact } => {
                let (entry, known) = self.readable(asker, door, task).await?.ok_or_else(unknown)?;
                self.freshen(&entry, &known).await;
                let found = entry.look(|inside| {
                    inside.work.artifacts().find(|made| made.artifact_id == *artifact).cloned()
                });
                artifact_contents(&found.ok_or_else(unknown)?, uri)
            }
        };
        Ok(writer.live(id, &Contents { contents }))
    }

    /// The task of a handle, if this caller may read it here.
    pub(super) async fn readable(
        &self,
        asker: &Asker,
        door: Door<'_>,
        handle: &str,
    ) -> Result<Option<(Arc<Entry>, Arc<Known>)>, Fault> {
        let Some((agent, named)) = self.opened(asker, door, handle) else { return Ok(None) };
        let method = crate::mcp::Method::ResourcesRead;
        match self.permit_task((asker, door), method, &agent, || Fault::UnknownTask) {
            Err(Fault::UnknownTask) => return Ok(None),
            permitted => permitted?,
        }
        match self.entry(asker, &agent, &named).await {
            Ok((entry, known)) => {
                entry.own(asker.caller.name());
                Ok(Some((entry, known)))
            }
            Err(NotFound::Unknown) => Ok(None),
            Err(not_found) => Err(not_found.fault()),
        }
    }

    /// What an agent is, as JSON: its manifest as the operator wrote it, references and all; without one its card. Neither tells of
    /// skills that the caller does not see.
    fn described(&self, asker: &Asker, door: Door<'_>, name: &str) -> Option<String> {
        let agents = self.seen(asker, door);
        let (agent, known) = agents.into_iter().find(|(agent, _)| agent.settings.name == name)?;
        let skills = self.seen_skills(&asker.caller, &agent);
        match &agent.settings.manifest {
            Some(manifest) => skills.manifest(&manifest.text).map(Cow::into_owned),
            None => skills.card(&known.card.raw).map(|card| card.get().to_owned()),
        }
    }

    fn shown(&self, handle: &str, entry: &Entry, asker: &Asker) -> String {
        let agent = entry.agent().as_ref();
        let state = self.standpoint(entry, asker).state;
        let audience = self.audience(asker, agent);
        entry.look(|inside| {
            let failure = match inside.phase() {
                Phase::Failed(trouble) => Some(trouble.told(agent)),
                Phase::Running | Phase::Asking(..) | Phase::Finished => None,
            };
            let context = audience.context(&inside.work);
            let seen = Seen {
                work: &inside.work,
                state,
                failure: failure.as_deref(),
                task: handle,
                context: context.as_deref(),
                agent,
                created_at: &iso8601(inside.created.unix_ms),
                last_updated_at: &iso8601(inside.changed.unix_ms),
                cancelled: inside.verdict == Some(Verdict::Cancelled),
            };
            view::task(&seen, MOST_INLINE)
        })
    }

    fn flow(&self, handle: &str, entry: &Entry, asker: &Asker) -> Flow {
        let state = self.standpoint(entry, asker).state;
        entry.look(|inside| Flow {
            task: handle.to_owned(),
            state,
            watchers: inside.watchers(),
            followed: inside.is_followed(),
            since: iso8601(inside.created.unix_ms),
        })
    }

    fn streams(&self, door: Door<'_>, asker: &Asker) -> String {
        let owned = self.owned(door, asker).into_iter().filter(|(_, entry)| is_live(entry));
        let flows: Vec<Flow> = owned.map(|(handle, entry)| self.flow(&handle, &entry, asker)).collect();
        view::streams(&flows.iter().map(Flow::stream).collect::<Vec<_>>())
    }

    fn registry(&self, asker: &Asker, door: Door<'_>) -> String {
        let behind = self.directory.agents().iter().filter(|agent| self.sees(&asker.caller, door, agent));
        let told: Vec<_> = behind
            .map(|agent| {
                let at = (address(agent), agent.last_seen().map(iso8601));
                let known = agent.known();
                let skills = self.seen_skills(&asker.caller, agent);
                let card = known.as_ref().and_then(|known| skills.card(&known.card.raw).map(Cow::into_owned));
                (agent, known, card, (at, agent.obstacle()))
            })
            .collect();
        let entries = told.iter().map(|(agent, known, card, ((url, last_seen), obstacle))| AgentEntry {
            name: &agent.settings.name,
            url: url.as_deref(),
            status: reach(agent),
            reason: obstacle.as_deref(),
            last_seen: last_seen.as_deref(),
            capabilities: known.as_ref().map(|known| Abilities {
                streaming: known.card.streaming,
                push_notifications: known.card.push_notifications,
            }),
            endpoints: endpoints(agent),
            extensions: known.iter().flat_map(|known| agent.declared(&known.card)).map(extension).collect(),
            card: card.as_deref(),
        });
        registry(&entries.collect::<Vec<_>>())
    }

    /// The agents behind a door whose cards have been seen, by name.
    pub(super) fn seen(&self, asker: &Asker, door: Door<'_>) -> Vec<(Arc<Agent>, Arc<Known>)> {
        let behind = self.directory.agents().iter().filter(|agent| self.sees(&asker.caller, door, agent));
        behind.filter_map(|agent| Some((agent.clone(), agent.known()?))).collect()
    }
}

/// Whether an agent can be called, by the last look at its card.
pub(super) fn reach(agent: &Agent) -> Reach {
    match (agent.problem(), agent.known()) {
        (Some(_), _) => Reach::Unreachable,
        (None, Some(known)) if agent.obstacle_of(&known.card).is_some() => Reach::Unusable,
        (None, Some(_)) => Reach::Ready,
        (None, None) => Reach::Unknown,
    }
}

fn endpoints(agent: &Agent) -> Option<EndpointCount> {
    let all = Some(agent.endpoints()).filter(|all| all.len() > 1)?;
    Some(EndpointCount { total: all.len(), up: all.iter().filter(|each| each.rests.is_none()).count() })
}

fn extension(declared: Declared<'_>) -> ExtensionEntry<'_> {
    let Declared { uri, required, active } = declared;
    ExtensionEntry { uri, required, active }
}

/// Where an agent is; while it has not been seen, where its card is. A query is not told: it may be a secret.
fn address(agent: &Agent) -> Option<String> {
    let known = agent.known().map(|known| known.interface.url.clone());
    let url = known.or_else(|| match &agent.settings.card {
        CardSource::Url(url) => Some(url.clone()),
        CardSource::File(_) => None,
    })?;
    let uri: Uri = url.parse().ok()?;
    Some(format!("{}://{}{}", uri.scheme_str()?, uri.authority()?, uri.path()))
}

/// Whether a task has a live stream.
pub(super) fn is_live(entry: &Entry) -> bool {
    entry.look(|inside| inside.is_followed() && !inside.is_finished())
}

pub(super) fn no_such(uri: &str) -> Fault {
    Fault::NoSuchResource(uri.chars().take(1024).collect())
}

fn json(uri: &str, text: String) -> Vec<Embedded> {
    vec![Embedded { uri: uri.to_owned(), media_type: Some(JSON.to_owned()), content: Body::Text(text) }]
}
