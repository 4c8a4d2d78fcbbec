//! Replicas of one process on a paused clock, with the engine within it, from which each can be cut; and
//! a seeded simulation of leases, fencing and claims beside a naive model.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep};

use super::engine::{EngineError, LeaseOutcome, LeaseRequest, NewEvents, StateEngine, StateKey, StateKind};
use super::local_engine::LocalEngine;
use super::local_store::LocalStore;
use super::*;
use crate::sync::lock;
use crate::tasks::{EventPosition, SharedRows as _, SharedTaskRow};

const TTL: Duration = Duration::from_secs(3600);

/// A replica, and its way to the engine.
pub(super) struct Replica {
    pub(super) state: Arc<SharedState>,
    engine: Arc<LocalEngine>,
    pub(super) work: JoinHandle<()>,
}

/// Returns the rows of an engine in memory.
pub(super) fn rows_in_memory() -> Arc<LocalStore> {
    let rows = LocalStore::new(None, "gateway");
    rows.open().unwrap();
    rows
}

/// Returns the engine with these rows as a replica reaches it.
pub(super) fn engine_of(rows: &Arc<LocalStore>, replica: &[u8]) -> (Arc<LocalEngine>, mpsc::Receiver<Wake>) {
    let key = StateKey::new(StateKind::Replica, replica);
    let (engine, wakes) = LocalEngine::with(rows.clone(), key, 1024, Duration::from_millis(500));
    engine.availability.mark_present();
    (engine, wakes)
}

impl Replica {
    pub(super) fn new(rows: &Arc<LocalStore>, number: u8) -> Self {
        let replica = [number; REPLICA_BYTES];
        let (engine, wakes) = engine_of(rows, &replica);
        let sealer = Sealer::new([b"a secret that all replicas have".as_slice()]).unwrap();
        let state = Arc::new(SharedState::with(engine.clone(), wakes, replica, sealer, TTL));
        let worker = state.clone();
        let work = tokio::spawn(async move { worker.work().await });
        Self { state, engine, work }
    }

    /// Cuts the replica from the engine, or connects it again.
    pub(super) fn cut(&self, is_cut: bool) {
        match is_cut {
            true => self.engine.availability.disconnect(),
            false => _ = self.engine.availability.mark_present(),
        }
    }

    async fn lease(&self, last: EventPosition) -> Option<TaskLease> {
        match self.state.lease(b"task", last, false).await {
            LeaseGrant::Granted(lease) => Some(lease),
            LeaseGrant::Held | LeaseGrant::Unknown => None,
        }
    }

    /// Says that the replica lives, as its connection does.
    async fn beat(&self) {
        let key = replica_key(&self.state.replica);
        self.state.engine.set(&key, b"1", Duration::from_secs(9)).await.unwrap();
    }
}

/// Returns the shared states of replicas with one engine, for the tests of other modules.
pub(crate) fn replicas(count: u8) -> Vec<Arc<SharedState>> {
    let engine = rows_in_memory();
    (1..=count).map(|number| Replica::new(&engine, number).state).collect()
}

fn row(at: EventPosition, value: &[u8]) -> SharedTaskRow {
    SharedTaskRow { at, owners: vec!["ann".into()], changed: 1, value: value.to_vec() }
}

#[tokio::test(start_paused = true)]
async fn one_replica_follows_until_it_ends() {
    let engine = rows_in_memory();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let lease = one.lease(EventPosition::default()).await.unwrap();
    for _ in 0..20 {
        assert!(two.lease(EventPosition::default()).await.is_none());
        sleep(Duration::from_secs(2)).await;
    }
    // It ends without releasing the lease, which is not renewed any more.
    one.work.abort();
    std::mem::forget(lease);
    sleep(Duration::from_secs(9)).await;
    assert!(two.lease(EventPosition::default()).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_free_at_once_after_a_drain() {
    let engine = rows_in_memory();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let lease = one.lease(EventPosition::default()).await.unwrap();
    let mut events = two.state.watch_events(b"task").await;
    assert!(!events.read(EventPosition::default()).await.unwrap().is_free);
    one.state.release_leases().await;
    lease.lost().await;
    events.changed().await;
    assert!(events.read(EventPosition::default()).await.unwrap().is_free);
    assert!(!one.state.may_follow() && two.state.may_follow());
}

#[tokio::test(start_paused = true)]
async fn events_arrive_once_and_in_order() {
    let engine = rows_in_memory();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let lease = one.lease(EventPosition::default()).await.unwrap();
    let mut events = two.state.watch_events(b"task").await;
    let (mut position, mut seen) = (EventPosition::default(), Vec::new());
    for number in 0..300_u32 {
        lease.push(lease.next(), &number.to_be_bytes()).await;
        if number % 7 == 0 {
            events.changed().await;
            for (at, event) in events.read(position).await.unwrap().events {
                position = at;
                seen.push(event);
            }
        }
    }
    sleep(Duration::from_secs(1)).await;
    let rest = events.read(position).await.unwrap().events;
    seen.extend(rest.into_iter().map(|(_, event)| event));
    let wanted: Vec<_> = (0..300_u32).map(|number| number.to_be_bytes().to_vec()).collect();
    assert_eq!(seen, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_was_paused_writes_nothing() {
    let engine = rows_in_memory();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let lease = one.lease(EventPosition::default()).await.unwrap();
    one.cut(true);
    sleep(Duration::from_secs(10)).await;
    let later = two.lease(EventPosition::default()).await.unwrap();
    one.cut(false);
    lease.push(lease.next(), b"late").await;
    lease.lost().await;
    later.push(later.next(), b"timely").await;
    sleep(Duration::from_secs(1)).await;
    let mut events = two.state.watch_events(b"task").await;
    let read = events.read(EventPosition::default()).await.unwrap();
    assert_eq!(read.events.into_iter().map(|(_, event)| event).collect::<Vec<_>>(), [b"timely".to_vec()]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_forgot_gets_the_lease_back() {
    let engine = rows_in_memory();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let lease = one.lease(EventPosition::default()).await.unwrap();
    lease.push(lease.next(), b"first").await;
    sleep(Duration::from_secs(1)).await;
    engine.forget();
    sleep(Duration::from_secs(4)).await;
    assert!(!lease.is_lost() && two.lease(EventPosition::default()).await.is_none());
    // The watcher sees the gap, and goes on after it.
    let mut events = two.state.watch_events(b"task").await;
    let at = lease.next();
    lease.push(at, b"second").await;
    sleep(Duration::from_secs(1)).await;
    let read = events.read(EventPosition { number: at.number - 1, ..at }).await.unwrap();
    assert_eq!(read.events, [(at, b"second".to_vec())]);
}

#[tokio::test(start_paused = true)]
async fn answers_are_claimed_once() {
    let engine = rows_in_memory();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    one.beat().await;
    let (turn, ours, other) = ([1; 16], [2; 16], [3; 16]);
    assert_eq!(one.state.claim_answer(b"task", turn, ours).await, SharedClaim::Ours);
    let taken = |progress| SharedClaim::Taken { digest: ours, progress };
    assert_eq!(two.state.claim_answer(b"task", turn, other).await, taken(ClaimProgress::Sending));
    // The replica ends while it sends: the next one asks the agent, and takes the claim over once.
    advance(Duration::from_secs(10)).await;
    let SharedClaim::Taken { progress: ClaimProgress::Abandoned(abandoned), .. } =
        two.state.claim_answer(b"task", turn, other).await
    else {
        panic!("not abandoned")
    };
    assert!(two.state.take_over_claim(b"task", turn, other, &abandoned).await);
    assert!(!two.state.take_over_claim(b"task", turn, other, &abandoned).await);
    two.state.settle_answer(b"task", turn, other, true).await;
    let sent = SharedClaim::Taken { digest: other, progress: ClaimProgress::Sent };
    assert_eq!(one.state.claim_answer(b"task", turn, ours).await, sent);
    // One that was not sent is free again.
    assert_eq!(one.state.claim_answer(b"task", [9; 16], ours).await, SharedClaim::Ours);
    one.state.settle_answer(b"task", [9; 16], ours, false).await;
    assert_eq!(two.state.claim_answer(b"task", [9; 16], other).await, SharedClaim::Ours);
    assert!(one.state.claim_cancel(b"task").await && one.state.claim_cancel(b"task").await);
    assert!(!two.state.claim_cancel(b"task").await);
}

#[tokio::test(start_paused = true)]
async fn without_an_engine_each_decides_alone() {
    let engine = rows_in_memory();
    let one = Replica::new(&engine, 1);
    one.cut(true);
    assert_eq!(one.state.claim_answer(b"task", [1; 16], [2; 16]).await, SharedClaim::Unknown);
    assert!(matches!(one.state.lease(b"task", EventPosition::default(), false).await, LeaseGrant::Unknown));
    let owner = QuotaOwner::Caller("ann".into());
    assert_eq!(one.state.take_rate(&owner, Duration::from_secs(1), 1).await, None);
    one.state.put_task(b"task".to_vec(), row(EventPosition::default(), b"row"));
    assert!(!one.state.flush_rows().await);
    assert_eq!((one.state.is_available(), one.state.counts()), (false, [1, 0]));
    // Nothing is lost when it answers again.
    one.cut(false);
    assert!(one.state.flush_rows().await);
    assert_eq!(one.state.task_row(b"task").await.as_deref(), Some(b"row".as_slice()));
}

#[tokio::test(start_paused = true)]
async fn rates_count_all_replicas() {
    let engine = rows_in_memory();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let owner = QuotaOwner::Caller("ann".into());
    let (interval, burst) = (Duration::from_millis(100), 3);
    for replica in [&one, &two, &one] {
        assert_eq!(replica.state.take_rate(&owner, interval, burst).await, None);
    }
    assert_eq!(two.state.take_rate(&owner, interval, burst).await, Some(interval));
    let other = QuotaOwner::Caller("bob".into());
    assert_eq!(two.state.take_rate(&other, interval, burst).await, None);
    advance(interval).await;
    assert_eq!(two.state.take_rate(&owner, interval, burst).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_push_is_claimed_once() {
    let engine = rows_in_memory();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    assert!(one.state.claim_push(b"push").await);
    assert!(!two.state.claim_push(b"push").await && !one.state.claim_push(b"push").await);
    assert!(two.state.claim_push(b"another").await);
    // Its client has not accepted it: the agent sends it again.
    one.state.release_push(b"push").await;
    assert!(two.state.claim_push(b"push").await);
    two.cut(true);
    assert!(two.state.claim_push(b"push").await);
}

/// A replica is ready with the rows of the others, and without them if the engine does not answer.
#[tokio::test(start_paused = true)]
async fn a_replica_starts_with_the_log_or_without_an_engine() {
    let engine = rows_in_memory();
    let one = Replica::new(&engine, 1);
    one.cut(true);
    assert!(!one.state.has_started());
    sleep(LOG_INTERVAL * 2).await;
    assert!(one.state.has_started());
    let two = Replica::new(&engine, 2);
    assert!(!two.state.has_started());
    sleep(LOG_INTERVAL * 2).await;
    assert!(two.state.has_started());
}

/// The events of a lease follow its first row, whatever a replica has counted for itself.
#[tokio::test(start_paused = true)]
async fn events_of_another_lease_follow_its_row() {
    let engine = rows_in_memory();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let lease = one.lease(EventPosition::default()).await.unwrap();
    lease.push(lease.next(), b"first").await;
    sleep(Duration::from_secs(1)).await;
    let before = lease.last();
    one.cut(true);
    sleep(Duration::from_secs(10)).await;
    let later = two.lease(before).await.unwrap();
    let at = later.last();
    two.state.put_task(b"task".to_vec(), row(at, b"row"));
    let next = later.next();
    later.push(next, b"second").await;
    assert!(two.state.flush_rows().await);
    sleep(Duration::from_secs(1)).await;
    one.cut(false);
    sleep(Duration::from_secs(4)).await;
    assert!(lease.is_lost());
    let mut events = one.state.watch_events(b"task").await;
    // The number fits, and is that of another lease.
    let news = events.read(before).await.unwrap();
    assert!(news.has_gap && news.events.is_empty());
    assert_eq!(news.row.as_deref(), Some(b"row".as_slice()));
    assert_eq!(events.read(at).await.unwrap().events, [(next, b"second".to_vec())]);
}

#[tokio::test(start_paused = true)]
async fn rows_are_found_by_key_owner_and_old_name() {
    let engine = rows_in_memory();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let later = EventPosition { epoch: 2, number: 7 };
    one.state.put_task(b"named".to_vec(), row(later, b"later"));
    // The row of the call, from before the agent named the task.
    one.state.put_task(b"local".to_vec(), row(EventPosition::default(), b"unnamed"));
    one.state.rename_task(b"local".to_vec(), b"named".to_vec());
    assert!(one.state.flush_rows().await);
    // An older row does not replace it.
    two.state.put_task(b"named".to_vec(), row(EventPosition { epoch: 1, number: 90 }, b"older"));
    assert!(two.state.flush_rows().await);
    for key in [b"named".as_slice(), b"local"] {
        assert_eq!(two.state.task_row(key).await.as_deref(), Some(b"later".as_slice()));
    }
    let mut rows = Vec::new();
    two.state.rows_of_owner("bob", |_| false, |row| rows.push(row.to_vec())).await;
    let hash = SharedState::task_hash(b"named");
    two.state.rows_of_owner("ann", |known| *known == *hash, |row| rows.push(row.to_vec())).await;
    assert!(!rows.contains(&b"later".to_vec()));
    two.state.rows_of_owner("ann", |_| false, |row| rows.push(row.to_vec())).await;
    assert!(rows.contains(&b"later".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn every_replica_learns_rows_of_tables() {
    let engine = rows_in_memory();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let learned = Arc::new(Mutex::new(Vec::new()));
    let into = learned.clone();
    two.state.set_learner(Box::new(move |table, key, value| {
        lock(&into).push((table, key.to_vec(), value.map(<[u8]>::to_vec)));
        None
    }));
    one.state.put_table_row(StoreTable::Sessions, b"s", Some(b"ended".to_vec()), TTL);
    assert!(one.state.flush_rows().await);
    one.state.put_table_row(StoreTable::Memory, b"m", None, TTL);
    assert!(one.state.flush_rows().await);
    sleep(LOG_INTERVAL).await;
    let wanted = [
        (StoreTable::Sessions, b"s".to_vec(), Some(b"ended".to_vec())),
        (StoreTable::Memory, b"m".to_vec(), None),
    ];
    assert_eq!(*lock(&learned), wanted);
}

/// A row that is not logged is read by its key; it does not take the announcement from one that waits.
#[tokio::test(start_paused = true)]
async fn unlogged_rows_are_read_by_key() {
    let engine = rows_in_memory();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let learned = Arc::new(Mutex::new(Vec::new()));
    let into = learned.clone();
    two.state.set_learner(Box::new(move |_, key, value| {
        lock(&into).push((key.to_vec(), value.map(<[u8]>::to_vec)));
        None
    }));
    one.state.put_unlogged_row(StoreTable::Batches, b"result", Some(b"1".to_vec()), TTL);
    one.state.put_table_row(StoreTable::Batches, b"state", Some(b"1".to_vec()), TTL);
    one.state.put_unlogged_row(StoreTable::Batches, b"state", Some(b"2".to_vec()), TTL);
    assert!(one.state.flush_rows().await);
    sleep(LOG_INTERVAL).await;
    assert_eq!(*lock(&learned), [(b"state".to_vec(), Some(b"2".to_vec()))]);
    let read = async |key: &[u8]| two.state.read_row(StoreTable::Batches, key).await;
    assert_eq!(read(b"result").await, SharedRow::Present(b"1".to_vec()));
    one.state.put_unlogged_row(StoreTable::Batches, b"result", None, TTL);
    assert!(one.state.flush_rows().await);
    assert_eq!((read(b"result").await, read(b"other").await), (SharedRow::Absent, SharedRow::Absent));
    two.cut(true);
    assert_eq!(read(b"state").await, SharedRow::Unknown);
    one.beat().await;
    assert!(one.state.is_alive(one.state.replica()).await && !one.state.is_alive(&[9; REPLICA_BYTES]).await);
    assert!(two.state.is_alive(&[9; REPLICA_BYTES]).await);
}

/// One step of a replica in the simulation.
#[derive(Debug, Clone, Copy)]
enum Step {
    Acquire,
    Renew,
    Append,
    Release,
    Claim,
    Cut,
    Heal,
    Forget,
    Wait,
}

/// A replica of the simulation: what it believes of its lease.
struct Believer {
    engine: Arc<LocalEngine>,
    epoch: Option<u64>,
    highest: u64,
}

/// Leases, fencing and claims under cuts, waits and lost data: no event of an earlier lease is written
/// after one of a later lease, numbers of events never repeat, and no claim is won twice.
#[tokio::test(start_paused = true)]
async fn simulated_replicas_keep_the_rules() {
    for seed in 0..300 {
        simulate(seed, &rows_in_memory()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn simulated_replicas_keep_the_rules_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 1000..1003 {
        let rows = LocalStore::new(Some(folder.path().join(seed.to_string())), "gateway");
        rows.open().unwrap();
        simulate(seed, &rows).await;
    }
}

#[expect(clippy::too_many_lines, clippy::cognitive_complexity, reason = "a branch for each step")]
async fn simulate(seed: u64, engine: &Arc<LocalStore>) {
    const STEPS: [Step; 9] = [
        Step::Acquire,
        Step::Renew,
        Step::Append,
        Step::Release,
        Step::Claim,
        Step::Cut,
        Step::Heal,
        Step::Forget,
        Step::Wait,
    ];
    let mut random = StdRng::seed_from_u64(seed);
    let (task, claim) = (StateKey::new(StateKind::Task, b"task"), StateKey::new(StateKind::Claim, b"turn"));
    let mut replicas: Vec<Believer> = (0..3)
        .map(|_| {
            let (engine, _) = engine_of(engine, b"replica");
            Believer { engine, epoch: None, highest: 0 }
        })
        .collect();
    // The naive model: all events that the engine has accepted, in order, and the winners.
    let (mut written, mut winners): (Vec<EventPosition>, usize) = (Vec::new(), 0);
    let mut forgotten = false;
    for _ in 0..200 {
        let number = random.gen_range(0..replicas.len());
        let holder = number.to_string();
        let last = written.last().map_or(0, |at| at.number);
        let replica = &mut replicas[number];
        match STEPS[random.gen_range(0..STEPS.len())] {
            Step::Acquire => {
                let request = LeaseRequest {
                    holder: &holder,
                    lifetime: Duration::from_secs(9),
                    takes_over: random.gen_bool(0.2),
                    above: replica.highest,
                    ttl: TTL,
                };
                if let Ok(LeaseOutcome::Granted { epoch, .. }) = replica.engine.acquire(&task, request).await
                {
                    assert!(forgotten || epoch > written.last().map_or(0, |at| at.epoch), "seed {seed}");
                    (replica.epoch, replica.highest) = (Some(epoch), epoch);
                }
            }
            Step::Renew => {
                if let Some(epoch) = replica.epoch {
                    let times = [Duration::from_secs(9), TTL];
                    if replica.engine.renew(&task, &holder, epoch, times).await == Ok(false) {
                        replica.epoch = None;
                    }
                }
            }
            Step::Append => {
                let Some(epoch) = replica.epoch else { continue };
                let at = EventPosition { epoch, number: last + 1 };
                let events = [seed.to_be_bytes().to_vec()];
                let new = NewEvents { first: at, events: &events, ttl: TTL };
                match replica.engine.append(&task, new).await {
                    Ok(true) => {
                        let before = written.last().copied().unwrap_or_default();
                        assert!(forgotten || at > before, "seed {seed}: {at:?} after {before:?}");
                        written.push(at);
                        replicas.iter_mut().for_each(|other| other.highest = other.highest.max(epoch));
                    }
                    Ok(false) => replica.epoch = None,
                    Err(error) => assert_eq!(error, EngineError::Disconnected),
                }
            }
            Step::Release => {
                if let Some(epoch) = replica.epoch.take() {
                    replica.engine.release(&task, &holder, epoch).await.unwrap_or_default();
                }
            }
            Step::Claim => {
                if replica.engine.set_if_absent(&claim, holder.as_bytes(), TTL).await == Ok(None) {
                    winners += 1;
                }
            }
            Step::Cut => replica.engine.availability.disconnect(),
            Step::Heal => _ = replica.engine.availability.mark_present(),
            Step::Forget if random.gen_bool(0.05) => {
                engine.forget();
                (forgotten, winners) = (true, 0);
            }
            Step::Forget => {}
            Step::Wait => advance(Duration::from_secs(random.gen_range(0..6))).await,
        }
        assert!(winners <= 1, "seed {seed}");
    }
}
