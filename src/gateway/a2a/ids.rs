//! Ids of tasks and contexts for A2A clients: sealed handles of the caller, the same as those of
//! the MCP server.
//!
//! A handle that does not open for the caller looks like an unknown task. Without authentication
//! ids stay as they are and this module is not used. In A2A 0.1 clients make ids themselves: the
//! agent then gets handles instead, so that two callers can never mean the same task. See also
//! `a2a::translate` for the positions of ids.

use std::borrow::Cow;
use std::time::Instant;

use super::id_substitutions::IdSubstitutions;
use super::list_tasks::PageToken;
use super::shown_tasks::ShownTasks;
use crate::a2a::translate::{IdKind, Operation, RewriteError, splice_params, splice_result};
use crate::a2a::{Dialect, uuid};
use crate::auth::Caller;
use crate::fault::{AgentFailure, Fault};
use crate::seal::{ContextRef, Sealer, TaskRef, TokenPurpose};

/// The ids of one caller at one agent, for one exchange.
pub(super) struct ExchangeIds<'a> {
    sealer: &'a Sealer,
    handed: &'a ShownTasks,
    caller: Caller,
    agent: &'a str,
    dialect: Dialect,
    /// Last sealed id of each kind, with its handle: the events of a stream repeat the same ids.
    task: Option<(String, String)>,
    context: Option<(String, String)>,
    /// Task of the request, with the client's handle: a handle from the MCP server may hold more
    /// data.
    asked: Option<(String, String)>,
    /// All ids that were named.
    names: IdSubstitutions,
}

impl<'a> ExchangeIds<'a> {
    pub(super) fn new(
        sealer: &'a Sealer,
        handed: &'a ShownTasks,
        caller: Caller,
        (agent, dialect): (&'a str, Dialect),
    ) -> Self {
        let (task, context, asked) = (None, None, None);
        Self {
            sealer,
            handed,
            caller,
            agent,
            dialect,
            task,
            context,
            asked,
            names: IdSubstitutions::default(),
        }
    }

    /// Returns params with the agent's ids instead of handles, and the task that they are about.
    /// For a list in a conversation of another caller the id becomes a random one: the agent's
    /// response is then an empty list.
    ///
    /// # Errors
    ///
    /// [`Fault::UnknownTask`] for any other handle that does not open for this caller.
    pub(super) fn open_task_id<'p>(
        &mut self,
        params: &'p str,
        operation: Operation,
    ) -> Result<(Cow<'p, str>, Option<String>), Fault> {
        let (mut task, mut asked, mut named) = (None, None, Vec::new());
        let spliced = splice_params(params, self.dialect, operation, |kind, handle| {
            let own = || (self.dialect == Dialect::V0_1).then(|| self.handle(kind, handle));
            let nowhere = || (operation == Operation::List).then(|| uuid(rand::random()));
            let id = self.open(kind, handle).or_else(own).or_else(nowhere).ok_or(())?;
            named.push((id.clone(), handle.to_owned()));
            if kind == IdKind::Task {
                (task, asked) = (Some(id.clone()), Some((id.clone(), handle.to_owned())));
            }
            Ok(Some(id))
        });
        self.asked = asked;
        named.iter().for_each(|(id, handle)| self.names.note(id, handle));
        match spliced {
            Ok(params) => Ok((params, task)),
            Err(RewriteError::Refused(())) => Err(Fault::UnknownTask),
            Err(RewriteError::NotText(_)) => Err(Fault::InvalidParams("an id must be a string".into())),
            Err(RewriteError::NotJson) => Err(Fault::InvalidParams("params are nested too deeply".into())),
        }
    }

    /// Returns a result with handles instead of the agent's ids.
    ///
    /// # Errors
    ///
    /// [`AgentFailure::ProtocolViolation`] if the result is not readable: an id might be in it.
    pub(super) fn seal_task_id<'r>(
        &mut self,
        result: &'r str,
        operation: Operation,
    ) -> Result<Cow<'r, str>, AgentFailure> {
        let spliced =
            splice_result(result, self.dialect, operation, |kind, id| Ok::<_, ()>(Some(self.seal(kind, id))));
        spliced.map_err(|_| AgentFailure::ProtocolViolation("its answer cannot be read".into()))
    }

    /// Returns an error with handles instead of the ids that this exchange has named, and without
    /// other ids.
    ///
    /// # Errors
    ///
    /// [`AgentFailure::ProtocolViolation`] if the error cannot be searched: an id might be in it.
    pub(super) fn unnamed(&self, error: &str) -> Result<String, AgentFailure> {
        self.names
            .redact(error)
            .ok_or_else(|| AgentFailure::ProtocolViolation("its error cannot be read".into()))
    }

    /// Returns true if the caller is anonymous.
    pub(super) fn is_anonymous(&self) -> bool {
        self.caller.is_anonymous()
    }

    /// Returns the name of the caller.
    pub(super) fn caller(&self) -> &str {
        self.caller.name()
    }

    /// Seals the position in a list for the caller.
    pub(super) fn page(&self, PageToken { at, token, before, total }: &PageToken) -> String {
        let total = total.map(|total| total.to_string()).unwrap_or_default();
        let payload = format!("{}{at}\0{before}\0{total}\0{token}", self.of_pages());
        self.sealer.seal(TokenPurpose::Cursor, self.caller.name(), payload.as_bytes())
    }

    /// Opens the position in a list from the caller's token.
    pub(super) fn place_of(&self, handle: &str) -> Option<PageToken> {
        let payload = self.sealer.open(TokenPurpose::Cursor, self.caller.name(), handle)?;
        let payload = String::from_utf8(payload.to_vec()).ok()?;
        let mut parts = payload.strip_prefix(&self.of_pages())?.splitn(4, '\0');
        let (at, before) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let total = parts.next()?.parse().ok();
        Some(PageToken { at, before, total, token: parts.next()?.to_owned() })
    }

    /// Returns true if a task was shown to the caller. Anonymous callers share no tasks.
    pub(super) fn has(&self, task: &str) -> bool {
        !self.caller.is_anonymous() && self.handed.was_shown(self.pair(), task, Instant::now())
    }

    /// Returns the number of the agent's tasks that were shown to the caller.
    pub(super) fn count(&self) -> usize {
        if self.caller.is_anonymous() { 0 } else { self.handed.count(self.pair()) }
    }

    fn pair(&self) -> (&str, &str) {
        (self.caller.name(), self.agent)
    }

    fn of_pages(&self) -> String {
        format!("a2a\0{}\0", self.agent)
    }

    /// Records the caller's name for an id of the agent, where that is not a handle.
    pub(super) fn record_shown(&mut self, id: &str, name: &str) {
        self.names.note(id, name);
    }

    /// Opens a handle of the caller.
    pub(super) fn open(&self, kind: IdKind, handle: &str) -> Option<String> {
        let (agent, id) = match kind {
            IdKind::Task | IdKind::Reference => {
                let TaskRef { agent, task, .. } = TaskRef::open(self.sealer, self.caller.name(), handle)?;
                (agent, task.into_string())
            }
            IdKind::Context => {
                let ContextRef { agent, context } =
                    ContextRef::open(self.sealer, self.caller.name(), handle)?;
                (agent, context)
            }
        };
        (agent == self.agent).then_some(id)
    }

    fn handle(&self, kind: IdKind, id: &str) -> String {
        let (agent, caller) = (self.agent.to_owned(), self.caller.name());
        match kind {
            IdKind::Task | IdKind::Reference => {
                TaskRef { agent, task: id.into(), skill: None }.seal(self.sealer, caller).into_string()
            }
            IdKind::Context => {
                ContextRef { agent, context: id.into() }.seal(self.sealer, caller).into_string()
            }
        }
    }

    /// Returns the handle for an id of the agent, and records it as shown to the caller.
    pub(super) fn seal(&mut self, kind: IdKind, id: &str) -> String {
        let last = match kind {
            IdKind::Task => &self.task,
            IdKind::Context => &self.context,
            IdKind::Reference => &None,
        };
        if let Some((_, handle)) = last.as_ref().filter(|(known, _)| known == id) {
            return handle.clone();
        }
        // If the agent got a handle instead of the client's own id, the client gets its own id
        // again.
        let own = if self.dialect == Dialect::V0_1 { self.open(kind, id) } else { None };
        let asked = self.asked.as_ref().filter(|(known, _)| kind == IdKind::Task && known == id);
        let own = own.or_else(|| asked.map(|(_, handle)| handle.clone()));
        let handle = own.unwrap_or_else(|| self.handle(kind, id));
        self.names.note(id, &handle);
        let now = Some((id.to_owned(), handle.clone()));
        match kind {
            IdKind::Task => {
                // Only A2A 1.0 lists tasks.
                if self.dialect == Dialect::V1 && !self.caller.is_anonymous() {
                    self.handed.note(self.pair(), id, Instant::now());
                }
                self.task = now;
            }
            IdKind::Context => self.context = now,
            IdKind::Reference => {}
        }
        handle
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::a2a::ShownTasksLimits;
    use std::time::Duration;

    const ASKED: Operation = Operation::Get;

    fn handle(ids: &mut ExchangeIds<'_>, task: &str) -> String {
        let result = format!(r#"{{"id":"{task}"}}"#);
        let sealed = ids.seal_task_id(&result, Operation::Get).unwrap();
        sealed.split('"').nth(3).unwrap().to_owned()
    }

    #[test]
    fn a_handle_is_its_caller_s_at_its_agent_and_nobody_else_s() {
        let sealer = Sealer::new([b"secret".as_slice()]).unwrap();
        let handed = ShownTasks::new(ShownTasksLimits { most: 9, of_one: 0, ttl: Duration::from_secs(9) });
        let of = |caller: &str, agent| {
            ExchangeIds::new(
                &sealer,
                &handed,
                Caller::hypothetical(caller, Vec::new(), Vec::new()),
                (agent, Dialect::V1),
            )
        };
        let mut ann = of("key:ann", "bard");
        let handle = handle(&mut ann, "t-1");
        let params = format!(r#"{{ "id":"{handle}" }}"#);
        let (opened, task) = ann.open_task_id(&params, ASKED).unwrap();
        assert_eq!((&*opened, task.as_deref()), (r#"{ "id":"t-1" }"#, Some("t-1")));
        for mut other in [of("key:ben", "bard"), of("key:ann", "bank"), of("anonymous", "bard")] {
            assert_eq!(other.open_task_id(&params, ASKED).unwrap_err(), Fault::UnknownTask);
        }
        for raw in ["t-1", "", "x"].iter().filter(|raw| !raw.is_empty()) {
            let params = format!(r#"{{"id":"{raw}"}}"#);
            assert_eq!(ann.open_task_id(&params, ASKED).unwrap_err(), Fault::UnknownTask, "{raw}");
        }
        assert!(ann.has("t-1") && !ann.has("t-2") && !of("key:ben", "bard").has("t-1"));
    }

    #[test]
    fn an_id_that_a_client_made_is_another_one_for_each_caller_and_its_own_again() {
        let sealer = Sealer::new([b"secret".as_slice()]).unwrap();
        let handed = ShownTasks::new(ShownTasksLimits { most: 9, of_one: 0, ttl: Duration::from_secs(9) });
        let of = |caller: &str| {
            let caller = Caller::hypothetical(caller, Vec::new(), Vec::new());
            ExchangeIds::new(&sealer, &handed, caller, ("bard", Dialect::V0_1))
        };
        let params = r#"{"id":"mine","sessionId":"s","message":{}}"#;
        let (mut ann, mut ben) = (of("key:ann"), of("key:ben"));
        let opened = ann.open_task_id(params, Operation::Send).unwrap().0.into_owned();
        assert!(!opened.contains("mine") && opened != ben.open_task_id(params, Operation::Send).unwrap().0);
        assert_eq!(ann.seal_task_id(&opened, Operation::Send).unwrap(), params);
        assert!(!ben.seal_task_id(&opened, Operation::Send).unwrap().contains("mine"));
        assert_eq!(
            ann.open_task_id(params, Operation::Send).unwrap().0,
            opened,
            "the same id is the same task"
        );
    }

    #[test]
    fn a_page_is_its_caller_s() {
        let sealer = Sealer::new([b"secret".as_slice()]).unwrap();
        let handed = ShownTasks::new(ShownTasksLimits { most: 9, of_one: 0, ttl: Duration::from_secs(9) });
        let of = |caller: &str, agent| {
            ExchangeIds::new(
                &sealer,
                &handed,
                Caller::hypothetical(caller, Vec::new(), Vec::new()),
                (agent, Dialect::V1),
            )
        };
        for total in [None, Some(9)] {
            let place = PageToken { at: 1, token: "p\0 2".into(), before: 7, total };
            let page = of("key:ann", "bard").page(&place);
            assert_eq!(of("key:ann", "bard").place_of(&page), Some(place));
            assert_eq!(of("key:ben", "bard").place_of(&page), None);
            assert_eq!(of("key:ann", "bank").place_of(&page), None);
        }
        assert_eq!(of("key:ann", "bard").place_of("p 2"), None);
    }
}
