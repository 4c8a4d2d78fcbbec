//! Replicas of one process with the engine in memory, on a paused clock; and a seeded simulation of
//! leases, fencing and claims beside a naive model.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep};

use super::engine::{EngineError, LeaseOutcome, LeaseRequest, NewEvents, StateEngine as _, StateKey, StateKind};
use super::memory_engine::{EngineLink, MemoryEngine};
use super::*;
use crate::tasks::{EventPosition, SharedRows as _, SharedTaskRow};

const TTL: Duration = Duration::from_secs(3600);

/// A replica, with the switch that cuts it from the engine.
struct Replica {
    state: Arc<SharedState>,
    is_cut: Arc<AtomicBool>,
    work: JoinHandle<()>,
}

impl Replica {
    fn new(engine: &MemoryEngine, number: u8) -> Self {
        let (link, wakes, is_cut) = engine.link();
        let sealer = Sealer::new([b"a secret that all replicas have".as_slice()]).unwrap();
        let state = Arc::new(SharedState::with(link, wakes, [number; REPLICA_BYTES], sealer, TTL));
        let work = tokio::spawn(state.clone().run());
        Self { state, is_cut, work }
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

fn row(at: EventPosition, value: &[u8]) -> SharedTaskRow {
    SharedTaskRow { at, owners: vec!["ann".into()], changed: 1, value: value.to_vec() }
}

#[tokio::test(start_paused = true)]
async fn one_replica_follows_until_it_ends() {
    let engine = MemoryEngine::default();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let lease = one.lease(EventPosition::default()).await.unwrap();
    for _ in 0..20 {
        assert!(two.lease(EventPosition::default()).await.is_none());
        sleep(Duration::from_secs(2)).await;
    }
    // It ends without a word: nobody renews the lease.
    one.work.abort();
    std::mem::forget(lease);
    sleep(Duration::from_secs(9)).await;
    assert!(two.lease(EventPosition::default()).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_free_at_once_after_a_drain() {
    let engine = MemoryEngine::default();
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
    let engine = MemoryEngine::default();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let lease = one.lease(EventPosition::default()).await.unwrap();
    let mut events = two.state.watch_events(b"task").await;
    let (mut position, mut seen) = (EventPosition::default(), Vec::new());
    for number in 0..300_u32 {
        lease.push(&number.to_be_bytes()).await;
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
    let engine = MemoryEngine::default();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let lease = one.lease(EventPosition::default()).await.unwrap();
    one.is_cut.store(true, Ordering::Release);
    sleep(Duration::from_secs(10)).await;
    let later = two.lease(EventPosition::default()).await.unwrap();
    one.is_cut.store(false, Ordering::Release);
    lease.push(b"late").await;
    lease.lost().await;
    later.push(b"timely").await;
    sleep(Duration::from_secs(1)).await;
    let mut events = two.state.watch_events(b"task").await;
    let read = events.read(EventPosition::default()).await.unwrap();
    assert_eq!(read.events.into_iter().map(|(_, event)| event).collect::<Vec<_>>(), [b"timely".to_vec()]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_forgot_gets_the_lease_back() {
    let engine = MemoryEngine::default();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let lease = one.lease(EventPosition::default()).await.unwrap();
    lease.push(b"first").await;
    sleep(Duration::from_secs(1)).await;
    engine.forget();
    sleep(Duration::from_secs(4)).await;
    assert!(!lease.is_lost() && two.lease(EventPosition::default()).await.is_none());
    // The watcher sees the gap, and goes on after it.
    let mut events = two.state.watch_events(b"task").await;
    let at = lease.push(b"second").await;
    sleep(Duration::from_secs(1)).await;
    let read = events.read(EventPosition { number: at.number - 1, ..at }).await.unwrap();
    assert_eq!(read.events, [(at, b"second".to_vec())]);
}

#[tokio::test(start_paused = true)]
async fn answers_are_claimed_once() {
    let engine = MemoryEngine::default();
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
    let engine = MemoryEngine::default();
    let one = Replica::new(&engine, 1);
    one.is_cut.store(true, Ordering::Release);
    assert_eq!(one.state.claim_answer(b"task", [1; 16], [2; 16]).await, SharedClaim::Unknown);
    assert!(matches!(one.state.lease(b"task", EventPosition::default(), false).await, LeaseGrant::Unknown));
    let owner = QuotaOwner::Caller("ann".into());
    assert_eq!(one.state.take_rate(&owner, Duration::from_secs(1), 1).await, None);
    one.state.put_task(b"task".to_vec(), row(EventPosition::default(), b"row"));
    assert!(!one.state.flush_rows().await);
    assert_eq!((one.state.is_available(), one.state.counts()), (false, [1, 0]));
    // Nothing is lost when it answers again.
    one.is_cut.store(false, Ordering::Release);
    assert!(one.state.flush_rows().await);
    assert_eq!(one.state.task_row(b"task").await.as_deref(), Some(b"row".as_slice()));
}

#[tokio::test(start_paused = true)]
async fn rates_count_all_replicas() {
    let engine = MemoryEngine::default();
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
async fn rows_are_found_by_key_owner_and_old_name() {
    let engine = MemoryEngine::default();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let later = EventPosition { epoch: 2, number: 7 };
    one.state.put_task(b"named".to_vec(), row(later, b"later"));
    one.state.rename_task(b"local".to_vec(), b"named".to_vec());
    assert!(one.state.flush_rows().await);
    // An older row does not replace it.
    two.state.put_task(b"named".to_vec(), row(EventPosition { epoch: 1, number: 90 }, b"older"));
    assert!(two.state.flush_rows().await);
    for key in [b"named".as_slice(), b"local"] {
        assert_eq!(two.state.task_row(key).await.as_deref(), Some(b"later".as_slice()));
    }
    assert_eq!(two.state.rows_of_owner("ann", |_| false).await, [b"later".to_vec()]);
    let hash = SharedState::task_hash(b"named");
    assert!(two.state.rows_of_owner("ann", |known| *known == *hash).await.is_empty());
    assert!(two.state.rows_of_owner("bob", |_| false).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_replica_learns_rows_of_tables() {
    let engine = MemoryEngine::default();
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
    link: Arc<EngineLink>,
    is_cut: Arc<AtomicBool>,
    epoch: Option<u64>,
    highest: u64,
}

/// Leases, fencing and claims under cuts, waits and lost data: no event of an earlier lease is written
/// after one of a later lease, numbers of events never repeat, and no claim is won twice.
#[tokio::test(start_paused = true)]
async fn simulated_replicas_keep_the_rules() {
    for seed in 0..300 {
        simulate(seed).await;
    }
}

async fn simulate(seed: u64) {
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
    let engine = MemoryEngine::default();
    let (task, claim) = (StateKey::new(StateKind::Task, b"task"), StateKey::new(StateKind::Claim, b"turn"));
    let mut replicas: Vec<Believer> = (0..3)
        .map(|_| {
            let (link, _, is_cut) = engine.link();
            Believer { link, is_cut, epoch: None, highest: 0 }
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
                if let Ok(LeaseOutcome::Granted { epoch, .. }) = replica.link.acquire(&task, request).await {
                    assert!(forgotten || epoch > written.last().map_or(0, |at| at.epoch), "seed {seed}");
                    (replica.epoch, replica.highest) = (Some(epoch), epoch);
                }
            }
            Step::Renew => {
                if let Some(epoch) = replica.epoch {
                    let times = [Duration::from_secs(9), TTL];
                    if replica.link.renew(&task, &holder, epoch, times).await == Ok(false) {
                        replica.epoch = None;
                    }
                }
            }
            Step::Append => {
                let Some(epoch) = replica.epoch else { continue };
                let at = EventPosition { epoch, number: last + 1 };
                let events = [seed.to_be_bytes().to_vec()];
                let new = NewEvents { first: at, events: &events, ttl: TTL };
                match replica.link.append(&task, new).await {
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
                    replica.link.release(&task, &holder, epoch).await.unwrap_or_default();
                }
            }
            Step::Claim => {
                if replica.link.set_if_absent(&claim, holder.as_bytes(), TTL).await == Ok(None) {
                    winners += 1;
                }
            }
            Step::Cut => replica.is_cut.store(true, Ordering::Release),
            Step::Heal => replica.is_cut.store(false, Ordering::Release),
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
