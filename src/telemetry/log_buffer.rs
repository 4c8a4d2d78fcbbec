//! The lines of the log on their way to its output: a buffer that never waits, and the thread that writes them.
//!
//! Lines of the access log wait as facts at the thread of their request, which formats several one after the other: with
//! the code in the cache of the processor, where each request would load it anew, and the facts in it too, where another
//! thread would fetch them from the core that wrote them.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant, SystemTime};

use prometheus::IntCounter;
use tracing_subscriber::fmt::MakeWriter;

use super::log::{FormattedLines, LogFormat};
use super::log_line::RepeatedFields;
use super::request_facts::{CompletedRequest, JoinedTexts, RequestFacts, TextPlace};
use crate::sync::{lock, recover};

/// The maximum size of the formatted lines that wait, in bytes.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// The shortest time between two writes. Waking the thread costs more than ten lines: each 10 ms it took 0.5 % of the CPU of a
/// busy gateway. A line after a pause is written at once.
const WRITE_INTERVAL: Duration = Duration::from_millis(50);

/// The size of the waiting lines at which they are written before the interval is over.
const EARLY_WRITE_BYTES: usize = MAX_WAITING_BYTES / 4;

/// The number of lines of the access log that a thread formats at once. Fewer are formatted before another line of the
/// thread, and when the lines are written.
const BATCH_LINES: usize = 32;

/// The size of their texts, in bytes, at which fewer are formatted too: those of callers with long or varied texts.
const BATCH_TEXT_BYTES: usize = 8192;

/// The maximum number of lines of several threads that are put in order in one interval: those that people may read.
const MAX_ORDERED_LINES: usize = 80;

/// Lines that were dropped, by all buffers of the process.
static DROPPED_LINES: LazyLock<Option<IntCounter>> = LazyLock::new(|| {
    let name = "mcp_a2a_gateway_log_lines_dropped_total";
    IntCounter::new(
        name,
        "Log lines dropped because the reader of standard error did not read; of the whole process.",
    )
    .ok()
});

/// Returns the counter of dropped lines, which is one for the process, as the log is.
pub(super) fn dropped_lines() -> Option<&'static IntCounter> {
    DROPPED_LINES.as_ref()
}

/// The writer of log lines that never waits. Clones write to one buffer.
#[derive(Clone, Default)]
pub(super) struct LogBuffer {
    shared: Arc<LogBufferShared>,
}

#[derive(Default)]
struct LogBufferShared {
    form: LogFormat,
    state: Mutex<LogBufferState>,
    /// The lines of the access log that are not formatted yet, of each thread that had some.
    batches: Mutex<Vec<Arc<LineBatch>>>,
    /// True if the writing thread waits for the next line, and not for the end of an interval.
    is_idle: AtomicBool,
    /// Notified when lines are to be written.
    due: Condvar,
    /// Notified when all that was taken is written.
    written: Condvar,
}

#[derive(Default)]
struct LogBufferState {
    /// Formatted lines.
    lines: Vec<u8>,
    /// True if a thread has lines that are not formatted, and the writing thread was idle.
    is_called: bool,
    /// True if the lines are to be written before the interval is over.
    is_flushed: bool,
    /// True if the thread has taken lines and not written them yet.
    is_writing: bool,
    /// Lines dropped since the last report of dropped lines.
    dropped: u64,
}

/// Lines of the access log of one thread.
struct LineBatch {
    /// The buffer that they are for.
    buffer: Weak<LogBufferShared>,
    lines: Mutex<WaitingLines>,
}

thread_local! {
    /// The lines of this thread, for the buffer that it used last: a process has one.
    static BATCH: Cell<Option<Arc<LineBatch>>> = const { Cell::new(None) };
}

/// Lines of the access log in their order.
#[derive(Default)]
struct WaitingLines {
    access: Vec<WaitingAccess>,
    texts: JoinedTexts,
    /// The room to format them, which begins with the lines that were formatted last.
    formatted: Vec<u8>,
    /// Fields of the line that was formatted last: calls of a busy client have half of them in common.
    repeated: RepeatedFields,
}

/// A line of the access log that is not formatted yet.
struct WaitingAccess {
    /// The end of its request.
    ended: Instant,
    place: TextPlace,
    facts: RequestFacts,
}

impl WaitingLines {
    fn add(&mut self, ended: Instant, line: &CompletedRequest<'_>) {
        let place = self.texts.add(&line.texts);
        self.access.push(WaitingAccess { ended, place, facts: line.facts });
    }

    /// Takes the lines of several threads, in the order of their ends.
    fn join(mut batches: Vec<&mut Self>) -> Self {
        let mut lines: Vec<_> =
            batches.iter().flat_map(|batch| batch.access.iter().map(|line| (&batch.texts, line))).collect();
        lines.sort_by_key(|(_, line)| line.ended);
        let mut joined = Self::default();
        for (texts, WaitingAccess { ended, place, facts }) in lines {
            joined.add(*ended, &CompletedRequest { texts: texts.read(place, None), facts: *facts });
        }
        batches.iter_mut().for_each(|batch| batch.clear());
        joined
    }

    fn clear(&mut self) {
        self.access.clear();
        self.texts.clear();
    }

    /// Removes all lines, and returns them formatted.
    fn format(&mut self, form: LogFormat) -> &[u8] {
        let Self { access, texts, formatted, repeated } = self;
        let mut lines = FormattedLines::new(formatted, form);
        // Requests read one clock only.
        let (now, clock) = (Instant::now(), SystemTime::now());
        let mut before: Option<(&TextPlace, CompletedRequest<'_>)> = None;
        for WaitingAccess { ended, place, facts } in &*access {
            let known = before.as_ref().map(|(place, line)| (*place, line.texts));
            let line = CompletedRequest { texts: texts.read(place, known), facts: *facts };
            let is_repeated = before.is_some_and(|(earlier, before)| {
                earlier.has_common_texts_of(place) && before.facts.repeated() == facts.repeated()
            });
            if !is_repeated {
                repeated.clear();
            }
            let at = clock.checked_sub(now.saturating_duration_since(*ended)).unwrap_or(clock);
            line.write_to(at, Some(&mut lines), repeated);
            before = Some((place, line));
        }
        access.clear();
        texts.clear();
        lines.finish()
    }
}

impl LogBuffer {
    /// Starts the thread that writes what is added to `output`, with lines of the access log in this form.
    ///
    /// # Errors
    ///
    /// The error of the system, if it gives no thread.
    pub(super) fn start(output: impl Write + Send + 'static, form: LogFormat) -> io::Result<Self> {
        let buffer = Self { shared: Arc::new(LogBufferShared { form, ..LogBufferShared::default() }) };
        let shared = Arc::clone(&buffer.shared);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || shared.write_to(output))?;
        Ok(buffer)
    }

    /// Waits until all lines are written, but no longer than `timeout`.
    pub(super) fn flush(&self, timeout: Duration) {
        self.shared.collect();
        let mut state = lock(&self.shared.state);
        state.is_flushed = true;
        self.shared.due.notify_one();
        let is_behind = |state: &mut LogBufferState| state.is_writing || !state.lines.is_empty();
        drop(self.shared.written.wait_timeout_while(state, timeout, is_behind));
    }

    /// Adds a line, or drops it if there is no room. It follows those of the access log of this thread.
    pub(super) fn add(&self, line: &[u8]) {
        if let Some(batch) = self.known_batch() {
            self.shared.add_batch(&mut lock(&batch.lines));
            keep(batch);
        }
        self.shared.add(line, 1);
    }

    /// Adds the line of a request that ended at this time, or drops it if there is no room.
    pub(super) fn add_access(&self, ended: Instant, line: &CompletedRequest<'_>) {
        let batch = self.known_batch().unwrap_or_else(|| LogBufferShared::begin_batch(&self.shared));
        let mut lines = lock(&batch.lines);
        lines.add(ended, line);
        if lines.access.len() >= BATCH_LINES || lines.texts.len() >= BATCH_TEXT_BYTES {
            self.shared.add_batch(&mut lines);
        }
        // Read while the lines are locked: a thread that became idle has either seen this line, or is seen idle here.
        let is_due = self.shared.is_idle.load(Ordering::Relaxed);
        drop(lines);
        keep(batch);
        if is_due {
            self.shared.wake();
        }
    }

    /// Takes the lines of this thread, if it had some.
    fn known_batch(&self) -> Option<Arc<LineBatch>> {
        let is_ours = |batch: &Arc<LineBatch>| Weak::as_ptr(&batch.buffer) == Arc::as_ptr(&self.shared);
        BATCH.try_with(Cell::take).ok().flatten().filter(is_ours)
    }
}

/// Keeps the lines of this thread. If it is ending, they are dropped here, and those that wait are still collected.
fn keep(batch: Arc<LineBatch>) {
    _ = BATCH.try_with(|kept| kept.set(Some(batch)));
}

impl LogBufferShared {
    /// Begins the lines of a thread.
    fn begin_batch(self: &Arc<Self>) -> Arc<LineBatch> {
        let batch = Arc::new(LineBatch { buffer: Arc::downgrade(self), lines: Mutex::default() });
        let mut batches = lock(&self.batches);
        self.drop_ended(&mut batches);
        batches.push(Arc::clone(&batch));
        batch
    }

    /// Adds the lines of threads that have ended, and drops their room.
    fn drop_ended(&self, batches: &mut Vec<Arc<LineBatch>>) {
        batches.retain(|batch| {
            let is_used = Arc::strong_count(batch) > 1;
            if !is_used {
                self.add_batch(&mut lock(&batch.lines));
            }
            is_used
        });
    }

    /// Adds formatted lines, or drops them if there is no room.
    fn add(&self, lines: &[u8], count: usize) {
        self.add_to(lock(&self.state), lines, count);
    }

    fn add_to(&self, mut state: MutexGuard<'_, LogBufferState>, lines: &[u8], count: usize) {
        let before = state.lines.len();
        if before.saturating_add(lines.len()) > MAX_WAITING_BYTES {
            state.count_dropped(count);
            return;
        }
        state.lines.extend_from_slice(lines);
        let fills = before < EARLY_WRITE_BYTES && state.lines.len() >= EARLY_WRITE_BYTES;
        let is_due = self.is_idle.swap(false, Ordering::Relaxed) || fills;
        drop(state);
        if is_due {
            self.due.notify_one();
        }
    }

    /// Formats and adds the lines of a thread.
    fn add_batch(&self, lines: &mut WaitingLines) {
        let count = lines.access.len();
        if count > 0 {
            self.add(lines.format(self.form), count);
        }
    }

    /// Formats and adds the lines of all threads. Few of them, as people see them, are in the order in which their requests
    /// ended.
    fn collect(&self) {
        let mut batches = lock(&self.batches);
        let count: usize = batches.iter().map(|batch| lock(&batch.lines).access.len()).sum();
        if count <= MAX_ORDERED_LINES {
            self.add_joined(&batches);
        }
        // Each on its own, so that no thread waits for the lines of others.
        batches.iter().for_each(|batch| self.add_batch(&mut lock(&batch.lines)));
        self.drop_ended(&mut batches);
    }

    /// Adds the lines of several threads in the order in which their requests ended.
    fn add_joined(&self, batches: &[Arc<LineBatch>]) {
        let mut held: Vec<_> = batches.iter().map(|batch| lock(&batch.lines)).collect();
        held.retain(|lines| !lines.access.is_empty());
        if held.len() < 2 {
            return;
        }
        let mut lines = WaitingLines::join(held.iter_mut().map(|lines| &mut **lines).collect());
        let (count, state) = (lines.access.len(), lock(&self.state));
        // Only now: the next lines of a thread come behind these.
        drop(held);
        self.add_to(state, lines.format(self.form), count);
    }

    /// Has the writing thread collect the lines if it is idle.
    fn wake(&self) {
        if self.is_idle.swap(false, Ordering::Relaxed) {
            lock(&self.state).is_called = true;
            self.due.notify_one();
        }
    }

    fn write_to(&self, mut output: impl Write) {
        let (mut lines, mut is_written) = (Vec::new(), true);
        loop {
            lines.clear();
            let dropped = self.take(&mut lines, is_written);
            if dropped > 0 {
                // There is room for it: the buffer was emptied this moment.
                tracing::warn!(lines = dropped, "dropped log lines: their reader did not read");
            }
            is_written = output.write_all(&lines).and_then(|()| output.flush()).is_ok();
            let mut state = lock(&self.state);
            state.is_writing = false;
            if !is_written {
                state.count_dropped(lines.iter().filter(|byte| **byte == b'\n').count());
            }
            self.written.notify_all();
            let keeps_waiting =
                |state: &mut LogBufferState| !state.is_flushed && state.lines.len() < EARLY_WRITE_BYTES;
            drop(self.due.wait_timeout_while(state, WRITE_INTERVAL, keeps_waiting));
        }
    }

    /// Waits for lines and takes all of them, into an empty buffer. Returns how many were dropped and must be reported:
    /// none while writing fails, because the report itself would fail and be reported without end.
    fn take(&self, lines: &mut Vec<u8>, reports: bool) -> u64 {
        loop {
            // First, so that there is room for those that are collected.
            let mut state = lock(&self.state);
            std::mem::swap(&mut state.lines, lines);
            state.is_writing = !lines.is_empty();
            drop(state);
            // Before the lines are collected: a thread that adds one later sees it.
            self.is_idle.store(true, Ordering::Relaxed);
            self.collect();
            let has_none = |state: &mut LogBufferState| {
                lines.is_empty() && state.lines.is_empty() && !std::mem::take(&mut state.is_called)
            };
            let mut state = recover(self.due.wait_while(lock(&self.state), has_none));
            if lines.is_empty() && state.lines.is_empty() {
                continue;
            }
            self.is_idle.store(false, Ordering::Relaxed);
            lines.append(&mut state.lines);
            (state.is_writing, state.is_flushed) = (true, false);
            return if reports { std::mem::take(&mut state.dropped) } else { 0 };
        }
    }
}

impl LogBufferState {
    fn count_dropped(&mut self, lines: usize) {
        let lines = u64::try_from(lines).unwrap_or(u64::MAX);
        self.dropped = self.dropped.saturating_add(lines);
        if let Some(counter) = dropped_lines() {
            counter.inc_by(lines);
        }
    }
}

impl Write for LogBuffer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.add(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogBuffer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use time::OffsetDateTime;
    use time::format_description::well_known::Rfc3339;

    use super::*;
    use crate::hex::HexText;
    use crate::telemetry::access_log::tests::without_times;
    use crate::telemetry::label::Method;
    use crate::telemetry::log::tests::written;
    use crate::telemetry::log_line::MAX_LOGGED_CHARS;
    use crate::telemetry::request_facts::RequestTexts;
    use crate::telemetry::request_facts::tests::TEXTS;

    /// Counts the writes.
    struct CountedWrites(Arc<AtomicUsize>);

    impl Write for CountedWrites {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Each variant comes behind a line that differs from it in one field, and behind itself.
    #[test]
    fn repeated_fields_are_those_of_the_line() {
        let long = "t".repeat(150);
        let long_id = "7".repeat(MAX_LOGGED_CHARS);
        let texts = TEXTS;
        let wide = RequestTexts { caller: &long, listener: &long, path: &long, ..texts };
        let facts = RequestFacts {
            status: 200,
            rpc: Some(Method::ToolsCall),
            era: Some("legacy"),
            ..RequestFacts::default()
        };
        let client = Some("2001:db8::1".parse().unwrap());
        let with_texts = |texts| CompletedRequest { texts, facts };
        let with_facts = |facts| CompletedRequest { texts, facts };
        let pairs = [
            [with_texts(texts), with_texts(RequestTexts { request: "7f-22", ..texts })],
            [with_texts(texts), with_texts(RequestTexts { caller: "bob", ..texts })],
            [with_texts(texts), with_texts(RequestTexts { listener: "0.0.0.0:8081", ..texts })],
            [with_texts(texts), with_texts(RequestTexts { method: "PUT", ..texts })],
            [with_texts(texts), with_texts(RequestTexts { path: "/mcp/w", ..texts })],
            [with_texts(texts), with_texts(RequestTexts { tool: "", ..texts })],
            [with_texts(texts), with_texts(RequestTexts { agent: "bard", ..texts })],
            // The same characters in other texts.
            [with_texts(texts), with_texts(RequestTexts { tool: "forecastw", agent: "eather", ..texts })],
            [with_facts(facts), with_facts(RequestFacts { status: 503, ..facts })],
            [with_facts(facts), with_facts(RequestFacts { rpc: Some(Method::TasksGet), ..facts })],
            [with_facts(facts), with_facts(RequestFacts { era: Some("modern"), ..facts })],
            [with_facts(facts), with_facts(RequestFacts { version: Some("2026-07-28"), ..facts })],
            [with_facts(facts), with_facts(RequestFacts { trace: Some(HexText::new([1; 16])), ..facts })],
            [with_facts(facts), with_facts(RequestFacts { client, ..facts })],
            [with_facts(facts), with_facts(RequestFacts { session: Some(1), task: Some(2), ..facts })],
            [
                with_facts(facts),
                with_facts(RequestFacts { context: Some(3), fault: Some("timeout"), ..facts }),
            ],
            // Text that is escaped is not copied.
            [with_texts(texts), with_texts(RequestTexts { tool: "fore\ncast", ..texts })],
            // Fields that do not fit into the block of the next line, and those that never do.
            [with_texts(wide), with_texts(RequestTexts { request: &long_id, ..wide })],
            [with_texts(texts), with_texts(RequestTexts { tool: &long, agent: &long, ..wide })],
        ];
        for form in [LogFormat::Text, LogFormat::Json] {
            for pair in pairs {
                let mut lines = WaitingLines::default();
                let [one, other] = pair;
                let all = [one, one, other, other, one];
                all.iter().for_each(|line| lines.add(Instant::now(), line));
                let formatted = String::from_utf8(lines.format(form).to_vec()).unwrap();
                assert!(!lines.repeated.is_empty(), "fields of the last line are kept");
                let log = || all.iter().for_each(|line| line.log(Instant::now()));
                let expected = written(form == LogFormat::Json, "info", log);
                assert_eq!(without_times(&formatted), without_times(&expected));
            }
        }
    }

    /// A thread that woke for each line would write about as often as there are lines.
    #[test]
    fn lines_of_an_interval_are_one_write() {
        const LINES: usize = 200;
        let writes = Arc::new(AtomicUsize::new(0));
        let begun = Instant::now();
        let buffer = LogBuffer::start(CountedWrites(writes.clone()), LogFormat::Text).unwrap();
        for _ in 0..LINES {
            buffer.add(b"line\n");
            let next = Instant::now() + Duration::from_micros(100);
            while Instant::now() < next {
                std::thread::yield_now();
            }
        }
        buffer.flush(Duration::from_secs(10));
        let writes = writes.load(Ordering::Relaxed);
        // One at the end of each interval, one at once, and one by the flush.
        let most = begun.elapsed().as_millis() / WRITE_INTERVAL.as_millis() + 2;
        assert!(writes > 0 && writes as u128 <= most, "{writes} writes, {most} intervals");
    }

    fn access(path: &str) -> CompletedRequest<'_> {
        let texts = RequestTexts { request: "0123456789", path, ..RequestTexts::default() };
        CompletedRequest { texts, ..CompletedRequest::default() }
    }

    /// Keeps all that is written.
    #[derive(Clone, Default)]
    struct KeptLines(Arc<Mutex<Vec<u8>>>);

    impl KeptLines {
        fn text(&self) -> String {
            String::from_utf8(lock(&self.0).clone()).unwrap()
        }
    }

    impl Write for KeptLines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_of_a_thread_are_written_in_their_order_and_after_its_end_too() {
        const LINES: usize = 3 * BATCH_LINES + 1;
        let kept = KeptLines::default();
        let buffer = LogBuffer::start(kept.clone(), LogFormat::Text).unwrap();
        let threads = [0, 1, 2, 3].map(|thread| {
            let buffer = buffer.clone();
            std::thread::spawn(move || {
                for line in 0..LINES {
                    match line % (BATCH_LINES + 4) {
                        7 => buffer.add(format!("path=/{thread}/{line} \n").as_bytes()),
                        _ => buffer.add_access(Instant::now(), &access(&format!("/{thread}/{line}"))),
                    }
                }
            })
        });
        // To the end of each thread, with its thread-local values.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        buffer.flush(Duration::from_secs(10));
        let text = kept.text();
        let paths = || text.lines().filter_map(|line| line.split_once("path=/")?.1.split_once(' '));
        for thread in 0..4 {
            let start = format!("{thread}/");
            let lines: Vec<_> = paths().filter_map(|(path, _)| path.strip_prefix(&start)).collect();
            let expected: Vec<_> = (0..LINES).map(|line| line.to_string()).collect();
            assert_eq!(lines, expected, "{text}");
        }
        // Threads that have ended keep no room.
        buffer.flush(Duration::from_secs(10));
        assert!(lock(&buffer.shared.batches).is_empty());
    }

    #[test]
    fn few_lines_of_several_threads_are_in_the_order_of_their_requests() {
        let buffer = LogBuffer::default();
        let threads = [(); 2].map(|()| {
            let (buffer, (paths, added)) = (buffer.clone(), std::sync::mpsc::channel::<&'static str>());
            let (done, is_added) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || {
                for path in added {
                    buffer.add_access(Instant::now(), &access(path));
                    done.send(()).unwrap();
                }
            });
            (thread, paths, is_added)
        });
        for (at, path) in ["/1", "/2", "/3", "/4", "/5"].into_iter().enumerate() {
            let (_, paths, is_added) = &threads[(at + 1) % 2];
            paths.send(path).unwrap();
            is_added.recv().unwrap();
        }
        buffer.shared.collect();
        let lines = String::from_utf8(lock(&buffer.shared.state).lines.clone()).unwrap();
        let paths: Vec<_> = lines
            .lines()
            .filter_map(|line| line.split_once("path=")?.1.split_once(' '))
            .map(|(path, _)| path)
            .collect();
        assert_eq!(paths, ["/1", "/2", "/3", "/4", "/5"], "{lines}");
        for (thread, paths, _) in threads {
            drop(paths);
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_line_after_a_pause_is_written_without_another_one() {
        let kept = KeptLines::default();
        let buffer = LogBuffer::start(kept.clone(), LogFormat::Text).unwrap();
        for line in 1..=3 {
            buffer.add_access(Instant::now(), &access("/a"));
            let begun = Instant::now();
            while kept.text().lines().count() < line {
                assert!(begun.elapsed() < Duration::from_secs(10), "line {line} is not written");
                std::thread::yield_now();
            }
            // The thread is idle again.
            while !buffer.shared.is_idle.load(Ordering::Relaxed) {
                assert!(begun.elapsed() < Duration::from_secs(10), "not idle after line {line}");
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn lines_without_room_are_dropped_and_counted() {
        let path = "/a".repeat(16 * 1024);
        let buffer = LogBuffer::default();
        let lines = 2 * MAX_WAITING_BYTES / (2 * MAX_LOGGED_CHARS);
        for _ in 0..lines {
            buffer.add_access(Instant::now(), &access(&path));
        }
        buffer.shared.collect();
        let state = lock(&buffer.shared.state);
        assert!(state.lines.len() <= MAX_WAITING_BYTES, "{}", state.lines.len());
        let kept = state.lines.iter().filter(|byte| **byte == b'\n').count();
        assert!(kept > 1000 && state.dropped > 0, "{kept} lines, {} dropped", state.dropped);
        assert_eq!(u64::try_from(lines - kept).unwrap(), state.dropped);
    }

    #[test]
    fn line_that_waited_has_the_time_of_its_request_and_texts_that_are_cut() {
        let mut waiting = WaitingLines::default();
        let (before, ended) = (SystemTime::now(), Instant::now());
        let after = SystemTime::now();
        let path = "é".repeat(5000);
        let texts = RequestTexts { path: &path, ..RequestTexts::default() };
        waiting.add(ended, &CompletedRequest { texts, ..CompletedRequest::default() });
        assert!(waiting.texts.len() < 2 * (MAX_LOGGED_CHARS + 2));
        let line = str::from_utf8(waiting.format(LogFormat::Text)).unwrap();
        let (time, rest) = line.split_once("  INFO access: ").unwrap();
        let at = SystemTime::from(OffsetDateTime::parse(time, &Rfc3339).unwrap());
        // Two clocks are compared, and the digits end with microseconds.
        const TOLERANCE: Duration = Duration::from_millis(5);
        assert!(at + TOLERANCE >= before && at <= after + TOLERANCE, "{line}");
        assert!(rest.contains("path="), "{line}");
        assert!(line.contains(&format!("path={}… ", "é".repeat(MAX_LOGGED_CHARS))), "{line}");
    }
}
