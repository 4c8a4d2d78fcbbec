//! Quotas of callers among replicas: the units that this replica holds at the engine.
//!
//! The engine knows for each quota how many units each replica holds, and grants no more than the limit
//! in all. A replica uses the units that it holds without asking; it asks for one more when these are in
//! use, and gives back what it has not needed for about a second. Near the limit it gives each unit back
//! as soon as it is free, so that a replica holds none that another one needs.
//!
//! Units of a replica that has ended expire. Without an engine each replica counts alone; it reports
//! what it uses when the engine answers again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};
use tracing::debug;

use super::engine::{EngineError, StateKey, StateKind, UnitRequest, UnitsHeld};
use super::{SharedState, owner_name};
use crate::quota::QuotaOwner;
use crate::sync::lock;

/// Time for which units are held without a sign of life of their replica, and the interval of those signs: as for leases.
const LIFETIME: Duration = Duration::from_secs(9);
const RENEW_INTERVAL: Duration = Duration::from_secs(3);
/// Interval in which units that are not in use are given back.
const GIVE_BACK_INTERVAL: Duration = Duration::from_secs(1);
/// The same near a limit. A moment, so that one request gives back the units of several calls.
const PROMPT_INTERVAL: Duration = Duration::from_millis(10);
/// Pause after which a request that was refused asks once more.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Part of a limit up to which units are kept for a moment.
const ROOMY_PART: usize = 4;
/// Time for which a quota that is used up is not asked for again.
const REFUSAL_TIME: Duration = Duration::from_millis(100);
/// Requests to the engine at once.
const MOST_IN_FLIGHT: usize = 64;
/// Quotas of which this replica keeps a record.
const MOST_QUOTAS: usize = 100_000;

/// Kind of use of which a quota counts all replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SharedUse {
    /// Calls under way.
    Calls,
    /// Open streams.
    Streams,
    /// Live tasks.
    Tasks,
}

/// Counts the use of quotas at this replica.
pub(crate) trait UseCounter: Send + Sync {
    /// Returns the use of one caller.
    fn used(&self, owner: &QuotaOwner, of: SharedUse) -> usize;

    /// Returns the use of all callers that use something.
    fn all_used(&self) -> Vec<(QuotaOwner, SharedUse, usize)>;
}

/// A quota of one caller, as this replica counts it.
pub(crate) trait CallerQuota: Sync {
    /// Right to use one unit.
    type Permit: Send;

    /// Returns the quota.
    fn name(&self) -> (&QuotaOwner, SharedUse);

    /// Returns the units that the caller may use at all replicas together.
    fn limit(&self) -> usize;

    /// Acquires a permit if fewer than `most` units are in use here.
    fn acquire(&self, most: usize) -> Option<Self::Permit>;
}

/// Notified of units that are free again, while that is of interest.
#[derive(Default)]
pub(crate) struct FreedUnits {
    /// True while quotas are near their limits.
    is_awaited: AtomicBool,
    freed: Notify,
}

impl FreedUnits {
    /// Records that a unit is free again.
    pub(crate) fn note(&self) {
        if self.is_awaited.load(Ordering::Relaxed) {
            self.freed.notify_one();
        }
    }
}

/// The units that this replica holds.
#[derive(Default)]
pub(super) struct QuotaLedger {
    counter: OnceLock<Box<dyn UseCounter>>,
    held: Mutex<HashMap<(QuotaOwner, SharedUse), HeldUnits>>,
    freed: Arc<FreedUnits>,
}

/// The units of one quota that this replica holds.
struct HeldUnits {
    units: usize,
    /// The limit, as it was when more was asked for; 0: not yet.
    limit: usize,
    /// True while all replicas together hold a small part of the limit.
    is_roomy: bool,
    /// Time of the last answer of the engine.
    told: Option<Instant>,
    /// Time at which the quota was used up.
    refused: Option<Instant>,
    /// Held while the engine is asked.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// A quota of which the engine is told what is in use.
struct DueQuota {
    owner: QuotaOwner,
    of: SharedUse,
    limit: usize,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl HeldUnits {
    fn new() -> Self {
        Self { units: 0, limit: 0, is_roomy: false, told: None, refused: None, turn: Arc::default() }
    }

    /// Returns true if the quota was used up a moment ago.
    fn was_refused(&self) -> bool {
        self.refused.is_some_and(|refused| refused.elapsed() < REFUSAL_TIME)
    }

    /// Returns true if units that become free are to be given back at once: the limit is near.
    fn is_tight(&self) -> bool {
        self.units > 0 && !self.is_roomy
    }
}

impl QuotaLedger {
    /// Returns the use of a caller at this replica.
    fn used(&self, owner: &QuotaOwner, of: SharedUse) -> usize {
        self.counter.get().map_or(0, |counter| counter.used(owner, of))
    }

    /// Acquires a permit of the units that this replica holds.
    fn acquire<Q: CallerQuota>(&self, quota: &Q) -> Option<Q::Permit> {
        let (owner, of) = quota.name();
        // Under the lock: units that are given back must not be acquired meanwhile.
        let held = lock(&self.held);
        let units = held.get(&(owner.clone(), of)).map_or(0, |held| held.units);
        quota.acquire(units.min(quota.limit()))
    }

    /// Returns the units of a quota that this replica holds, and true if it was used up a moment ago.
    fn present(&self, owner: &QuotaOwner, of: SharedUse) -> (usize, bool) {
        let held = lock(&self.held);
        held.get(&(owner.clone(), of)).map_or((0, false), |held| (held.units, held.was_refused()))
    }

    /// Returns the right to ask for more of a quota; `None` if there is no room for its record.
    fn turn(&self, owner: &QuotaOwner, of: SharedUse) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let mut held = lock(&self.held);
        let key = (owner.clone(), of);
        if held.len() >= MOST_QUOTAS && !held.contains_key(&key) {
            return None;
        }
        Some(held.entry(key).or_insert_with(HeldUnits::new).turn.clone())
    }

    /// Records the answer of the engine; `wanted` units were asked for.
    fn note(&self, due: &DueQuota, wanted: usize, answer: UnitsHeld) {
        let UnitsHeld { own, others } = answer;
        let mut held = lock(&self.held);
        let entry = held.entry((due.owner.clone(), due.of)).or_insert_with(HeldUnits::new);
        let now = Instant::now();
        entry.units = own;
        entry.limit = due.limit;
        entry.is_roomy = own.saturating_add(others).saturating_mul(ROOMY_PART) <= due.limit;
        entry.told = Some(now);
        entry.refused = (own < wanted).then_some(now);
        if entry.is_tight() {
            self.freed.is_awaited.store(true, Ordering::Relaxed);
        }
    }

    /// Lowers the units of all quotas to those in use. Returns the quotas of which the engine is to be told.
    fn lower_all(&self) -> Vec<DueQuota> {
        let counted = self.counter.get().map(|counter| counter.all_used()).unwrap_or_default();
        let mut counted: HashMap<_, _> =
            counted.into_iter().map(|(owner, of, used)| ((owner, of), used)).collect();
        let mut due = Vec::new();
        let mut held = lock(&self.held);
        held.retain(|key, entry| {
            let mut used = counted.remove(key).unwrap_or_default();
            let is_renewed = entry.told.is_some_and(|told| told.elapsed() < RENEW_INTERVAL);
            if entry.units != used {
                // Under the lock it is exact.
                used = self.used(&key.0, key.1);
            }
            if entry.units != used || (used > 0 && !is_renewed) {
                entry.units = entry.units.min(used);
                due.push(DueQuota::of(key, entry));
            }
            used > 0 || entry.was_refused() || Arc::strong_count(&entry.turn) > 1
        });
        // In use since the engine did not answer.
        for key in counted.into_keys() {
            if held.len() >= MOST_QUOTAS {
                break;
            }
            let entry = held.entry(key.clone()).or_insert_with(HeldUnits::new);
            due.push(DueQuota::of(&key, entry));
        }
        self.freed.is_awaited.store(held.values().any(HeldUnits::is_tight), Ordering::Relaxed);
        due
    }

    /// Lowers the units of quotas near their limits to those in use.
    fn lower_tight(&self) -> Vec<DueQuota> {
        let mut due = Vec::new();
        for (key, entry) in lock(&self.held).iter_mut().filter(|(_, entry)| entry.is_tight()) {
            let used = self.used(&key.0, key.1);
            if entry.units > used {
                entry.units = used;
                due.push(DueQuota::of(key, entry));
            }
        }
        due
    }

    /// Makes the engine be told of everything again, as it has lost its data.
    pub(super) fn forget_answers(&self) {
        lock(&self.held).values_mut().for_each(|entry| entry.told = None);
    }
}

impl DueQuota {
    fn of((owner, of): &(QuotaOwner, SharedUse), entry: &HeldUnits) -> Self {
        Self { owner: owner.clone(), of: *of, limit: entry.limit, turn: entry.turn.clone() }
    }
}

impl SharedState {
    /// Sets the counter of the use at this replica, once. Returns the note of freed units.
    pub(crate) fn set_use_counter(&self, counter: Box<dyn UseCounter>) -> Arc<FreedUnits> {
        if self.quotas.counter.set(counter).is_err() {
            debug!("use of callers is counted already");
        }
        self.quotas.freed.clone()
    }

    /// Acquires a unit of a caller's quota, of which all replicas together use no more than the limit;
    /// `None` if it is used up. Waits for the engine, at most `state.timeout`, if this replica holds too
    /// few; without an answer the limit counts for this replica alone.
    pub(crate) async fn acquire_unit<Q: CallerQuota>(&self, quota: &Q) -> Option<Q::Permit> {
        if let Some(permit) = self.quotas.acquire(quota) {
            return Some(permit);
        }
        match timeout(self.timeout, self.ask_for_unit(quota)).await {
            Ok(Ok(permit)) => permit,
            // The engine did answer, and requests before this one wait to ask it once more.
            Err(_) if self.was_refused(quota) => None,
            Ok(Err(_)) | Err(_) => quota.acquire(quota.limit()),
        }
    }

    fn was_refused<Q: CallerQuota>(&self, quota: &Q) -> bool {
        let (owner, of) = quota.name();
        self.quotas.present(owner, of).1
    }

    async fn ask_for_unit<Q: CallerQuota>(&self, quota: &Q) -> Result<Option<Q::Permit>, EngineError> {
        if !self.is_available() {
            return Err(EngineError::Disconnected);
        }
        let ((owner, of), limit) = (quota.name(), quota.limit());
        let busy = || EngineError::Busy("too many quotas".to_owned());
        let turn = self.quotas.turn(owner, of).ok_or_else(busy)?;
        let _turn = turn.lock().await;
        // Another request may have asked meanwhile.
        if let Some(permit) = self.quotas.acquire(quota) {
            return Ok(Some(permit));
        }
        if self.was_refused(quota) {
            return Ok(None);
        }
        let due = DueQuota { owner: owner.clone(), of, limit, turn: turn.clone() };
        for pause in [Some(RETRY_PAUSE), None] {
            // No fewer than are acquired here while the engine answers.
            let needed = self.quotas.present(owner, of).0.max(self.quotas.used(owner, of));
            let others = match needed < limit {
                true => self.hold_units(&due, needed, needed + 1).await?,
                false => 0,
            };
            let permit = self.quotas.acquire(quota);
            match pause.filter(|_| permit.is_none() && others > 0) {
                // Another replica gives back in a moment what is free there.
                Some(pause) => sleep(pause).await,
                None => return Ok(permit),
            }
        }
        Ok(None)
    }

    /// Tells the engine what this replica needs of a quota and what it wants, and records the answer.
    /// Returns the units of the other replicas.
    async fn hold_units(&self, due: &DueQuota, needed: usize, wanted: usize) -> Result<usize, EngineError> {
        let name = format!("{}\0{:?}", owner_name(&due.owner), due.of);
        let key = StateKey::new(StateKind::Units, name.as_bytes());
        let (holder, limit) = (self.holder(), due.limit);
        let request = UnitRequest { holder: &holder, needed, wanted, limit, lifetime: LIFETIME };
        let answer = self.engine.hold_units(&key, request).await?;
        self.quotas.note(due, wanted, answer);
        Ok(answer.others)
    }

    /// Gives units back that are not in use, and renews the others. Runs until it is dropped.
    pub(super) async fn keep_units(&self) {
        let mut ticks = tokio::time::interval(GIVE_BACK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let due = tokio::select! {
                biased;
                _ = ticks.tick() => self.quotas.lower_all(),
                () = self.quotas.freed.freed.notified() => {
                    sleep(PROMPT_INTERVAL).await;
                    self.quotas.lower_tight()
                }
            };
            if !self.is_available() {
                continue;
            }
            for some in due.chunks(MOST_IN_FLIGHT) {
                join_all(some.iter().map(|due| self.tell_use(due))).await;
            }
        }
    }

    async fn tell_use(&self, due: &DueQuota) {
        // A request that asks at present tells it, too.
        let Ok(_turn) = due.turn.try_lock() else { return };
        let (units, _) = self.quotas.present(&due.owner, due.of);
        let used = units.max(self.quotas.used(&due.owner, due.of));
        if let Err(error) = self.hold_units(due, used, used).await {
            debug!(%error, "failed to tell use of quota");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};
    use tokio::time::advance;

    use super::super::local_store::LocalStore;
    use super::super::tests::{Replica, rows_in_memory};
    use super::*;

    /// The calls of one caller at one replica.
    struct Calls {
        owner: QuotaOwner,
        used: Arc<AtomicUsize>,
        freed: OnceLock<Arc<FreedUnits>>,
        limit: usize,
    }

    struct Call(Arc<AtomicUsize>, Option<Arc<FreedUnits>>);

    impl Drop for Call {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::AcqRel);
            if let Some(freed) = &self.1 {
                freed.note();
            }
        }
    }

    struct Counter(QuotaOwner, Arc<AtomicUsize>);

    impl UseCounter for Counter {
        fn used(&self, owner: &QuotaOwner, of: SharedUse) -> usize {
            if *owner == self.0 && of == SharedUse::Calls { self.1.load(Ordering::Acquire) } else { 0 }
        }

        fn all_used(&self) -> Vec<(QuotaOwner, SharedUse, usize)> {
            let used = self.1.load(Ordering::Acquire);
            if used == 0 { Vec::new() } else { vec![(self.0.clone(), SharedUse::Calls, used)] }
        }
    }

    impl CallerQuota for Calls {
        type Permit = Call;

        fn name(&self) -> (&QuotaOwner, SharedUse) {
            (&self.owner, SharedUse::Calls)
        }

        fn limit(&self) -> usize {
            self.limit
        }

        fn acquire(&self, most: usize) -> Option<Call> {
            let more = |used: usize| Some(used + 1).filter(|used| *used <= most);
            self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
            Some(Call(self.used.clone(), self.freed.get().cloned()))
        }
    }

    /// A replica at which one caller calls.
    struct Caller {
        replica: Replica,
        calls: Calls,
    }

    impl Caller {
        fn new(engine: &Arc<LocalStore>, number: u8, limit: usize) -> Self {
            let (replica, owner) = (Replica::new(engine, number), QuotaOwner::Caller("ann".into()));
            let used = Arc::<AtomicUsize>::default();
            let freed = replica.state.set_use_counter(Box::new(Counter(owner.clone(), used.clone())));
            Self { replica, calls: Calls { owner, used, freed: freed.into(), limit } }
        }

        async fn call(&self) -> Option<Call> {
            self.replica.state.acquire_unit(&self.calls).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_is_that_of_all_replicas() {
        let engine = rows_in_memory();
        let [one, two, three] = [1, 2, 3].map(|number| Caller::new(&engine, number, 3));
        let (first, second) = (one.call().await, two.call().await);
        let third = three.call().await;
        assert!(first.is_some() && second.is_some() && third.is_some());
        for caller in [&one, &two, &three] {
            assert!(caller.call().await.is_none());
        }
        // Of a small limit no replica keeps a unit that it does not use.
        drop(second);
        sleep(REFUSAL_TIME).await;
        assert!(three.call().await.is_some());
        // A replica without the engine counts alone.
        two.replica.cut(true);
        let alone = [two.call().await, two.call().await, two.call().await];
        assert!(alone.iter().all(Option::is_some) && two.call().await.is_none());
        // Its calls count for all when the engine answers it again.
        two.replica.cut(false);
        drop((first, third));
        sleep(GIVE_BACK_INTERVAL * 2).await;
        assert!(one.call().await.is_none());
        drop(alone);
        sleep(GIVE_BACK_INTERVAL * 2).await;
        assert!(one.call().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn units_of_a_dead_replica_expire() {
        let engine = rows_in_memory();
        let [one, two] = [1, 2].map(|number| Caller::new(&engine, number, 2));
        let held = [one.call().await, one.call().await];
        assert!(held.iter().all(Option::is_some));
        // It renews what it uses.
        sleep(LIFETIME * 3).await;
        assert!(two.call().await.is_none());
        one.replica.work.abort();
        sleep(LIFETIME).await;
        assert!(two.call().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn far_from_the_limit_the_engine_is_asked_once() {
        let engine = rows_in_memory();
        let [one, two] = [1, 2].map(|number| Caller::new(&engine, number, 100));
        drop(one.call().await);
        // Held without use for a moment: calls need no engine.
        one.replica.cut(true);
        let failures = one.replica.state.failures();
        for _ in 0..10 {
            assert!(one.call().await.is_some());
        }
        assert_eq!(one.replica.state.failures(), failures);
        one.replica.cut(false);
        sleep(GIVE_BACK_INTERVAL * 2).await;
        let mut all = Vec::new();
        for _ in 0..100 {
            all.extend(two.call().await);
        }
        assert_eq!(all.len(), 100, "the other one has given back its unit");
    }

    /// Replicas with random calls and ends, dead replicas, a lost engine and lost data: while each reaches the
    /// engine and it has its data, all together never use more than the limit, and a free limit is used.
    #[tokio::test(start_paused = true)]
    async fn simulated_callers_stay_within_the_limit() {
        for seed in 0..50 {
            simulate(seed).await;
        }
    }

    #[expect(clippy::cognitive_complexity, reason = "a branch for each step")]
    async fn simulate(seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let (engine, limit) = (rows_in_memory(), random.gen_range(1..12));
        let callers = [1, 2, 3].map(|number| Caller::new(&engine, number, limit));
        let mut calls: Vec<Call> = Vec::new();
        // While it is true the units at the engine may be fewer than those in use.
        let mut is_disturbed = false;
        for _ in 0..150 {
            let caller = &callers[random.gen_range(0..callers.len())];
            match random.gen_range(0..20) {
                0..9 => {
                    calls.extend(caller.call().await);
                    assert!(is_disturbed || calls.len() <= limit, "seed {seed}: {} of {limit}", calls.len());
                }
                9..16 if !calls.is_empty() => drop(calls.swap_remove(random.gen_range(0..calls.len()))),
                16 => advance(Duration::from_millis(random.gen_range(1..3000))).await,
                17 if random.gen_bool(0.2) => {
                    caller.replica.cut(true);
                    is_disturbed = true;
                }
                18 if random.gen_bool(0.2) => {
                    engine.forget();
                    is_disturbed = true;
                }
                _ => {}
            }
            if is_disturbed && random.gen_bool(0.2) {
                callers.iter().for_each(|caller| caller.replica.cut(false));
                sleep(GIVE_BACK_INTERVAL * 3).await;
                is_disturbed = calls.len() > limit;
            }
        }
        callers.iter().for_each(|caller| caller.replica.cut(false));
        calls.clear();
        sleep(GIVE_BACK_INTERVAL * 3).await;
        for _ in 0..limit {
            calls.extend(callers[2].call().await);
        }
        assert_eq!((calls.len(), callers[0].call().await.is_none()), (limit, true), "seed {seed}");
    }
}
