//! Replicas of one process on a paused clock, with a model of the engine in memory, each through a
//! link that can be cut; and a seeded simulation of leases, fencing and claims beside a naive model.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};

use super::engine::{
    EngineError, LeaseOutcome, LeaseRequest, LoggedRow, NewEvents, SharedRate, SharedTask, StateEngine,
    StateKey, StateKind, TaskRow, UnitRequest, UnitsHeld, Wake,
};
use super::*;
use crate::sync::lock;
use crate::tasks::{EventPosition, SharedRows as _, SharedTaskRow};

const TTL: Duration = Duration::from_secs(3600);

/// A replica, with the switch that cuts it from the engine.
pub(super) struct Replica {
    pub(super) state: Arc<SharedState>,
    pub(super) is_cut: Arc<AtomicBool>,
    pub(super) work: JoinHandle<()>,
}

impl Replica {
    pub(super) fn new(engine: &MemoryEngine, number: u8) -> Self {
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

/// Returns the shared states of replicas with one engine, for the tests of other modules.
pub(crate) fn replicas(count: u8) -> Vec<Arc<SharedState>> {
    let engine = MemoryEngine::default();
    (1..=count).map(|number| Replica::new(&engine, number).state).collect()
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
    // It ends without releasing the lease, which is not renewed any more.
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
    let engine = MemoryEngine::default();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let lease = one.lease(EventPosition::default()).await.unwrap();
    one.is_cut.store(true, Ordering::Release);
    sleep(Duration::from_secs(10)).await;
    let later = two.lease(EventPosition::default()).await.unwrap();
    one.is_cut.store(false, Ordering::Release);
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
    let engine = MemoryEngine::default();
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
async fn a_push_is_claimed_once() {
    let engine = MemoryEngine::default();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    assert!(one.state.claim_push(b"push").await);
    assert!(!two.state.claim_push(b"push").await && !one.state.claim_push(b"push").await);
    assert!(two.state.claim_push(b"another").await);
    // Its client has not accepted it: the agent sends it again.
    one.state.release_push(b"push").await;
    assert!(two.state.claim_push(b"push").await);
    two.is_cut.store(true, Ordering::Release);
    assert!(two.state.claim_push(b"push").await);
}

/// A replica is ready with the rows of the others, and without them if the engine does not answer.
#[tokio::test(start_paused = true)]
async fn a_replica_starts_with_the_log_or_without_an_engine() {
    let engine = MemoryEngine::default();
    let one = Replica::new(&engine, 1);
    one.is_cut.store(true, Ordering::Release);
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
    let engine = MemoryEngine::default();
    let (one, two) = (Replica::new(&engine, 1), Replica::new(&engine, 2));
    let lease = one.lease(EventPosition::default()).await.unwrap();
    lease.push(lease.next(), b"first").await;
    sleep(Duration::from_secs(1)).await;
    let before = lease.last();
    one.is_cut.store(true, Ordering::Release);
    sleep(Duration::from_secs(10)).await;
    let later = two.lease(before).await.unwrap();
    let at = later.last();
    two.state.put_task(b"task".to_vec(), row(at, b"row"));
    let next = later.next();
    later.push(next, b"second").await;
    assert!(two.state.flush_rows().await);
    sleep(Duration::from_secs(1)).await;
    one.is_cut.store(false, Ordering::Release);
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
    let engine = MemoryEngine::default();
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

/// A row that is not logged is read by its key; it does not take the announcement from one that waits.
#[tokio::test(start_paused = true)]
async fn unlogged_rows_are_read_by_key() {
    let engine = MemoryEngine::default();
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
    two.is_cut.store(true, Ordering::Release);
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

#[expect(clippy::too_many_lines, clippy::cognitive_complexity, reason = "a branch for each step")]
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

/// Events of one task that are kept, as in the engine.
const MOST_EVENTS: usize = 256;

#[derive(Default)]
struct TaskState {
    epoch: u64,
    last: EventPosition,
    version: u64,
    row: Option<TaskRow>,
    events: BTreeMap<EventPosition, Vec<u8>>,
    lease: Option<(String, u64, Instant)>,
}

/// Hashes of the tasks that a replica watches.
type WatchedHashes = Arc<Mutex<HashSet<Box<str>>>>;

#[derive(Default)]
struct Data {
    values: HashMap<StateKey, (Vec<u8>, Instant)>,
    rates: HashMap<StateKey, Instant>,
    units: HashMap<StateKey, HashMap<String, (usize, Instant)>>,
    tasks: HashMap<Box<str>, TaskState>,
    indexes: HashMap<StateKey, BTreeMap<String, u64>>,
    log: Vec<Vec<u8>>,
    links: Vec<(mpsc::Sender<Wake>, WatchedHashes)>,
}

/// The data of the engine, which replicas share.
#[derive(Clone, Default)]
pub(super) struct MemoryEngine(Arc<Mutex<Data>>);

/// The engine as one replica reaches it.
struct EngineLink {
    engine: MemoryEngine,
    is_cut: Arc<AtomicBool>,
    failures: AtomicU64,
    watched: WatchedHashes,
}

impl MemoryEngine {
    /// Returns a link to the engine, the receiver of its wake-ups, and the switch that cuts it.
    fn link(&self) -> (Arc<EngineLink>, mpsc::Receiver<Wake>, Arc<AtomicBool>) {
        let (wakes, woken) = mpsc::channel(1024);
        let (is_cut, watched) = (Arc::new(AtomicBool::new(false)), Arc::default());
        lock(&self.0).links.push((wakes, Arc::clone(&watched)));
        let link =
            EngineLink { engine: self.clone(), is_cut: is_cut.clone(), failures: AtomicU64::new(0), watched };
        (Arc::new(link), woken, is_cut)
    }

    /// Loses all data, as a server that restarts empty.
    pub(super) fn forget(&self) {
        let mut data = lock(&self.0);
        *data = Data { links: std::mem::take(&mut data.links), ..Data::default() };
        for (wakes, _) in &data.links {
            drop(wakes.try_send(Wake::Forgotten));
        }
    }
}

impl Data {
    fn wake(&self, task: &StateKey) {
        for (wakes, watched) in &self.links {
            if lock(watched).contains(&task.hash) {
                drop(wakes.try_send(Wake::Task(task.hash.clone())));
            }
        }
    }

    fn task(&mut self, task: &StateKey) -> &mut TaskState {
        self.tasks.entry(task.hash.clone()).or_default()
    }

    fn value(&mut self, key: &StateKey) -> Option<Vec<u8>> {
        self.values.get(key).filter(|(_, expires)| *expires > Instant::now()).map(|(value, _)| value.clone())
    }

    fn set(&mut self, key: &StateKey, value: &[u8], ttl: Duration) {
        self.values.insert(key.clone(), (value.to_vec(), Instant::now() + ttl));
    }
}

impl TaskState {
    fn holder(&self) -> Option<&(String, u64, Instant)> {
        self.lease.as_ref().filter(|(_, _, expires)| *expires > Instant::now())
    }
}

impl EngineLink {
    fn data(&self) -> Result<std::sync::MutexGuard<'_, Data>, EngineError> {
        if self.is_cut.load(Ordering::Acquire) {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(EngineError::Disconnected);
        }
        Ok(lock(&self.engine.0))
    }
}

#[async_trait]
impl StateEngine for EngineLink {
    fn is_available(&self) -> bool {
        !self.is_cut.load(Ordering::Acquire)
    }

    fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    async fn set_if_absent(
        &self,
        key: &StateKey,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let mut data = self.data()?;
        let present = data.value(key);
        if present.is_none() {
            data.set(key, value, ttl);
        }
        Ok(present)
    }

    async fn compare_and_set(
        &self,
        key: &StateKey,
        expected: &[u8],
        value: Option<&[u8]>,
        ttl: Duration,
    ) -> Result<bool, EngineError> {
        let mut data = self.data()?;
        if data.value(key).as_deref() != Some(expected) {
            return Ok(false);
        }
        match value {
            Some(value) => data.set(key, value, ttl),
            None => drop(data.values.remove(key)),
        }
        Ok(true)
    }

    async fn get(&self, key: &StateKey) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.data()?.value(key))
    }

    async fn set(&self, key: &StateKey, value: &[u8], ttl: Duration) -> Result<(), EngineError> {
        self.data()?.set(key, value, ttl);
        Ok(())
    }

    async fn take(&self, key: &StateKey, rate: SharedRate) -> Result<Option<Duration>, EngineError> {
        let mut data = self.data()?;
        let now = Instant::now();
        let due = data.rates.get(key).copied().unwrap_or(now).max(now) + rate.interval;
        let latest = now + rate.interval * rate.burst;
        if due > latest {
            return Ok(Some(due - latest));
        }
        data.rates.insert(key.clone(), due);
        Ok(None)
    }

    async fn hold_units(&self, key: &StateKey, request: UnitRequest<'_>) -> Result<UnitsHeld, EngineError> {
        let UnitRequest { holder, needed, wanted, limit, lifetime } = request;
        let (mut data, now) = (self.data()?, Instant::now());
        let held = data.units.entry(key.clone()).or_default();
        held.retain(|of, (_, expires)| of != holder && *expires > now);
        let others = held.values().map(|(units, _)| units).sum();
        let own = needed.max(wanted.min(limit.saturating_sub(others)));
        held.insert(holder.to_owned(), (own, now + lifetime));
        Ok(UnitsHeld { own, others })
    }

    async fn acquire(&self, task: &StateKey, request: LeaseRequest<'_>) -> Result<LeaseOutcome, EngineError> {
        let mut data = self.data()?;
        let state = data.task(task);
        let other = state.holder().filter(|(holder, ..)| holder != request.holder);
        let is_other = other.is_some();
        if let Some((_, _, expires)) = other.filter(|_| !request.takes_over) {
            return Ok(LeaseOutcome::Held(*expires - Instant::now()));
        }
        let epoch = state.epoch.max(request.above) + 1;
        state.epoch = epoch;
        state.lease = Some((request.holder.to_owned(), epoch, Instant::now() + request.lifetime));
        let last = state.last.number;
        if is_other {
            data.wake(task);
        }
        Ok(LeaseOutcome::Granted { epoch, last })
    }

    async fn renew(
        &self,
        task: &StateKey,
        holder: &str,
        epoch: u64,
        [lifetime, _]: [Duration; 2],
    ) -> Result<bool, EngineError> {
        let mut data = self.data()?;
        let state = data.task(task);
        let is_own = state.holder().is_some_and(|(of, at, _)| of == holder && *at == epoch);
        if !is_own && (state.holder().is_some() || state.epoch > epoch) {
            return Ok(false);
        }
        state.epoch = epoch;
        state.lease = Some((holder.to_owned(), epoch, Instant::now() + lifetime));
        Ok(true)
    }

    async fn release(&self, task: &StateKey, holder: &str, epoch: u64) -> Result<(), EngineError> {
        let mut data = self.data()?;
        let state = data.task(task);
        if state.holder().is_some_and(|(of, at, _)| of == holder && *at == epoch) {
            state.lease = None;
            data.wake(task);
        }
        Ok(())
    }

    async fn append(&self, task: &StateKey, new: NewEvents<'_>) -> Result<bool, EngineError> {
        let mut data = self.data()?;
        let state = data.task(task);
        if state.epoch > new.first.epoch {
            return Ok(false);
        }
        state.epoch = new.first.epoch;
        for (number, event) in (new.first.number..).zip(new.events) {
            let at = EventPosition { epoch: new.first.epoch, number };
            if at > state.last {
                state.events.insert(at, event.clone());
                state.last = at;
            }
        }
        while state.events.len() > MOST_EVENTS {
            state.events.pop_first();
        }
        data.wake(task);
        Ok(true)
    }

    async fn read(&self, task: &StateKey, after: EventPosition) -> Result<SharedTask, EngineError> {
        let mut data = self.data()?;
        let state = data.task(task);
        let events = state.events.iter().filter(|(at, _)| **at > after);
        Ok(SharedTask {
            events: events.map(|(at, event)| (*at, event.clone())).collect(),
            last: state.last,
            version: state.version,
            lease: state.holder().map(|(_, _, expires)| *expires - Instant::now()),
        })
    }

    async fn put_row(
        &self,
        task: &StateKey,
        row: &TaskRow,
        _ttl: Duration,
    ) -> Result<Option<TaskRow>, EngineError> {
        let mut data = self.data()?;
        let state = data.task(task);
        if let Some(later) = state.row.as_ref().filter(|present| present.at > row.at) {
            return Ok(Some(later.clone()));
        }
        state.row = Some(row.clone());
        state.version += 1;
        data.wake(task);
        Ok(None)
    }

    async fn row(&self, task: &StateKey) -> Result<Option<TaskRow>, EngineError> {
        Ok(self.data()?.task(task).row.clone())
    }

    async fn index(
        &self,
        key: &StateKey,
        member: &str,
        score: u64,
        _ttl: Duration,
    ) -> Result<(), EngineError> {
        self.data()?.indexes.entry(key.clone()).or_default().insert(member.to_owned(), score);
        Ok(())
    }

    async fn indexed(&self, key: &StateKey, most: usize) -> Result<Vec<String>, EngineError> {
        let data = self.data()?;
        let mut members: Vec<_> = data.indexes.get(key).into_iter().flatten().collect();
        members.sort_by_key(|(_, score)| std::cmp::Reverse(**score));
        Ok(members.into_iter().take(most).map(|(member, _)| member.clone()).collect())
    }

    async fn log(&self, row: &[u8]) -> Result<(), EngineError> {
        let mut data = self.data()?;
        data.log.push(row.to_vec());
        for (wakes, _) in &data.links {
            drop(wakes.try_send(Wake::Log));
        }
        Ok(())
    }

    async fn logged(&self, after: Option<&str>, most: usize) -> Result<Vec<LoggedRow>, EngineError> {
        let first: usize = after.map_or(0, |after| after.parse::<usize>().unwrap_or_default() + 1);
        let data = self.data()?;
        let rows = data.log.iter().enumerate().skip(first).take(most);
        Ok(rows.map(|(at, row)| LoggedRow { position: at.to_string().into(), row: row.clone() }).collect())
    }

    async fn watch(&self, task: &StateKey) -> Result<(), EngineError> {
        lock(&self.watched).insert(task.hash.clone());
        self.data().map(drop)
    }

    async fn unwatch(&self, task: &StateKey) -> Result<(), EngineError> {
        lock(&self.watched).remove(&task.hash);
        self.data().map(drop)
    }
}
