//! The engine in Valkey or Redis (7.0 or later), by scripts that run there.
//!
//! One connection carries all commands (RESP3, multiplexed), and the wake-ups. Every command ends
//! within the timeout. After one that did not, the engine counts as absent, and commands fail at
//! once, until a ping succeeds: a slow engine must not slow each request. All keys of a task have one
//! hash tag, so that a cluster keeps them together.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    FromRedisValue, IntoConnectionInfo, Pipeline, ProtocolVersion, PushInfo, PushKind, RedisError,
    RedisResult, Script, ScriptInvocation, ServerErrorKind, TlsCertificates, TlsMode, Value, cmd,
};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::engine::{
    Availability, BEAT_INTERVAL, BEAT_TTL, EngineError, LOG_TTL, LeaseOutcome, LeaseRequest, LoggedRow,
    MOST_EVENTS, MOST_INDEXED, MOST_LOGGED, NewEvents, SCHEMA, SharedRate, SharedTask, StateEngine, StateKey,
    TaskRow, UnitRequest, UnitsHeld, Wake,
};
use crate::config::{Pem, Secret, State, StateTopology};
use crate::sync::lock;
use crate::tasks::EventPosition;
use crate::timing::{Backoff, with_jitter};

/// Heartbeats without an answer after which the connection is made anew.
const MOST_LOST_BEATS: u32 = 5;
/// Short: until then streams are read twice.
const RECONNECT: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(1) };
/// Longest time to live: a year, in milliseconds.
const MOST_MILLIS: u64 = 366 * 24 * 3600 * 1000;
/// The name of the log: no hash of a task.
const LOG: &str = "log";
/// Position before every row of the log.
const LOG_START: &str = "0-0";

/// The scripts, which their hash names at the engine.
struct Scripts {
    acquire: Script,
    renew: Script,
    release: Script,
    append: Script,
    read: Script,
    put_row: Script,
    take: Script,
    hold_units: Script,
    compare_and_set: Script,
}

impl Scripts {
    /// Returns the scripts. A cluster tells only the nodes of a task's keys of a change.
    fn new(is_cluster: bool) -> Self {
        let script = |text: &str| match is_cluster {
            true => Script::new(&text.replace("'PUBLISH'", "'SPUBLISH'")),
            false => Script::new(text),
        };
        Self {
            acquire: script(include_str!("scripts/acquire.lua")),
            renew: script(include_str!("scripts/renew.lua")),
            release: script(include_str!("scripts/release.lua")),
            append: script(include_str!("scripts/append.lua")),
            read: script(include_str!("scripts/read.lua")),
            put_row: script(include_str!("scripts/put_row.lua")),
            take: script(include_str!("scripts/take.lua")),
            hold_units: script(include_str!("scripts/hold_units.lua")),
            compare_and_set: script(include_str!("scripts/compare_and_set.lua")),
        }
    }
}

impl Scripts {
    fn all(&self) -> [&Script; 9] {
        let Self { acquire, renew, release, append, read, put_row, take, hold_units, compare_and_set } = self;
        [acquire, renew, release, append, read, put_row, take, hold_units, compare_and_set]
    }
}

/// A connection to the engine.
#[derive(Clone)]
enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        match self.clone() {
            Self::Single(mut connection) => connection.subscribe(channel).await,
            Self::Cluster(mut connection) => connection.ssubscribe(channel).await,
        }
    }

    async fn unsubscribe(&self, channel: &str) -> RedisResult<()> {
        match self.clone() {
            Self::Single(mut connection) => connection.unsubscribe(channel).await,
            Self::Cluster(mut connection) => connection.sunsubscribe(channel).await,
        }
    }

    async fn run<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match self.clone() {
            Self::Single(mut connection) => command.query_async(&mut connection).await,
            Self::Cluster(mut connection) => command.query_async(&mut connection).await,
        }
    }

    /// Runs commands together; their results are of no use.
    async fn pipe(&self, commands: &Pipeline) -> RedisResult<()> {
        match self.clone() {
            Self::Single(mut connection) => commands.exec_async(&mut connection).await,
            Self::Cluster(mut connection) => commands.exec_async(&mut connection).await,
        }
    }

    /// Makes a script known, so that its first call takes one round trip as well.
    async fn load(&self, script: &Script) -> RedisResult<String> {
        let call = script.prepare_invoke();
        match self.clone() {
            Self::Single(mut connection) => call.load_async(&mut connection).await,
            Self::Cluster(mut connection) => call.load_async(&mut connection).await,
        }
    }

    async fn script<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> RedisResult<T> {
        match self.clone() {
            Self::Single(mut connection) => call.invoke_async(&mut connection).await,
            Self::Cluster(mut connection) => call.invoke_async(&mut connection).await,
        }
    }
}

/// Passes wake-ups of the connection on.
#[derive(Clone)]
struct Waker {
    wakes: mpsc::Sender<Wake>,
    /// True if a wake-up found the channel full.
    has_lost: Arc<AtomicBool>,
    /// Notified of a command without an answer, and of a connection that ends.
    failed: Arc<Notify>,
    /// Prefix of the names of channels.
    channels: String,
}

impl Waker {
    /// Returns the function that the connection calls with everything that it gets unasked.
    fn push_sender(&self) -> impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static {
        let waker = self.clone();
        move |push| {
            match push.kind {
                PushKind::Message | PushKind::SMessage => {
                    if let Some(Value::BulkString(channel)) = push.data.first() {
                        waker.wake(channel);
                    }
                }
                PushKind::Disconnection => waker.failed.notify_one(),
                _ => {}
            }
            Ok(())
        }
    }

    fn wake(&self, channel: &[u8]) {
        let name = std::str::from_utf8(channel).ok().and_then(|name| name.strip_prefix(&self.channels));
        let Some(hash) = name.map(|name| name.trim_matches(['{', '}'])) else { return };
        let wake = if hash == LOG { Wake::Log } else { Wake::Task(hash.into()) };
        self.send(wake);
    }

    /// Wakes everything: wake-ups of the time before may be lost.
    fn wake_all(&self) {
        self.send(Wake::All);
    }

    fn send(&self, wake: Wake) {
        if self.wakes.try_send(wake).is_err() {
            self.has_lost.store(true, Ordering::Release);
        }
    }
}

/// The way to make a connection.
enum Connector {
    Single(Client),
    Sentinel(tokio::sync::Mutex<SentinelClient>),
    Cluster(ClusterClient),
}

/// The engine in Valkey or Redis.
pub(crate) struct RedisEngine {
    connector: Connector,
    scripts: Scripts,
    /// Key of the heartbeat.
    replica: StateKey,
    /// True once a heartbeat was written.
    has_beaten: AtomicBool,
    timeout: Duration,
    prefix: String,
    connection: ArcSwapOption<Connection>,
    availability: Availability,
    waker: Waker,
    /// Hashes of the tasks that are watched.
    watched: Mutex<HashSet<Box<str>>>,
}

impl RedisEngine {
    /// Creates the engine of these settings, and the receiver of its wake-ups. Nothing is connected:
    /// see [`StateEngine::keep_connected`].
    ///
    /// # Errors
    ///
    /// A text that names the setting which is not usable.
    pub(crate) fn new(
        state: &State,
        nodes: &[Secret],
        replica: StateKey,
        most_wakes: usize,
    ) -> Result<(Arc<Self>, mpsc::Receiver<Wake>), String> {
        let (wakes, woken) = mpsc::channel(most_wakes);
        let prefix = format!("{}:{SCHEMA}:", state.prefix);
        let waker = Waker {
            wakes,
            has_lost: Arc::default(),
            failed: Arc::default(),
            channels: format!("{prefix}w:"),
        };
        let connector = Connector::new(state, nodes, &waker)
            .map_err(|error| format!("cannot be used ({})", refused(&error)))?;
        let engine = Self {
            scripts: Scripts::new(state.topology == StateTopology::Cluster),
            connector,
            replica,
            has_beaten: AtomicBool::new(false),
            timeout: state.timeout,
            prefix,
            connection: ArcSwapOption::empty(),
            availability: Availability::default(),
            waker,
            watched: Mutex::default(),
        };
        Ok((Arc::new(engine), woken))
    }

    async fn connect(&self) -> Result<Connection, EngineError> {
        // Longer than a command: there is a handshake, and for a cluster a list of nodes.
        let connected =
            timeout(self.timeout.saturating_mul(4), self.connector.connect(&self.waker, self.timeout)).await;
        // The whole reason, such as that of a TLS handshake; it quotes no credentials.
        let connection = connected.map_err(|_| EngineError::Timeout)?;
        let connection = connection.map_err(|error| EngineError::Refused(error.to_string()))?;
        let watched: Vec<Box<str>> = lock(&self.watched).iter().cloned().collect();
        let channels = watched.iter().map(|hash| self.channel(hash)).chain([self.channel(LOG)]);
        for channel in channels {
            connection.subscribe(&channel).await.map_err(|error| refused(&error))?;
        }
        for loaded in join_all(self.scripts.all().map(|script| connection.load(script))).await {
            loaded.map_err(|error| refused(&error))?;
        }
        Ok(connection)
    }

    /// Writes a heartbeat each second, and after each command without an answer; returns when the
    /// connection is lost.
    async fn check_until_lost(&self) {
        let mut lost = 0;
        loop {
            tokio::select! {
                () = sleep(BEAT_INTERVAL) => {}
                () = self.waker.failed.notified() => {}
            }
            match self.beat().await {
                Ok(()) => {
                    lost = 0;
                    let is_back = self.availability.mark_present();
                    if self.waker.has_lost.swap(false, Ordering::AcqRel) || is_back {
                        self.waker.wake_all();
                    }
                }
                // It is full, or may not be written: another connection changes nothing.
                Err(error @ (EngineError::Refused(_) | EngineError::Busy(_))) => self.mark_absent(&error),
                Err(error) => {
                    lost += 1;
                    self.mark_absent(&error);
                    if error == EngineError::Disconnected || lost >= MOST_LOST_BEATS {
                        return;
                    }
                }
            }
        }
    }

    /// Records that commands have no answer.
    fn mark_absent(&self, error: &EngineError) {
        if self.availability.mark_absent(error) {
            // Watchers of tasks that other replicas follow ask the agents themselves from now on.
            self.waker.wake_all();
        }
    }

    /// Writes that this replica lives, whether or not the engine counts as absent. A write: an engine
    /// that is full, or has become a copy of another, answers a ping all the same.
    async fn beat(&self) -> Result<(), EngineError> {
        let connection = self.connection.load_full().ok_or(EngineError::Disconnected)?;
        let mut command = cmd("SET");
        command.arg(self.key(&self.replica)).arg(1).arg("PX").arg(millis(BEAT_TTL)).arg("GET");
        let answered = timeout(self.timeout, connection.run::<Value>(&command)).await;
        let before = answered.map_err(|_| EngineError::Timeout)?.map_err(|error| refused(&error))?;
        if before == Value::Nil && self.has_beaten.swap(true, Ordering::AcqRel) {
            // The heartbeat before is gone: with it everything, or the engine was absent for long.
            self.waker.send(Wake::Forgotten);
        }
        Ok(())
    }

    fn present(&self) -> Result<Arc<Connection>, EngineError> {
        let connection = self.connection.load_full().filter(|_| self.is_available());
        connection.ok_or(EngineError::Disconnected)
    }

    async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, EngineError> {
        let connection = self.present()?;
        self.checked(timeout(self.timeout, connection.run(command)).await)
    }

    async fn script<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, EngineError> {
        let connection = self.present()?;
        self.checked(timeout(self.timeout, connection.script(call)).await)
    }

    fn checked<T>(
        &self,
        answered: Result<RedisResult<T>, tokio::time::error::Elapsed>,
    ) -> Result<T, EngineError> {
        let error = match answered {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => refused(&error),
            Err(_) => EngineError::Timeout,
        };
        match &error {
            // One command that it does not accept. If it accepts none, the next heartbeat tells.
            EngineError::Refused(_) | EngineError::Busy(_) => {
                self.availability.count_failure();
                self.waker.failed.notify_one();
            }
            EngineError::Timeout | EngineError::Disconnected => {
                self.mark_absent(&error);
                self.waker.failed.notify_one();
            }
        }
        Err(error)
    }

    fn key(&self, key: &StateKey) -> String {
        format!("{}{}:{{{}}}", self.prefix, key.kind.letter(), key.hash)
    }

    /// Returns the keys of a task: its state, its events, its lease.
    fn task_keys(&self, task: &StateKey) -> [String; 3] {
        let key = self.key(task);
        [key.clone(), format!("{key}:events"), format!("{key}:lease")]
    }

    fn channel(&self, hash: &str) -> String {
        format!("{}w:{{{hash}}}", self.prefix)
    }

    fn log_key(&self) -> String {
        format!("{}l:{{{LOG}}}", self.prefix)
    }
}

#[async_trait]
impl StateEngine for RedisEngine {
    async fn keep_connected(&self) {
        let mut attempts = 0;
        loop {
            match self.connect().await {
                Ok(connection) => {
                    attempts = 0;
                    self.connection.store(Some(Arc::new(connection)));
                    self.waker.failed.notify_one();
                    self.check_until_lost().await;
                    self.connection.store(None);
                }
                Err(error) if attempts == 0 => {
                    warn!(%error, "cannot connect to the engine of shared state; this replica works alone, retrying");
                }
                Err(error) => tracing::debug!(%error, "cannot connect to the engine of shared state"),
            }
            self.availability.disconnect();
            sleep(with_jitter(RECONNECT.pause(attempts), 0.3, rand::random())).await;
            attempts = attempts.saturating_add(1);
        }
    }

    fn is_available(&self) -> bool {
        self.availability.is_available()
    }

    fn failures(&self) -> u64 {
        self.availability.failures()
    }

    async fn set_if_absent(
        &self,
        key: &StateKey,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let mut command = cmd("SET");
        command.arg(self.key(key)).arg(value).arg("NX").arg("GET").arg("PX").arg(millis(ttl));
        self.command(&command).await
    }

    async fn compare_and_set(
        &self,
        key: &StateKey,
        expected: &[u8],
        value: Option<&[u8]>,
        ttl: Duration,
    ) -> Result<bool, EngineError> {
        let mut call = self.scripts.compare_and_set.key(self.key(key));
        call.arg(expected).arg(u8::from(value.is_none())).arg(value.unwrap_or_default()).arg(millis(ttl));
        self.script(&call).await
    }

    async fn get(&self, key: &StateKey) -> Result<Option<Vec<u8>>, EngineError> {
        self.command(cmd("GET").arg(self.key(key))).await
    }

    async fn set(&self, key: &StateKey, value: &[u8], ttl: Duration) -> Result<(), EngineError> {
        self.command(cmd("SET").arg(self.key(key)).arg(value).arg("PX").arg(millis(ttl))).await
    }

    async fn take(&self, key: &StateKey, rate: SharedRate) -> Result<Option<Duration>, EngineError> {
        let interval = u64::try_from(rate.interval.as_micros()).unwrap_or(u64::MAX).max(1);
        let mut call = self.scripts.take.key(self.key(key));
        call.arg(interval).arg(rate.burst.max(1));
        let wait: u64 = self.script(&call).await?;
        Ok((wait > 0).then(|| Duration::from_millis(wait)))
    }

    async fn hold_units(&self, key: &StateKey, request: UnitRequest<'_>) -> Result<UnitsHeld, EngineError> {
        let UnitRequest { holder, needed, wanted, limit, lifetime } = request;
        let mut call = self.scripts.hold_units.key(self.key(key));
        call.arg(holder).arg(needed).arg(wanted).arg(limit).arg(millis(lifetime));
        let (own, others): (usize, usize) = self.script(&call).await?;
        Ok(UnitsHeld { own, others })
    }

    async fn acquire(&self, task: &StateKey, request: LeaseRequest<'_>) -> Result<LeaseOutcome, EngineError> {
        let [state, _, lease] = self.task_keys(task);
        let mut call = self.scripts.acquire.key(state);
        call.key(lease).arg(request.holder).arg(millis(request.lifetime));
        call.arg(u8::from(request.takes_over)).arg(request.above).arg(millis(request.ttl));
        call.arg(self.channel(&task.hash));
        let (epoch, number): (u64, i64) = self.script(&call).await?;
        let number = u64::try_from(number).unwrap_or_default();
        Ok(match epoch {
            0 => LeaseOutcome::Held(Duration::from_millis(number)),
            epoch => LeaseOutcome::Granted { epoch, last: number },
        })
    }

    async fn renew(
        &self,
        task: &StateKey,
        holder: &str,
        epoch: u64,
        [lifetime, ttl]: [Duration; 2],
    ) -> Result<bool, EngineError> {
        let [state, _, lease] = self.task_keys(task);
        let mut call = self.scripts.renew.key(state);
        call.key(lease).arg(holder).arg(epoch).arg(millis(lifetime)).arg(millis(ttl));
        self.script(&call).await
    }

    async fn release(&self, task: &StateKey, holder: &str, epoch: u64) -> Result<(), EngineError> {
        let [_, _, lease] = self.task_keys(task);
        let mut call = self.scripts.release.key(lease);
        call.arg(holder).arg(epoch).arg(self.channel(&task.hash));
        self.script(&call).await
    }

    async fn append(&self, task: &StateKey, new: NewEvents<'_>) -> Result<bool, EngineError> {
        let [state, events, _] = self.task_keys(task);
        let mut call = self.scripts.append.key(state);
        call.key(events).arg(new.first.epoch).arg(new.first.number).arg(millis(new.ttl));
        call.arg(MOST_EVENTS).arg(self.channel(&task.hash));
        for event in new.events {
            call.arg(event.as_slice());
        }
        self.script(&call).await
    }

    async fn read(&self, task: &StateKey, after: EventPosition) -> Result<SharedTask, EngineError> {
        let [state, events, lease] = self.task_keys(task);
        let mut call = self.scripts.read.key(state);
        call.key(events).key(lease).arg(format!("{}-{}", after.epoch, after.number)).arg(MOST_EVENTS);
        type Read = (Vec<Vec<u8>>, u64, u64, u64, i64);
        let (events, epoch, number, version, lease): Read = self.script(&call).await?;
        let read = events.chunks_exact(2).filter_map(|pair| match pair {
            [position, event] => Some((position_of(position)?, event.clone())),
            _ => None,
        });
        Ok(SharedTask {
            events: read.collect(),
            last: EventPosition { epoch, number },
            version,
            lease: u64::try_from(lease).ok().map(Duration::from_millis),
        })
    }

    async fn put_row(
        &self,
        task: &StateKey,
        row: &TaskRow,
        ttl: Duration,
    ) -> Result<Option<TaskRow>, EngineError> {
        let mut call = self.scripts.put_row.key(self.key(task));
        call.arg(row.at.epoch).arg(row.at.number).arg(row.row.as_slice()).arg(millis(ttl));
        call.arg(self.channel(&task.hash));
        let present: Vec<Vec<u8>> = self.script(&call).await?;
        Ok(row_of(present))
    }

    async fn row(&self, task: &StateKey) -> Result<Option<TaskRow>, EngineError> {
        let mut command = cmd("HMGET");
        command.arg(self.key(task)).arg(&["row_epoch", "row_number", "row"]);
        let fields: Vec<Option<Vec<u8>>> = self.command(&command).await?;
        Ok(row_of(fields.into_iter().flatten().collect()))
    }

    async fn index(
        &self,
        key: &StateKey,
        member: &str,
        score: u64,
        ttl: Duration,
    ) -> Result<(), EngineError> {
        let key = self.key(key);
        let mut added = Pipeline::new();
        added.cmd("ZADD").arg(&key).arg(score).arg(member).ignore();
        added.cmd("ZREMRANGEBYRANK").arg(&key).arg(0).arg(-MOST_INDEXED.cast_signed() - 1).ignore();
        added.cmd("PEXPIRE").arg(&key).arg(millis(ttl)).ignore();
        let connection = self.present()?;
        self.checked(timeout(self.timeout, connection.pipe(&added)).await)
    }

    async fn indexed(&self, key: &StateKey, most: usize) -> Result<Vec<String>, EngineError> {
        let mut command = cmd("ZREVRANGE");
        command.arg(self.key(key)).arg(0).arg(most.saturating_sub(1));
        self.command(&command).await
    }

    async fn log(&self, row: &[u8]) -> Result<(), EngineError> {
        let key = self.log_key();
        let mut added = Pipeline::new();
        added
            .cmd("XADD")
            .arg(&key)
            .arg("MAXLEN")
            .arg("~")
            .arg(MOST_LOGGED)
            .arg("*")
            .arg("d")
            .arg(row)
            .ignore();
        added.cmd("PEXPIRE").arg(&key).arg(millis(LOG_TTL)).ignore();
        let publish = if matches!(self.connector, Connector::Cluster(_)) { "SPUBLISH" } else { "PUBLISH" };
        added.cmd(publish).arg(self.channel(LOG)).arg("row").ignore();
        let connection = self.present()?;
        self.checked(timeout(self.timeout, connection.pipe(&added)).await)
    }

    async fn logged(&self, after: Option<&str>, most: usize) -> Result<Vec<LoggedRow>, EngineError> {
        let mut command = cmd("XRANGE");
        command.arg(self.log_key()).arg(format!("({}", after.unwrap_or(LOG_START))).arg("+");
        command.arg("COUNT").arg(most);
        let rows: Vec<(String, Vec<Vec<u8>>)> = self.command(&command).await?;
        let row = |(position, fields): (String, Vec<Vec<u8>>)| {
            Some(LoggedRow { position: position.into(), row: fields.into_iter().nth(1)? })
        };
        Ok(rows.into_iter().filter_map(row).collect())
    }

    async fn watch(&self, task: &StateKey) -> Result<(), EngineError> {
        if !lock(&self.watched).insert(task.hash.clone()) {
            return Ok(());
        }
        let connection = self.present()?;
        self.checked(timeout(self.timeout, connection.subscribe(&self.channel(&task.hash))).await)
    }

    async fn unwatch(&self, task: &StateKey) -> Result<(), EngineError> {
        if !lock(&self.watched).remove(&task.hash) {
            return Ok(());
        }
        let connection = self.present()?;
        self.checked(timeout(self.timeout, connection.unsubscribe(&self.channel(&task.hash))).await)
    }
}

impl Connector {
    fn new(state: &State, nodes: &[Secret], waker: &Waker) -> RedisResult<Self> {
        let nodes: Vec<ConnectionInfo> =
            nodes.iter().map(|url| node_of(url.expose(), state)).collect::<RedisResult<_>>()?;
        let certificates = certificates(state);
        let no_node = || RedisError::from((ErrorKind::InvalidClientConfig, "no URL"));
        match state.topology {
            StateTopology::Single => {
                let node = nodes.into_iter().next().ok_or_else(no_node)?;
                let client = match is_tls(&node) {
                    true => Client::build_with_tls(node, certificates)?,
                    false => Client::open(node)?,
                };
                Ok(Self::Single(client))
            }
            StateTopology::Cluster => {
                let uses_tls = nodes.iter().any(is_tls);
                let mut builder = ClusterClientBuilder::new(nodes)
                    .use_protocol(ProtocolVersion::RESP3)
                    .response_timeout(state.timeout)
                    .connection_timeout(state.timeout)
                    .retries(2)
                    .push_sender(waker.push_sender());
                if uses_tls {
                    builder = builder.certs(certificates);
                }
                builder.build().map(Self::Cluster)
            }
            StateTopology::Sentinel => {
                let redis = nodes.first().ok_or_else(no_node)?.redis_settings().clone();
                let uses_tls = nodes.iter().any(is_tls);
                let addresses = nodes.iter().map(|node| node.addr().clone());
                let master = SentinelServerType::Master;
                let mut builder = SentinelClientBuilder::new(addresses, &state.master, master)?
                    .set_client_to_redis_protocol(ProtocolVersion::RESP3)
                    .set_client_to_redis_db(redis.db());
                if let Some(username) = redis.username() {
                    builder = builder.set_client_to_redis_username(username);
                }
                if let Some(password) = redis.password() {
                    builder = builder.set_client_to_redis_password(password);
                }
                if let Some(username) = &state.sentinel_username {
                    builder = builder.set_client_to_sentinel_username(username);
                }
                if let Some(password) = &state.sentinel_password {
                    builder = builder.set_client_to_sentinel_password(password.expose());
                }
                if uses_tls {
                    builder = builder
                        .set_client_to_redis_tls_mode(TlsMode::Secure)
                        .set_client_to_redis_certificates(certificates.clone())
                        .set_client_to_sentinel_certificates(certificates);
                }
                Ok(Self::Sentinel(tokio::sync::Mutex::new(builder.build()?)))
            }
        }
    }

    async fn connect(&self, waker: &Waker, response: Duration) -> RedisResult<Connection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(response))
            .set_response_timeout(Some(response))
            .set_push_sender(waker.push_sender());
        Ok(match self {
            Self::Single(client) => {
                Connection::Single(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Self::Sentinel(client) => {
                Connection::Single(client.lock().await.get_async_connection_with_config(&config).await?)
            }
            Self::Cluster(client) => Connection::Cluster(client.get_async_connection().await?),
        })
    }
}

/// Returns the address of a node and its credentials: those of the settings, or of its URL.
fn node_of(url: &str, state: &State) -> RedisResult<ConnectionInfo> {
    let node = url.into_connection_info()?;
    let mut redis = node.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    if let Some(username) = &state.username {
        redis = redis.set_username(username);
    }
    if let Some(password) = &state.password {
        redis = redis.set_password(password.expose());
    }
    Ok(node.set_redis_settings(redis))
}

fn is_tls(node: &ConnectionInfo) -> bool {
    matches!(node.addr(), ConnectionAddr::TcpTls { .. })
}

fn certificates(state: &State) -> TlsCertificates {
    let bytes = |pem: &Pem| pem.expose().as_bytes().to_vec();
    let pair = state.tls.certificate.as_ref().zip(state.tls.key.as_ref());
    TlsCertificates {
        client_tls: pair.map(|(certificate, key)| ClientTlsConfig {
            client_cert: bytes(certificate),
            client_key: bytes(key),
        }),
        root_cert: state.tls.ca.as_ref().map(bytes),
    }
}

/// Codes of an engine that will accept the command later.
const BUSY_CODES: [&str; 6] = ["OOM", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "NOREPLICAS"];

/// Returns the error of a command, without what it may quote of the command.
fn refused(error: &RedisError) -> EngineError {
    if error.is_timeout() {
        return EngineError::Timeout;
    }
    let is_lost = error.is_io_error() || error.is_connection_dropped() || error.is_connection_refusal();
    match error.kind() {
        // A copy of the engine accepts no writes: another one does.
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => {
            EngineError::Disconnected
        }
        _ if is_lost => EngineError::Disconnected,
        kind => {
            let code = error.code().unwrap_or_default();
            let reason = format!("{kind:?}: {code}");
            if BUSY_CODES.contains(&code) { EngineError::Busy(reason) } else { EngineError::Refused(reason) }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).clamp(1, MOST_MILLIS)
}

fn position_of(text: &[u8]) -> Option<EventPosition> {
    let (epoch, number) = std::str::from_utf8(text).ok()?.split_once('-')?;
    Some(EventPosition { epoch: epoch.parse().ok()?, number: number.parse().ok()? })
}

/// Returns the row in these fields: epoch, number, row.
fn row_of(fields: Vec<Vec<u8>>) -> Option<TaskRow> {
    let [epoch, number, row] = <[Vec<u8>; 3]>::try_from(fields).ok()?;
    let count = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    Some(TaskRow { at: EventPosition { epoch: count(&epoch)?, number: count(&number)? }, row })
}
