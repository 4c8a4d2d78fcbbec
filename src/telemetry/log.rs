//! The log: its output, its form, and its noise filter; and the escapes of characters that a reader
//! does not see, for the log and for terminals. Text that models read is cleaned instead (see
//! `a2a::sanitize`).
//!
//! Writes to standard error, by a buffer: a reader that does not read delays no request. Events of
//! Pingora (by the `log` crate) are logged here too: its reports of a normal course at level `debug`,
//! although it has them at `info`; lines with which any port scanner could flood the log not at
//! all. A filter that names Pingora decides for itself.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer, Layered, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use super::log_buffer::LogBuffer;
use super::log_line::{EMPTY_BLOCK, LineBlock, LineOutput, WrittenLine};
use super::request_facts::CompletedRequest;
use crate::sync::lock;

/// The longest wait for the log's reader when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The output of the process's log.
static OUTPUT: OnceLock<LogOutput> = OnceLock::new();

/// The filter of the process's log.
static FILTER: OnceLock<LogFilter> = OnceLock::new();

/// The maximum size of a filter that is set while the process runs, in bytes.
const MAX_FILTER_BYTES: usize = 4096;

/// Texts that Pingora logs as errors although any client can cause them at will, or an upgrade in
/// its usual order.
const NOISE: [&str; 3] =
    ["No incoming socket transfer", "Downstream handshake error", "Downstream handshake timeout"];

/// The form of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line, for collectors.
    Json,
}

impl LogFormat {
    fn escape_style(self) -> EscapeStyle {
        match self {
            Self::Text => EscapeStyle::Text,
            Self::Json => EscapeStyle::Json,
        }
    }
}

/// The settings of the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogSettings {
    /// The form of each line.
    pub(crate) format: LogFormat,
    /// Levels by target, for example `info,access=off,mcp_a2a_gateway::transport=debug`. Without it
    /// the environment variable `RUST_LOG` counts, and then `info`.
    pub(crate) filter: Option<String>,
}

/// The reason for which the log could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogProblem {
    /// The filter is invalid.
    #[error("log filter {filter:?}: {problem}")]
    Filter {
        /// The filter as written.
        filter: String,
        /// The problem with it.
        problem: String,
    },
    /// The process has no log of its own, perhaps because it embeds the gateway.
    #[error("this process has no log whose filter could be set")]
    NotRunning,
    /// The process logs already, perhaps because it embeds the gateway.
    #[error("the log is already running: {0}")]
    AlreadyRunning(String),
    /// The system gives no thread for it.
    #[error("cannot start a thread for the log: {0}")]
    Thread(#[from] std::io::Error),
}

/// Starts the log of the process.
///
/// # Errors
///
/// [`LogProblem`]; after [`LogProblem::AlreadyRunning`] the existing log remains.
pub(crate) fn init(settings: &LogSettings) -> Result<(), LogProblem> {
    let ansi = takes_colour(&std::io::stderr());
    let buffer = LogBuffer::start(std::io::stderr(), settings.format)?;
    let (subscriber, filter) = subscriber(settings, buffer.clone(), ansi)?;
    subscriber.try_init().map_err(|error| LogProblem::AlreadyRunning(error.to_string()))?;
    limit_log_crate();
    OUTPUT.get_or_init(|| LogOutput::new(buffer, settings.format, ansi));
    note_levels();
    FILTER.get_or_init(|| filter);
    Ok(())
}

/// Sets the filter of the log, for all events from now on. `None`: the filter that counts without
/// `log.level`.
///
/// # Errors
///
/// [`LogProblem`], and the filter stays as it was.
pub(crate) fn set_filter(filter: Option<&str>) -> Result<(), LogProblem> {
    FILTER.get().ok_or(LogProblem::NotRunning)?.set(&filter_or_default(filter.map(str::to_owned)))
}

/// Returns the filter of the log; `None` if the process has no log of its own.
pub(crate) fn filter() -> Option<String> {
    FILTER.get().map(|filter| lock(&filter.text).clone())
}

/// Shows more of the log, or less: the level that counts without a target becomes the next one.
/// Directives for single targets stay. Returns the new filter.
///
/// # Errors
///
/// [`LogProblem`], and the filter stays as it was.
pub(crate) fn shift_level(shift: LevelShift) -> Result<String, LogProblem> {
    let filter = filter().ok_or(LogProblem::NotRunning)?;
    let shifted = shifted(&filter, shift);
    set_filter(Some(&shifted))?;
    Ok(shifted)
}

/// The direction in which the level changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LevelShift {
    /// One level more: `info` becomes `debug`.
    More,
    /// One level less: `info` becomes `warn`.
    Less,
}

/// Returns a filter with another level for events without a directive of their own.
fn shifted(filter: &str, shift: LevelShift) -> String {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let directives = || filter.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    let position = |directive: &str| LEVELS.iter().position(|level| directive.eq_ignore_ascii_case(level));
    // Without such a directive only errors are shown.
    let now = directives().filter_map(position).next_back().unwrap_or(1);
    let next = match shift {
        LevelShift::More => now.saturating_add(1).min(LEVELS.len() - 1),
        LevelShift::Less => now.saturating_sub(1),
    };
    let level = LEVELS.get(next).copied().unwrap_or("info");
    let rest = directives().filter(|directive| position(directive).is_none());
    std::iter::once(level).chain(rest).collect::<Vec<_>>().join(",")
}

/// The signals that change the level of the log: SIGUSR1 shows more, SIGUSR2 less.
pub(crate) struct LevelSignals {
    more: Signal,
    less: Signal,
}

impl LevelSignals {
    /// Receives the signals from now on. Until then each of them ends the process. `None`: they
    /// cannot be received.
    pub(crate) fn register() -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let signals = runtime.and_then(|runtime| {
            // The receivers outlive this runtime: any other of the process delivers to them.
            let _entered = runtime.enter();
            Ok(Self {
                more: signal(SignalKind::user_defined1())?,
                less: signal(SignalKind::user_defined2())?,
            })
        });
        if let Err(error) = &signals {
            tracing::warn!(%error, "failed to receive SIGUSR1 and SIGUSR2, each ends the process");
        }
        signals.ok()
    }

    /// Changes the level with each signal, until it is dropped.
    pub(crate) async fn follow(&mut self) {
        loop {
            let shift = tokio::select! {
                received = self.more.recv() => received.map(|()| LevelShift::More),
                received = self.less.recv() => received.map(|()| LevelShift::Less),
            };
            match shift.map(shift_level) {
                // A warning, so that it is seen at each level but the lowest two.
                Some(Ok(filter)) => tracing::warn!(filter, "changed log level on a signal"),
                Some(Err(error)) => tracing::warn!(%error, "failed to change log level"),
                None => return,
            }
        }
    }
}

/// The levels of the log and the noise that is left out.
type LogLevels = Layered<NoiseFilter, EnvFilter, Registry>;

/// The filter of a log, which can be replaced while it runs.
struct LogFilter {
    levels: reload::Handle<LogLevels, Registry>,
    text: Mutex<String>,
}

impl LogFilter {
    fn set(&self, filter: &str) -> Result<(), LogProblem> {
        let problem = |problem: String| LogProblem::Filter { filter: filter.to_owned(), problem };
        if filter.len() > MAX_FILTER_BYTES {
            let filter = filter.chars().take(100).chain(['…']).collect();
            return Err(LogProblem::Filter { filter, problem: "it is too long".to_owned() });
        }
        let levels = levels(filter)?;
        let mut text = lock(&self.text);
        self.levels.reload(levels).map_err(|error| problem(error.to_string()))?;
        limit_log_crate();
        note_levels();
        filter.clone_into(&mut text);
        Ok(())
    }
}

/// Sets the level of the `log` crate, with which Pingora writes: that of the filter, at most `info`, as its events below
/// are noise.
fn limit_log_crate() {
    let level = LevelFilter::current();
    log::set_max_level(match level.min(LevelFilter::INFO) {
        LevelFilter::OFF => log::LevelFilter::Off,
        LevelFilter::ERROR => log::LevelFilter::Error,
        LevelFilter::WARN => log::LevelFilter::Warn,
        _ => log::LevelFilter::Info,
    });
}

/// Returns the filter of the settings, else of `RUST_LOG`, else `info`.
fn filter_or_default(filter: Option<String>) -> String {
    let filter = filter.or_else(|| std::env::var("RUST_LOG").ok()).unwrap_or_default();
    if filter.trim().is_empty() { "info".to_owned() } else { filter }
}

fn levels(filter: &str) -> Result<LogLevels, LogProblem> {
    let levels = EnvFilter::builder()
        .parse(filter)
        .map_err(|error| LogProblem::Filter { filter: filter.to_owned(), problem: error.to_string() })?;
    let on = !filter.contains("pingora");
    let most = levels.max_level_hint();
    Ok(levels.and_then(NoiseFilter { on, hides_reports: on && !allows_debug(filter), most }))
}

/// Returns true if an output shows colours: it is a terminal, and `NO_COLOR` is not set
/// (<https://no-color.org>).
pub(crate) fn takes_colour(output: &impl IsTerminal) -> bool {
    output.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes the lines that are still in the buffer. To be called before the process ends.
///
/// A reader that does not read is waited for no longer than a second.
pub(crate) fn flush() {
    if let Some(output) = OUTPUT.get() {
        output.buffer.flush(FLUSH_TIMEOUT);
    }
}

/// The output of the log, for lines that are written without an event.
pub(super) struct LogOutput {
    buffer: LogBuffer,
    form: LogFormat,
    /// True if it shows colours, which only events have.
    ansi: bool,
    /// True while lines of the access log and of the audit log pass the filter: to ask the filter for
    /// each line costs as much as a part of the line.
    shows_access: AtomicBool,
    shows_audit: AtomicBool,
}

impl LogOutput {
    fn new(buffer: LogBuffer, form: LogFormat, ansi: bool) -> Self {
        let (shows_access, shows_audit) = Default::default();
        Self { buffer, form, ansi, shows_access, shows_audit }
    }

    /// Returns true if lines of level `info` with this target pass the filter.
    pub(super) fn shows(&self, target: &str) -> bool {
        match target {
            "access" => self.shows_access.load(Ordering::Relaxed),
            "audit" => self.shows_audit.load(Ordering::Relaxed),
            _ => true,
        }
    }

    /// Adds the line of a request that ended at this time, which is formatted with others.
    pub(super) fn add_access(&self, ended: Instant, line: &CompletedRequest<'_>) {
        self.buffer.add_access(ended, line);
    }
}

impl LineOutput for &LogOutput {
    fn form(&self) -> LogFormat {
        self.form
    }

    fn write_line(&mut self, write: impl FnOnce(&mut LineBlock) -> WrittenLine) {
        let mut block = EMPTY_BLOCK;
        let written = write(&mut block);
        let (line, may_hide) = written.read(&block);
        if !may_hide {
            return self.buffer.add(line);
        }
        let mut visible = VisibleLine { inner: self.buffer.clone(), escape: self.form.escape_style() };
        // The buffer takes or drops a line, and does not fail.
        visible.write_all(line).unwrap_or_default();
    }
}

/// Collects formatted lines, which are written in their place.
pub(super) struct FormattedLines<'b> {
    /// The lines so far, and room for more.
    room: &'b mut Vec<u8>,
    /// The length of the lines so far, in bytes.
    used: usize,
    form: LogFormat,
}

impl<'b> FormattedLines<'b> {
    /// Begins lines of a form in a buffer, which keeps its length from one use to the next: to fill it up takes time.
    pub(super) fn new(room: &'b mut Vec<u8>, form: LogFormat) -> Self {
        Self { room, used: 0, form }
    }

    /// Returns the lines.
    pub(super) fn finish(self) -> &'b [u8] {
        self.room.get(..self.used).unwrap_or_default()
    }

    /// Returns the room for one line.
    fn block(&mut self) -> Option<&mut LineBlock> {
        let end = self.used + size_of::<LineBlock>();
        if self.room.len() < end {
            self.room.resize(end, 0);
        }
        self.room.get_mut(self.used..)?.first_chunk_mut()
    }
}

impl LineOutput for FormattedLines<'_> {
    fn form(&self) -> LogFormat {
        self.form
    }

    fn write_line(&mut self, write: impl FnOnce(&mut LineBlock) -> WrittenLine) {
        let escape = self.form.escape_style();
        let Some(block) = self.block() else { return };
        let written = write(block);
        if let Some(length) = written.length_in_block() {
            self.used += length;
            return;
        }
        let (line, _) = written.read(block);
        let mut visible = VisibleLine { inner: Vec::new(), escape };
        // A vector takes all.
        visible.write_all(line).unwrap_or_default();
        self.room.truncate(self.used);
        self.room.extend_from_slice(&visible.inner);
        self.used = self.room.len();
    }
}

/// Returns the output of the process's log; `None` if it has none, or shows colours.
pub(super) fn output() -> Option<&'static LogOutput> {
    OUTPUT.get().filter(|output| !output.ansi)
}

/// Returns true if lines of the access log are shown.
pub(crate) fn shows_access() -> bool {
    match OUTPUT.get() {
        Some(output) => output.shows("access"),
        None => tracing::enabled!(target: "access", Level::INFO),
    }
}

/// Records what the filter lets pass, for lines that are written without an event.
fn note_levels() {
    if let Some(output) = OUTPUT.get() {
        let shown = [
            tracing::enabled!(target: "access", Level::INFO),
            tracing::enabled!(target: "audit", Level::INFO),
        ];
        for (flag, is_shown) in [&output.shows_access, &output.shows_audit].into_iter().zip(shown) {
            flag.store(is_shown, Ordering::Relaxed);
        }
    }
}

/// The subscriber of a log, and its filter.
type FilteredSubscriber = (Box<dyn Subscriber + Send + Sync>, LogFilter);

fn subscriber<W>(settings: &LogSettings, writer: W, ansi: bool) -> Result<FilteredSubscriber, LogProblem>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = filter_or_default(settings.filter.clone());
    let (levels, handle) = reload::Layer::new(levels(&filter)?);
    let base = Registry::default().with(levels);
    let escape = settings.format.escape_style();
    let lines = tracing_subscriber::fmt::layer().with_writer(VisibleLines { make: writer, escape });
    let subscriber: Box<dyn Subscriber + Send + Sync> = match settings.format {
        LogFormat::Text => Box::new(base.with(lines.with_ansi(ansi))),
        LogFormat::Json => Box::new(
            base.with(lines.json().flatten_event(true).with_current_span(false).with_span_list(false)),
        ),
    };
    Ok((subscriber, LogFilter { levels: handle, text: Mutex::new(filter) }))
}

/// Returns true if a filter lets events of level `debug` pass for every target.
fn allows_debug(filter: &str) -> bool {
    let levels = filter.split(',').filter_map(|directive| directive.trim().parse::<Level>().ok());
    levels.max().is_some_and(|level| level >= Level::DEBUG)
}

/// Drops events that are noise.
struct NoiseFilter {
    on: bool,
    /// True if reports of Pingora at level `info` are dropped as well.
    hides_reports: bool,
    /// Highest level of the filter below.
    most: Option<LevelFilter>,
}

impl<S: Subscriber> Layer<S> for NoiseFilter {
    // That of the filter below is lost: `Layered` takes it for the registry. Without one each event of
    // other crates, many in a request over HTTP/2, would pass through all filters.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.most
    }

    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        // Below info other crates print whole requests, credentials included.
        let target = event.metadata().target();
        let ours = target.starts_with("mcp_a2a_gateway") || target == "access";
        if !ours && *event.metadata().level() > Level::INFO {
            return false;
        }
        // All events of the `log` crate have this target; their own is a field.
        if !self.on || event.metadata().target() != "log" {
            return true;
        }
        let mut sniff = FieldVisitor::default();
        event.record(&mut sniff);
        let is_report = self.hides_reports && *event.metadata().level() == Level::INFO;
        !(sniff.from_pingora && (sniff.is_noise || is_report))
    }
}

#[derive(Default)]
struct FieldVisitor {
    from_pingora: bool,
    is_noise: bool,
}

impl Visit for FieldVisitor {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "log.target" => self.from_pingora = value.starts_with("pingora"),
            "message" => self.is_noise = NOISE.iter().any(|noise| value.starts_with(noise)),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.record_str(field, &format!("{value:?}"));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct KeptField(Arc<Mutex<Vec<u8>>>);

    impl io::Write for KeptField {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl LogOutput {
        /// Returns an output, and a function that returns all that was written to it.
        pub(crate) fn kept(form: LogFormat) -> (Self, impl FnOnce() -> String) {
            let kept = KeptField::default();
            let buffer = LogBuffer::start(kept.clone(), form).unwrap();
            let read = buffer.clone();
            let output = Self::new(buffer, form, false);
            (output, move || {
                read.flush(Duration::from_secs(10));
                String::from_utf8(kept.0.lock().unwrap().clone()).unwrap()
            })
        }

        /// Adds text that is formatted already.
        pub(crate) fn add_text(&self, text: &[u8]) {
            self.buffer.add(text);
        }
    }

    /// Returns the log of `work`.
    pub(crate) fn written(json: bool, filter: &str, work: impl FnOnce()) -> String {
        let format = if json { LogFormat::Json } else { LogFormat::Text };
        let settings = LogSettings { format, filter: Some(filter.to_owned()) };
        let kept = KeptField::default();
        let writer = kept.clone();
        let (subscriber, _) = subscriber(&settings, move || writer.clone(), false).unwrap();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn pingora_speaks() {
        let target = "pingora_core::services::listening";
        tracing::error!(target: "log", { log.target = target }, "Downstream handshake error from 1.2.3.4: x");
        tracing::error!(target: "log", { log.target = target }, "Accept() failed: too many open files");
        tracing::error!(target: "log", { log.target = "other" }, "Downstream handshake error of somebody else");
    }

    #[test]
    fn noise_is_left_out_and_the_rest_is_not() {
        let text = written(false, "info", pingora_speaks);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("Accept() failed") && text.contains("somebody else"), "{text}");
    }

    #[test]
    fn pingora_reports_are_at_debug() {
        let reports = || {
            let target = "pingora_core::server";
            tracing::info!(target: "log", { log.target = target }, "Server starting");
            tracing::warn!(target: "log", { log.target = target }, "no workers");
        };
        for (filter, lines) in [
            ("info", 1),
            ("info,access=debug", 1),
            ("warn,mcp_a2a_gateway=info", 1),
            ("debug", 2),
            ("access=off,debug", 2),
            ("info,pingora_core=info", 2),
            ("error", 0),
        ] {
            assert_eq!(written(true, filter, reports).lines().count(), lines, "{filter}");
        }
    }

    #[test]
    fn levels_that_no_output_takes_cost_nothing() {
        for (filter, most) in [
            ("warn", LevelFilter::WARN),
            ("info", LevelFilter::INFO),
            ("info,mcp_a2a_gateway=debug", LevelFilter::DEBUG),
            ("off", LevelFilter::OFF),
        ] {
            let settings = LogSettings { format: LogFormat::Text, filter: Some(filter.to_owned()) };
            let (subscriber, _) = subscriber(&settings, io::sink, false).unwrap();
            assert_eq!(subscriber.max_level_hint(), Some(most), "{filter}");
        }
    }

    #[test]
    fn noise_can_be_asked_for() {
        assert_eq!(written(true, "info,pingora_core=debug", pingora_speaks).lines().count(), 3);
    }

    #[test]
    fn levels_are_obeyed() {
        let text = written(true, "warn", || {
            tracing::info!("too little");
            tracing::warn!(agent = "weather", "enough");
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["message"], &line["agent"]), (&"enough".into(), &"weather".into()));
    }

    #[test]
    fn log_filter_can_be_replaced() {
        let kept = KeptField::default();
        let writer = kept.clone();
        let settings = LogSettings { filter: Some("warn".to_owned()), ..LogSettings::default() };
        let (subscriber, filter) = subscriber(&settings, move || writer.clone(), false).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            let report = || {
                tracing::info!("a line");
                tracing::info!(target: "log", { log.target = "pingora_core::server" }, "Server starting");
            };
            report();
            for (next, accepted) in [("info", true), ("info,x=loud", false), ("info,pingora_core=info", true)]
            {
                assert_eq!(filter.set(next).is_ok(), accepted, "{next}");
                report();
            }
            assert!(filter.set(&"a".repeat(MAX_FILTER_BYTES + 1)).is_err());
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("a line").count(), 3, "{text}");
        assert_eq!(text.matches("Server starting").count(), 1, "{text}");
        assert_eq!(*filter.text.lock().unwrap(), "info,pingora_core=info");
    }

    #[test]
    fn log_level_shift_keeps_directives() {
        for (filter, more, less) in [
            ("info", "debug", "warn"),
            ("info,access=off", "debug,access=off", "warn,access=off"),
            ("access=off, trace", "trace,access=off", "debug,access=off"),
            ("off", "error", "off"),
            ("access=info", "warn,access=info", "off,access=info"),
        ] {
            assert_eq!(shifted(filter, LevelShift::More), more);
            assert_eq!(shifted(filter, LevelShift::Less), less);
        }
    }

    #[test]
    fn a_bad_filter_is_named() {
        let settings = LogSettings { filter: Some("info,access=loud".to_owned()), ..LogSettings::default() };
        let problem = subscriber(&settings, io::sink, false).err().unwrap();
        assert!(problem.to_string().contains("access=loud"), "{problem}");
    }
}

/// The form of an escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EscapeStyle {
    /// `\u{202e}`, as in Rust. For readers.
    Text,
    /// `\u202e`, as in JSON (RFC 8259 §7): the value stays the same.
    Json,
}

/// Returns true if a reader does not see this character, or sees others differently because of it:
/// controls, line separators, format characters (bidirectional, zero-width, tags), fillers,
/// variation selectors but those of emoji.
#[must_use]
pub(crate) fn is_hidden(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    matches!(character,
        '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}'
        | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns `text` with every hidden character escaped, but for line feeds and tabs.
#[must_use]
pub(crate) fn visible(text: &str, escape: EscapeStyle) -> Cow<'_, str> {
    escaped(text, escape, |character| matches!(character, '\n' | '\t'))
}

fn escaped(text: &str, escape: EscapeStyle, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_escaped = |character: char| is_hidden(character) && !stays(character);
    if !text.chars().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    for character in text.chars() {
        match escape {
            _ if !is_escaped(character) => out.push(character),
            EscapeStyle::Text => out.extend(character.escape_unicode()),
            EscapeStyle::Json => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a string does not fail.
                    write!(out, "\\u{unit:04x}").unwrap_or_default();
                }
            }
        }
    }
    Cow::Owned(out)
}

/// The writers of a log without hidden characters: one event is one line.
struct VisibleLines<M> {
    /// Creates the underlying writers.
    make: M,
    /// The form of the lines.
    escape: EscapeStyle,
}

/// Writes one event, which comes in one piece.
struct VisibleLine<W> {
    /// The underlying writer.
    inner: W,
    /// The form of the line.
    escape: EscapeStyle,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for VisibleLines<M> {
    type Writer = VisibleLine<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        VisibleLine { inner: self.make.make_writer(), escape: self.escape }
    }
}

impl<W: Write> Write for VisibleLine<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (line, end) = match bytes.split_last() {
            Some((b'\n', line)) => (line, true),
            _ => (bytes, false),
        };
        // Almost every line is of printable ASCII, and written as it is. Without an early end, which
        // would compare byte by byte.
        if line.iter().fold(true, |is_plain, byte| is_plain & matches!(byte, b' '..=b'~')) {
            self.inner.write_all(bytes)?;
            return Ok(bytes.len());
        }
        let text = String::from_utf8_lossy(line);
        // The colours of a terminal are the log's own: those of values have been escaped before.
        let shown = escaped(&text, self.escape, |character| matches!(character, '\t' | '\u{1b}'));
        let mut shown = shown.into_owned();
        if end {
            shown.push('\n');
        }
        // In one piece, as it came: the underlying writer takes or drops it whole.
        self.inner.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod visible_tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped() {
        for (given, text, json) in [
            ("plain é 天 ☀️", "plain é 天 ☀️", "plain é 天 ☀️"),
            ("a\u{202e}b", "a\\u{202e}b", "a\\u202eb"),
            ("\u{e0041}", "\\u{e0041}", "\\udb40\\udc41"),
            ("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}", "\\u009b2J\\u007f"),
            ("two\nlines\t", "two\nlines\t", "two\nlines\t"),
        ] {
            assert_eq!(visible(given, EscapeStyle::Text), text);
            assert_eq!(visible(given, EscapeStyle::Json), json);
        }
    }

    #[test]
    fn an_event_is_one_line() {
        let written = |event: &str, escape| {
            let mut line = VisibleLine { inner: Vec::new(), escape };
            line.write_all(event.as_bytes()).unwrap();
            String::from_utf8(line.inner).unwrap()
        };
        assert_eq!(written("plain\n", EscapeStyle::Text), "plain\n");
        assert_eq!(written("a\nERROR b\r\n", EscapeStyle::Text), "a\\u{a}ERROR b\\u{d}\n");
        assert_eq!(written("{\"a\":\"\u{feff}\"}\n", EscapeStyle::Json), "{\"a\":\"\\ufeff\"}\n");
    }
}
