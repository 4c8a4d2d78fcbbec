//! The promises of entries and of the map, one by one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::shard::DigestSecret;
use super::*;
use crate::a2a::{
    Artifact, Dialect, Fingerprint, Message, Part, PartBody, Role, StreamResponse, Task, TaskState,
    TaskStatus,
};
use crate::bridge::output::AgentOutput;
use crate::fault::AgentFailure;

const BOUNDS: TaskLimits = TaskLimits {
    most: 4,
    bytes: 1 << 20,
    ttl: Duration::from_secs(60),
    artifact_bytes: 1 << 10,
    compress_after: Duration::from_secs(5),
};

pub(super) fn status(state: TaskState) -> StreamResponse {
    StreamResponse::Status {
        task_id: Some("t".into()),
        context_id: None,
        status: TaskStatus { state, message: None, timestamp: None },
        last: false,
        metadata: None,
    }
}

fn artifact(text: &str) -> Artifact {
    let parts = vec![Part::new(PartBody::Text(text.into()))];
    Artifact {
        artifact_id: "a".into(),
        name: None,
        description: None,
        parts,
        extensions: Vec::new(),
        metadata: None,
    }
}

pub(super) fn chunk(text: &str, append: bool) -> StreamResponse {
    let artifact = artifact(text);
    StreamResponse::Artifact {
        task_id: None,
        context_id: None,
        artifact,
        append,
        last_chunk: false,
        metadata: None,
    }
}

fn now() -> Timestamp {
    Timestamp { instant: Instant::now(), unix_ms: 0 }
}

fn entry() -> TaskEntry {
    TaskEntry::new("agent".into(), [7; 16], AgentOutput::new(1 << 20), now())
}

/// A task that finished in the foreground has the start of its call, and changed at its end.
#[test]
fn kept_entry_has_start_of_its_call() {
    let at = Timestamp { unix_ms: 10_000, ..now() };
    let entry = TaskEntry::new("agent".into(), [7; 16], AgentOutput::new(1 << 20), at);
    let entry = entry.created_before(Duration::from_millis(2_500));
    assert_eq!(entry.visible_state(|inside| (inside.created_ms, inside.changed.unix_ms)), (7_500, 10_000));
}

fn key(number: u8) -> EntryKey {
    EntryKey::Local([number; 16])
}

fn named(id: &str) -> EntryKey {
    EntryKey::Task { agent: "agent".into(), id: id.into() }
}

fn json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.into()).unwrap()
}

#[test]
fn last_sent_state_counts_against_the_bound() {
    let entry = entry();
    let before = entry.bytes();
    entry.apply(chunk(&"x".repeat(10_000), false), now()).unwrap();
    assert!(entry.bytes() - before >= 20_000, "the artifact, and the words that tell of it");
}

#[test]
fn watchers_wake_only_when_something_changed() {
    let snapshot = |text: &str| {
        let status = TaskStatus { state: TaskState::Working, message: None, timestamp: None };
        let (id, artifacts) = ("t".to_owned(), vec![artifact(text)]);
        let history = crate::a2a::TaskHistory::default();
        StreamResponse::Task(Task { id, context_id: None, status, artifacts, history, metadata: None })
    };
    let answer = || {
        StreamResponse::Message(Message {
            message_id: None,
            role: Role::Agent,
            parts: vec![],
            task_id: None,
            context_id: None,
            reference_task_ids: vec![],
            extensions: vec![],
            metadata: None,
        })
    };
    let entry = Arc::new(entry());
    for (step, (event, wakes)) in [
        (status(TaskState::Working), true),
        (status(TaskState::Working), false),
        (chunk("one", false), true),
        (chunk("one", false), false),
        (chunk("two", false), true),
        (snapshot("two"), false),
        (snapshot("six"), true),
        (StreamResponse::Unknown, false),
        (answer(), true),
        (status(TaskState::Failed), false),
    ]
    .into_iter()
    .enumerate()
    {
        let changes = entry.changes();
        entry.apply(event, now()).unwrap();
        assert_eq!(changes.has_changed(), wakes, "{step}");
    }
}

#[test]
fn a_terminal_state_never_changes_and_a_verdict_stands_beside_it() {
    let entry = Arc::new(entry());
    entry.set_verdict(ClientOverride::Cancelled);
    entry.apply(status(TaskState::Completed), now()).unwrap();
    entry.apply(status(TaskState::Canceled), now()).unwrap();
    assert_eq!(entry.visible_state(|inside| inside.work.state), Some(TaskState::Completed));
    assert_eq!(entry.visible_state(|inside| inside.verdict), Some(ClientOverride::Cancelled));
}

#[test]
fn a_lost_task_is_finished_until_it_is_followed_anew() {
    let entry = Arc::new(entry());
    entry.apply(status(TaskState::Working), now()).unwrap();
    entry.end(Err(AgentFailure::TaskNotFound), now());
    assert!(entry.is_finished());
    entry.apply(status(TaskState::Completed), now()).unwrap();
    assert_eq!(entry.visible_state(|inside| inside.work.state), Some(TaskState::Working));
    let _following = entry.begin_following().unwrap();
    assert!(!entry.is_finished());
}

fn over(entry: &TaskEntry) -> Option<Result<(), AgentFailure>> {
    entry.visible_state(|inside| inside.over.clone())
}

#[test]
fn there_is_one_follower_and_its_end_is_heard_even_if_it_says_nothing() {
    let entry = Arc::new(entry());
    let following = entry.begin_following().unwrap();
    assert!(entry.begin_following().is_none() && over(&entry).is_none());
    let changes = entry.changes();
    drop(following);
    assert!(changes.has_changed());
    assert_eq!(over(&entry), Some(Err(AgentFailure::Internal("following it broke off"))));
    let following = entry.begin_following().unwrap();
    assert_eq!(over(&entry), None);
    following.entry().end(Ok(()), now());
    drop(following);
    assert_eq!(over(&entry), Some(Ok(())));
}

#[test]
fn a_turn_is_taken_once() {
    let entry = entry();
    let (turn, digest, other) = ([1; 16], [2; 16], [3; 16]);
    assert_eq!(entry.claim_answer(turn, digest), AnswerClaim::Ours);
    assert_eq!(entry.claim_answer(turn, digest), AnswerClaim::Same);
    assert_eq!(entry.claim_answer(turn, other), AnswerClaim::Other);
    let trouble = AgentFailure::Unreachable("down");
    entry.release_answer(turn, trouble.clone());
    assert_eq!(entry.visible_state(|inside| inside.failure(turn).cloned()), Some(trouble.clone()));
    assert_eq!(entry.claim_answer(turn, other), AnswerClaim::Ours);
    assert_eq!(entry.visible_state(|inside| inside.failure(turn).cloned()), None);
    entry.mark_answer_sent(turn);
    entry.release_answer(turn, trouble);
    assert_eq!(entry.claim_answer(turn, other), AnswerClaim::Same);
}

#[test]
fn a_doubt_ends_by_the_question_that_the_agent_shows() {
    let (turn, blue, red) = ([1; 16], [2; 16], [3; 16]);
    let trouble = AgentFailure::ConnectionLost("cut off");
    for (shown, is_open) in [(Some(turn), true), (Some([9; 16]), false), (None, false)] {
        let entry = entry();
        assert_eq!(entry.claim_answer(turn, blue), AnswerClaim::Ours);
        entry.mark_answer_unconfirmed(turn, &trouble);
        assert!(entry.visible_state(EntryState::has_unconfirmed_answer));
        entry.resolve_unconfirmed(shown.map(Fingerprint::from_bytes));
        assert!(!entry.visible_state(EntryState::has_unconfirmed_answer));
        assert_eq!(
            entry.visible_state(|inside| inside.failure(turn).cloned()),
            is_open.then(|| trouble.clone())
        );
        assert_eq!(
            entry.claim_answer(turn, red),
            if is_open { AnswerClaim::Ours } else { AnswerClaim::Other }
        );
    }
}

#[test]
fn turns_are_bounded_and_the_latest_stay() {
    let entry = entry();
    for number in 0..100 {
        assert_eq!(entry.claim_answer([number; 16], [0; 16]), AnswerClaim::Ours);
        entry.mark_answer_sent([number; 16]);
    }
    assert_eq!(entry.claim_answer([99; 16], [0; 16]), AnswerClaim::Same);
    assert_eq!(entry.claim_answer([68; 16], [0; 16]), AnswerClaim::Same);
    assert_eq!(entry.claim_answer([67; 16], [0; 16]), AnswerClaim::Ours);
}

#[test]
fn partial_answers_gather_for_one_turn_and_are_bounded() {
    let entry = entry();
    let (first, second) = ([1; 16], [2; 16]);
    let add = |turn, key: &str, value: &str| {
        entry.answer_in_parts(turn, [(key.to_owned(), json(value))].into(), |_| None).map(|(parts, _)| parts)
    };
    assert_eq!(add(first, "a", "1").unwrap().len(), 1);
    let both = add(first, "b", "2").unwrap();
    assert_eq!(both.keys().collect::<Vec<_>>(), ["a", "b"]);
    let again = add(first, "b", "3").unwrap();
    assert_eq!(again.get("b").map(|value| value.get()), Some("3"));
    assert_eq!(add(second, "c", "4").unwrap().len(), 1);
    let large = format!("\"{}\"", "x".repeat(300_000));
    assert_eq!(add(second, "d", &large).err(), Some(AnswersTooLarge));
    let too_many = (0..100).find(|key: &i32| add(second, &key.to_string(), "0").is_err());
    assert_eq!(too_many, Some(63));
    let before = entry.bytes();
    entry.mark_answer_sent(second);
    assert!(entry.bytes() < before);
}

#[test]
fn last_part_takes_the_turn_in_the_same_change() {
    let entry = entry();
    let turn = [1; 16];
    let two = |parts: &PartialAnswers| (parts.len() == 2).then_some([7; 16]);
    let first = entry.answer_in_parts(turn, [("a".to_owned(), json("1"))].into(), two).unwrap();
    assert_eq!((first.0.len(), first.1), (1, None));
    assert!(!entry.visible_state(|inside| inside.is_taken(turn)));
    let last = entry.answer_in_parts(turn, [("b".to_owned(), json("2"))].into(), two).unwrap();
    assert_eq!((last.0.len(), last.1), (2, Some(AnswerClaim::Ours)));
    assert!(entry.visible_state(|inside| inside.is_taken(turn)));
}

#[test]
fn owners_are_bounded_and_the_latest_stay() {
    let entry = Arc::new(entry());
    (0..20).for_each(|number| entry.own(&format!("caller-{number}")));
    entry.own("caller-19");
    assert!(entry.is_owner("caller-19") && entry.is_owner("caller-4") && !entry.is_owner("caller-3"));
    assert_eq!(entry.visible_state(|inside| inside.owners().count()), 16);
}

#[test]
fn a_named_entry_is_found_under_both_keys_and_leaves_both() {
    let (tasks, now) = (Tasks::new(BOUNDS), Instant::now());
    let (one, _) = tasks.admit(key(1), entry, now).unwrap();
    assert!(Arc::ptr_eq(&tasks.add_alias(named("t"), &one, now), &one));
    assert!(Arc::ptr_eq(&tasks.find(&named("t"), now).unwrap(), &one));
    let (other, _) = tasks.admit(key(2), entry, now).unwrap();
    assert!(Arc::ptr_eq(&tasks.add_alias(named("t"), &other, now), &one));
    tasks.forget(&one);
    assert!(one.is_gone() && tasks.find(&key(1), now).is_none() && tasks.find(&named("t"), now).is_none());
    assert!(Arc::ptr_eq(&tasks.add_alias(named("t"), &other, now), &other));
    tasks.forget(&other);
    assert_eq!((tasks.len(), tasks.bytes()), (0, 0));
}

#[test]
fn large_finished_task_is_cut_without_watchers() {
    let (tasks, now) = (Tasks::new(BOUNDS), self::now());
    let (entry, _) = tasks.admit(key(1), entry, now.instant).unwrap();
    entry.apply(chunk(&"x".repeat(5000), false), now).unwrap();
    assert!(!tasks.should_shed(&entry, now.instant), "live");
    let watcher = entry.watch();
    entry.apply(status(TaskState::Completed), now).unwrap();
    assert!(!tasks.should_shed(&entry, now.instant), "watched");
    watcher.end(now.instant);
    assert!(tasks.should_shed(&entry, now.instant));
    let (before, changes) = (tasks.bytes(), entry.changes());
    entry.update(|work| *work = AgentOutput::new(0));
    assert!(tasks.bytes() + 5000 < before && !changes.has_changed());
}

#[test]
fn artifacts_are_not_shed_for_the_size_of_anything_else() {
    let (tasks, now) = (Tasks::new(BOUNDS), self::now());
    let (entry, _) = tasks.admit(key(1), entry, now.instant).unwrap();
    entry.apply(chunk("x", false), now).unwrap();
    let said = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"statusUpdate":{{"taskId":"t","status":{{"state":"completed","message":{{"parts":[{{"text":"{}"}}]}}}}}}}}}}"#,
        "y".repeat(5000)
    );
    entry.apply(Dialect::V1.event(said.as_bytes()).unwrap(), now).unwrap();
    assert!(
        entry.visible_state(|inside| inside.is_finished() && inside.work.bytes() > BOUNDS.artifact_bytes)
    );
    assert!(!tasks.should_shed(&entry, now.instant));
}

/// Compresses what it may of all shards.
fn compress(tasks: &Tasks, now: Instant) {
    (0..tasks.shards()).for_each(|_| tasks.compress_idle(now).unwrap());
}

/// Returns a map with a task of `ann` that has some text, and a moment at which it is idle.
fn with_text() -> (Tasks, Arc<TaskEntry>, Timestamp, Instant) {
    let (tasks, now) = (Tasks::new(BOUNDS), now());
    let (entry, _) = tasks.admit(key(1), entry, now.instant).unwrap();
    entry.own("ann");
    entry.apply(chunk(&"words ".repeat(500), false), now).unwrap();
    (tasks, entry, now, now.instant + BOUNDS.compress_after * 2)
}

#[test]
fn task_is_compressed_once_it_is_finished_idle_and_held_by_a_client() {
    let (tasks, entry, now, later) = with_text();
    compress(&tasks, later);
    assert_eq!(tasks.compressed(), 0, "live");
    entry.apply(status(TaskState::Completed), now).unwrap();
    compress(&tasks, now.instant);
    assert_eq!(tasks.compressed(), 0, "not idle");
    compress(&tasks, later);
    assert_eq!(tasks.compressed(), 0, "no client has a handle");
    entry.acknowledge();
    compress(&tasks, later);
    assert_eq!(tasks.compressed(), 1, "looked at once more after a change");
    let watcher = entry.watch();
    compress(&tasks, later);
    assert_eq!(tasks.compressed(), 0, "a watcher reads it");
    drop(watcher);
    compress(&tasks, Instant::now() + BOUNDS.compress_after * 2);
    assert_eq!(tasks.compressed(), 1);
}

#[test]
fn compressed_task_is_expanded_when_it_is_read() {
    let (tasks, entry, now, later) = with_text();
    entry.apply(status(TaskState::Completed), now).unwrap();
    entry.acknowledge();
    let shown = |entry: &TaskEntry| entry.peek(|inside| format!("{inside:?}"));
    let before = (shown(&entry), tasks.bytes());
    compress(&tasks, later);
    assert!(tasks.bytes() < 2_000 && before.1 > 4_000, "{before:?}, {}", tasks.bytes());
    assert!(entry.is_finished() && entry.is_named() && entry.is_acknowledged());
    assert_eq!(entry.state_and_change(), (Some(TaskState::Completed), now.unix_ms));
    assert_eq!((tasks.owned_by("ann", later).len(), shown(&entry)), (1, before.0.clone()));
    assert_eq!(tasks.compressed(), 1, "lists and passes leave it as it is");
    assert_eq!(entry.visible_state(|inside| format!("{inside:?}")), before.0);
    assert_eq!((tasks.compressed(), tasks.bytes()), (0, before.1));
    compress(&tasks, later);
    assert_eq!(tasks.compressed(), 1, "once more after it was read");
    tasks.forget(&entry);
    assert_eq!((tasks.compressed(), tasks.bytes(), tasks.owners()), (0, 0, 0));
}

#[test]
fn watchers_learn_of_a_dropped_entry() {
    let (tasks, now) = (Tasks::new(BOUNDS), Instant::now());
    let (entry, _) = tasks.admit(key(1), entry, now).unwrap();
    let changes = entry.changes();
    let later = now + BOUNDS.ttl;
    let dropped: usize = (0..tasks.shards()).map(|_| tasks.sweep(later).len()).sum();
    assert_eq!((dropped, entry.is_gone(), changes.has_changed()), (1, true, true));
}

#[test]
fn a_full_map_refuses_new_tasks_only_while_all_are_watched() {
    let (tasks, now) = (Tasks::new(BOUNDS), Instant::now());
    let mut watchers: Vec<WatchGuard> =
        (0..4).map(|number| tasks.admit(key(number), entry, now).unwrap().0.watch()).collect();
    assert!(!tasks.has_room(now));
    assert_eq!(tasks.admit(key(9), entry, now).err(), Some(TaskMapFull));
    assert!(!tasks.admit(key(0), entry, now).unwrap().1, "one that is known is no new one");
    watchers.pop().unwrap().end(now);
    assert!(tasks.has_room(now) && tasks.take_evicted() == 0);
    assert!(tasks.admit(key(9), entry, now).unwrap().1 && tasks.find(&key(3), now).is_none());
    assert_eq!([tasks.take_evicted(), tasks.take_evicted()], [1, 0]);
}

#[test]
fn many_threads_leave_the_sums_right() {
    let bounds = TaskLimits { most: 16, bytes: 200_000, ..BOUNDS };
    let (tasks, now) = (Tasks::with(bounds, 4, [1, 0]), Instant::now());
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let tasks = &tasks;
            scope.spawn(move || {
                for round in 0..2000_u32 {
                    let number = (round.wrapping_mul(31).wrapping_add(u32::from(thread) * 7) % 40) as u8;
                    let Ok((entry, _)) = tasks.admit(key(number), entry, now) else { continue };
                    let watcher = entry.watch();
                    tasks.add_alias(named(&(number % 20).to_string()), &entry, now);
                    let event = chunk(&"x".repeat(usize::from(number) * 40), true);
                    let is_fine = entry.apply(event, self::now()).is_ok();
                    let following = entry.begin_following();
                    if round % 3 == 0 || !is_fine {
                        entry.apply(status(TaskState::Completed), self::now()).unwrap();
                    }
                    drop(following);
                    watcher.end(now);
                    tasks.sweep(now);
                    assert!(tasks.len() <= bounds.most);
                }
            });
        }
    });
    let (mut count, mut entries) = (0, Vec::new());
    tasks.for_each(now, |entry| {
        count += 1;
        entries.push(entry.clone());
    });
    assert_eq!(tasks.len(), count);
    entries.iter().for_each(|entry| tasks.forget(entry));
    assert_eq!((tasks.len(), tasks.bytes(), tasks.has_room(now)), (0, 0, true));
    assert_eq!(tasks.keys(), 0);
}

/// The best of three, in time per call.
fn time(mut call: impl FnMut(u32)) -> Duration {
    const CALLS: u32 = 2000;
    let mut once = |round: u32| {
        let since = Instant::now();
        (0..CALLS).for_each(|number| call(round * CALLS + number));
        since.elapsed()
    };
    (0..3).map(&mut once).min().unwrap_or_default()
}

#[test]
fn a_hundred_thousand_tasks_are_not_slower_than_a_thousand() {
    let key = |number: u32| EntryKey::Local(std::array::from_fn(|at| number.to_le_bytes()[at % 4]));
    let filled = |most: u32| {
        let bounds = TaskLimits { most: most as usize, bytes: usize::MAX, ..BOUNDS };
        let (tasks, now) = (Tasks::new(bounds), Instant::now());
        (0..most).for_each(|number| assert!(tasks.admit(key(number), entry, now).is_ok()));
        // The first entries in the order of eviction are watched, so that a search would take long.
        let watched = (0..most / 2).filter_map(|number| tasks.find(&key(number), now));
        let watchers: Vec<_> = watched.map(|entry| entry.watch()).collect();
        for number in 0..most {
            let entry = tasks.find(&key(number), now).unwrap();
            entry.own(if number < 20 { "ann" } else { "somebody" });
        }
        (tasks, watchers, now)
    };
    let (small, _small_watchers, now) = filled(1000);
    let (large, _large_watchers, _) = filled(100_000);
    for (what, small, large) in [
        (
            "find",
            time(|number| drop(small.find(&key(number % 1000), now))),
            time(|number| drop(large.find(&key(number % 100_000), now))),
        ),
        (
            "what somebody holds",
            time(|_| assert_eq!(small.owned_by("ann", now).len(), 20)),
            time(|_| assert_eq!(large.owned_by("ann", now).len(), 20)),
        ),
        (
            "admit at capacity",
            time(|number| assert!(small.admit(key(1_000_000 + number), entry, now).is_ok())),
            time(|number| assert!(large.admit(key(1_000_000 + number), entry, now).is_ok())),
        ),
    ] {
        assert!(large < small * 20, "{what}: {large:?} instead of {small:?}");
    }
    assert_eq!(large.len(), 100_000);
}

fn said(text: &str) -> StreamResponse {
    let message = Message {
        message_id: Some(text.into()),
        role: Role::Agent,
        parts: vec![Part::new(PartBody::Text(text.into()))],
        task_id: None,
        context_id: None,
        reference_task_ids: vec![],
        extensions: vec![],
        metadata: None,
    };
    StreamResponse::Status {
        task_id: Some("t".into()),
        context_id: None,
        status: TaskStatus { state: TaskState::Working, message: Some(Box::new(message)), timestamp: None },
        last: false,
        metadata: None,
    }
}

/// The texts that are reported for these events.
fn reported(entry: &TaskEntry, numbers: std::ops::RangeInclusive<u32>) -> Vec<String> {
    let mut texts = Vec::new();
    for number in numbers {
        let before = entry.visible_state(|inside| inside.updates);
        entry.apply(said(&number.to_string()), now()).unwrap();
        let (updates, last) = entry.visible_state(|inside| (inside.updates, inside.last.clone()));
        texts.extend(
            last.filter(|_| updates > before)
                .and_then(|last| last.text)
                .map(|text| text.to_str().into_owned()),
        );
    }
    texts
}

#[test]
fn progress_that_a_replica_has_read_itself_is_reported_once() {
    let entry = Arc::new(entry());
    let _following = entry.begin_following().unwrap();
    entry.set_event_origin(EventOrigin::Agent);
    assert_eq!(reported(&entry, 1..=40).len(), 40);
    // The replica that reads the agent now tells everything since its first row.
    entry.set_event_origin(EventOrigin::Replica);
    assert_eq!(reported(&entry, 31..=42), ["41", "42"]);
    // News of that replica are news, even if they were reported long ago.
    assert_eq!(reported(&entry, 7..=8), ["7", "8"]);
}

#[test]
fn own_output_stays_while_a_replica_reads_the_agent() {
    let at = |epoch| EventPosition { epoch, number: 3 };
    let of_another = |text: &str, position| {
        let other = entry();
        other.apply(chunk(text, false), now()).unwrap();
        other.set_position(position);
        other
    };
    let text = |entry: &TaskEntry| {
        let part = |part: Part| match part.body {
            PartBody::Text(text) => text.into_string(),
            other => panic!("{other:?}"),
        };
        entry.visible_state(|inside| {
            let parts = inside.work.artifacts().flat_map(|artifact| artifact.parts.clone());
            parts.map(part).collect::<String>()
        })
    };
    let entry = Arc::new(of_another("abcd", at(1)));
    let _following = entry.begin_following().unwrap();
    entry.set_event_origin(EventOrigin::Agent);
    entry.learn(of_another("ab", at(2)), now());
    entry.apply(chunk("e", true), now()).unwrap();
    assert_eq!((text(&entry).as_str(), entry.position()), ("abcde", at(1)));
    entry.set_event_origin(EventOrigin::Replica);
    entry.learn(of_another("ab", at(2)), now());
    assert_eq!((text(&entry).as_str(), entry.position()), ("ab", at(2)));
}

/// A finished task stays for `tasks.ttl`, so its size is what a gateway in use needs most of.
#[test]
fn an_entry_is_small() {
    let sizes = [size_of::<TaskEntry>(), size_of::<EntryState>(), size_of::<AgentOutput>()];
    assert!(sizes[0] <= 144 && sizes[1] <= 744, "{sizes:?}");
}

#[tokio::test]
async fn a_change_before_the_wait_is_not_missed_and_told_once() {
    let entry = Arc::new(entry());
    let mut changes = entry.changes();
    entry.apply(status(TaskState::Working), now()).unwrap();
    entry.apply(status(TaskState::Completed), now()).unwrap();
    assert!(changes.has_changed());
    changes.changed().await;
    assert!(!changes.has_changed(), "both are one change to a late reader");
    changes.mark_changed();
    changes.changed().await;
    let next = tokio::spawn(async move { changes.changed().await });
    tokio::task::yield_now().await;
    entry.set_verdict(ClientOverride::Cancelled);
    next.await.unwrap();
}

#[test]
fn a_digest_depends_on_the_whole_key_and_on_the_secret() {
    let task = |agent: &str, id: &str| EntryKey::Task { agent: agent.into(), id: id.into() };
    let keys = [task("bard", "t-1"), task("bard", "t-2"), task("bar", "dt-1"), key(1), key(2)];
    let digests: Vec<_> =
        [[1, 2], [2, 1]].into_iter().flat_map(|secret| keys.iter().map(move |key| (secret, key))).collect();
    for (at, (secret, key)) in digests.iter().enumerate() {
        let same = digests
            .iter()
            .filter(|(other, of)| DigestSecret(*other).digest(of) == DigestSecret(*secret).digest(key));
        assert_eq!(same.count(), 1, "{at}");
    }
}
