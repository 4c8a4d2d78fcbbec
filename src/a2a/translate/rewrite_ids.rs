//! Replaces ids within JSON and leaves every other byte unchanged.
//!
//! For a client and an agent of one version: parameters and results are walked by the meaning of
//! their members, and unknown members are not walked (`metadata`, `data`, the parts of anything). A
//! duplicate member is replaced twice, and in parameters the spelling of protobuf (`task_id`)
//! counts too, because servers accept either: no id is missed. Other versions are handled in
//! `request` and `response`.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::super::dialect::Dialect;
use super::super::lenient::absent;
use super::super::lenient::{MAX_DEPTH, depth_within};
use super::super::operation::Operation;
use crate::jsonrpc::Text;

/// The kind of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdKind {
    /// The task of the request or response.
    Task,
    /// Another task, to which a message refers.
    Reference,
    /// The conversation.
    Context,
}

/// The reason why ids could not be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RewriteError<R> {
    /// The JSON is invalid or nested too deeply.
    NotJson,
    /// An id is not a string.
    NotText(IdKind),
    /// The `replace` function rejected the id.
    Refused(R),
}

/// The position of the walk in parameters or in a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Parameters with a task's id in `id`; all of 0.1, results about webhooks included.
    ById,
    /// Parameters with a task's id in `taskId`, and another id in `id`.
    ByTaskId,
    /// Parameters of a send.
    Saying,
    /// `configuration`.
    Configuration,
    /// A push configuration, also with its task.
    Push,
    /// A message of a client.
    Asked,
    /// A result or an event: a task, a message, an update, or a wrapper around one.
    Told,
    /// A status.
    Status,
    /// A message of an agent.
    Said,
    /// The result of a list of tasks.
    Listed,
    /// The result of a list of push configurations.
    Pushes,
    /// A position without ids below it.
    Nothing,
}

/// The content of a member.
#[derive(Clone, Copy)]
enum MemberKind {
    Id(IdKind),
    Ids(IdKind),
    One(Position),
    Many(Position),
}

impl Position {
    fn of_params(dialect: Dialect, operation: Operation) -> Self {
        match (operation, dialect) {
            (Operation::Send | Operation::Stream, Dialect::V0_3 | Dialect::V1) => Self::Saying,
            (Operation::ExtendedCard, _) => Self::Nothing,
            (Operation::Get | Operation::Cancel | Operation::Subscribe, _) | (_, Dialect::V0_1) => Self::ById,
            (Operation::List | Operation::SetPush, Dialect::V0_3 | Dialect::V1)
            | (Operation::GetPush | Operation::ListPush | Operation::DeletePush, Dialect::V1) => {
                Self::ByTaskId
            }
            (Operation::GetPush | Operation::ListPush | Operation::DeletePush, Dialect::V0_3) => Self::ById,
        }
    }

    fn of_result(dialect: Dialect, operation: Operation) -> Self {
        match operation {
            Operation::Send
            | Operation::Stream
            | Operation::Get
            | Operation::Cancel
            | Operation::Subscribe => Self::Told,
            Operation::List => Self::Listed,
            Operation::SetPush | Operation::GetPush if dialect == Dialect::V0_1 => Self::ById,
            Operation::SetPush | Operation::GetPush => Self::Push,
            Operation::ListPush => Self::Pushes,
            Operation::DeletePush | Operation::ExtendedCard => Self::Nothing,
        }
    }

    fn holds(self, member: &str) -> Option<MemberKind> {
        use IdKind::{Context, Reference, Task};
        use MemberKind::{Id, Ids, Many, One};
        Some(match (self, member) {
            (Self::ById | Self::Told, "id") | (Self::ByTaskId | Self::Push, "taskId" | "task_id") => Id(Task),
            (Self::ByTaskId, "contextId" | "context_id") => Id(Context),
            (Self::Saying, "message") => One(Self::Asked),
            (Self::Saying, "configuration") => One(Self::Configuration),
            (
                Self::Configuration,
                "taskPushNotificationConfig" | "task_push_notification_config" | "pushNotificationConfig",
            ) => One(Self::Push),
            (Self::Asked, "taskId" | "task_id") | (Self::Said | Self::Told, "taskId") => Id(Task),
            (Self::Asked, "contextId" | "context_id") | (Self::Said | Self::Told, "contextId") => Id(Context),
            (Self::Asked, "referenceTaskIds" | "reference_task_ids")
            | (Self::Said | Self::Told, "referenceTaskIds") => Ids(Reference),
            (Self::ById | Self::Told, "sessionId") => Id(Context),
            (Self::Told, "task" | "statusUpdate" | "artifactUpdate") => One(Self::Told),
            (Self::Told | Self::Status, "message") => One(Self::Said),
            (Self::Told, "status") => One(Self::Status),
            (Self::Told, "history") => Many(Self::Said),
            (Self::Listed, "tasks") => Many(Self::Told),
            (Self::Pushes, "configs") => Many(Self::Push),
            _ => return None,
        })
    }
}

/// Replaces the ids in the parameters of a request.
///
/// `replace` returns the new id, or nothing if the id stays. Borrows if all stay.
///
/// # Errors
///
/// [`RewriteError`]; an id that is not a string is rejected, since servers may interpret it in
/// different ways.
pub fn params<'a, R>(
    json: &'a str,
    dialect: Dialect,
    operation: Operation,
    replace: impl FnMut(IdKind, &str) -> Result<Option<String>, R>,
) -> Result<Cow<'a, str>, RewriteError<R>> {
    splice(json, Position::of_params(dialect, operation), true, replace)
}

/// Replaces the ids in the result of a response, or of an event of a stream.
///
/// `replace` returns the new id, or nothing if the id stays. Borrows if all stay.
///
/// # Errors
///
/// [`RewriteError`]; an id that is not a string stays unchanged.
pub fn result<R>(
    json: &str,
    dialect: Dialect,
    operation: Operation,
    replace: impl FnMut(IdKind, &str) -> Result<Option<String>, R>,
) -> Result<Cow<'_, str>, RewriteError<R>> {
    splice(json, Position::of_result(dialect, operation), false, replace)
}

fn splice<R>(
    json: &str,
    place: Position,
    strict: bool,
    replace: impl FnMut(IdKind, &str) -> Result<Option<String>, R>,
) -> Result<Cow<'_, str>, RewriteError<R>> {
    if !depth_within(json.as_bytes(), MAX_DEPTH) {
        return Err(RewriteError::NotJson);
    }
    let mut walk = MemberWalk { json, strict, replace, edits: Vec::new(), failed: None };
    let mut parser = serde_json::Deserializer::from_str(json);
    let walked = ValueAt(&mut walk, place).deserialize(&mut parser).and_then(|()| parser.end());
    if let Some(failed) = walk.failed {
        return Err(failed);
    }
    walked.map_err(|_| RewriteError::NotJson)?;
    if walk.edits.is_empty() {
        return Ok(Cow::Borrowed(json));
    }
    applied(json, &walk.edits).map(Cow::Owned).ok_or(RewriteError::NotJson)
}

/// Applies edits, which are in order, to `json`.
fn applied(json: &str, edits: &[(Range<usize>, String)]) -> Option<String> {
    let grown: usize = edits.iter().map(|(_, text)| text.len()).sum();
    let mut out = String::with_capacity(json.len() + grown);
    let mut copied = 0;
    for (range, text) in edits {
        out.push_str(json.get(copied..range.start)?);
        out.push_str(text);
        copied = range.end;
    }
    out.push_str(json.get(copied..)?);
    Some(out)
}

struct MemberWalk<'a, R, F> {
    json: &'a str,
    /// True if an id must be a string.
    strict: bool,
    replace: F,
    edits: Vec<(Range<usize>, String)>,
    failed: Option<RewriteError<R>>,
}

impl<R, F: FnMut(IdKind, &str) -> Result<Option<String>, R>> MemberWalk<'_, R, F> {
    /// Replaces one id. Returns true if the walk continues.
    fn id(&mut self, kind: IdKind, raw: &RawValue) -> bool {
        let edit = match self.edit(kind, raw) {
            Ok(edit) => edit,
            Err(failed) => {
                self.failed = Some(failed);
                return false;
            }
        };
        self.edits.extend(edit);
        true
    }

    fn edit(
        &mut self,
        kind: IdKind,
        raw: &RawValue,
    ) -> Result<Option<(Range<usize>, String)>, RewriteError<R>> {
        let Ok(Text(id)) = serde_json::from_str::<Text<'_>>(raw.get()) else {
            let odd = self.strict && raw.get() != "null";
            return if odd { Err(RewriteError::NotText(kind)) } else { Ok(None) };
        };
        // Agents and clients write an empty id for "none".
        if id.is_empty() {
            return Ok(None);
        }
        let Some(new) = (self.replace)(kind, &id).map_err(RewriteError::Refused)? else { return Ok(None) };
        if new == id {
            return Ok(None);
        }
        let start = raw.get().as_ptr().addr().wrapping_sub(self.json.as_ptr().addr());
        let written = serde_json::to_string(&new).map_err(|_| RewriteError::NotJson)?;
        Ok(Some((start..start + raw.get().len(), written)))
    }
}

/// One value at a position.
struct ValueAt<'w, 'a, R, F>(&'w mut MemberWalk<'a, R, F>, Position);

/// Each value of a list at a position.
struct EachValue<'w, 'a, R, F>(&'w mut MemberWalk<'a, R, F>, Position);

/// Each id of a list.
struct EachId<'w, 'a, R, F>(&'w mut MemberWalk<'a, R, F>, IdKind);

/// Ends the walk; the reason is stored in `failed`.
fn stop<E: serde::de::Error>() -> E {
    E::custom("stopped")
}

/// Defines deserialization seeds of the walk.
macro_rules! seed {
    ($name:ident) => {
        impl<'de, R, F> DeserializeSeed<'de> for $name<'_, 'de, R, F>
        where
            F: FnMut(IdKind, &str) -> Result<Option<String>, R>,
        {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_any(self)
            }
        }
    };
}

seed!(ValueAt);
seed!(EachValue);
seed!(EachId);

impl<'de, R, F> Visitor<'de> for ValueAt<'_, 'de, R, F>
where
    F: FnMut(IdKind, &str) -> Result<Option<String>, R>,
{
    type Value = ();
    absent!(bool, text, number);

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let Self(walk, place) = self;
        while let Some(Text(member)) = object.next_key::<Text<'de>>()? {
            match place.holds(&member) {
                None => object.next_value::<IgnoredAny>().map(drop)?,
                Some(MemberKind::Id(kind)) => {
                    if !walk.id(kind, object.next_value::<&'de RawValue>()?) {
                        return Err(stop());
                    }
                }
                Some(MemberKind::Ids(kind)) => object.next_value_seed(EachId(walk, kind))?,
                Some(MemberKind::One(place)) => object.next_value_seed(ValueAt(walk, place))?,
                Some(MemberKind::Many(place)) => object.next_value_seed(EachValue(walk, place))?,
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        // A2A 0.3 lists push configurations without an object around the list.
        let place = if self.1 == Position::Pushes { Position::Push } else { Position::Nothing };
        EachValue(self.0, place).visit_seq(list)
    }
}

impl<'de, R, F> Visitor<'de> for EachValue<'_, 'de, R, F>
where
    F: FnMut(IdKind, &str) -> Result<Option<String>, R>,
{
    type Value = ();
    absent!(bool, text, number, object);

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self(walk, place) = self;
        while list.next_element_seed(ValueAt(walk, place))?.is_some() {}
        Ok(())
    }
}

impl<'de, R, F> Visitor<'de> for EachId<'_, 'de, R, F>
where
    F: FnMut(IdKind, &str) -> Result<Option<String>, R>,
{
    type Value = ();
    absent!(bool, text, number, object);

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self(walk, kind) = self;
        while let Some(raw) = list.next_element::<&'de RawValue>()? {
            if !walk.id(kind, raw) {
                return Err(stop());
            }
        }
        Ok(())
    }
}
