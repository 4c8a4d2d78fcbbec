//! The lines of the log on their way to its output: a buffer that never waits, and the thread that writes them.
//!
//! Lines of the access log wait as facts: the thread formats all of an interval one after the other, with the code in the
//! cache of the processor, where each request would load it anew.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::{Duration, Instant, SystemTime};

use prometheus::IntCounter;
use tracing_subscriber::fmt::MakeWriter;

use super::access_log::{ACCESS_TEXTS, AccessFacts, AccessLine, AccessTexts};
use super::log::{FormattedLines, LogFormat};
use super::log_line::MAX_LOGGED_CHARS;
use crate::sync::{lock, recover};

/// The maximum size of the waiting lines, in bytes. Formatted lines of the writing
/// thread are at most about six times as large, if all texts are control characters.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// The shortest time between two writes: waking the thread for each line costs more than the line.
/// A line after a pause is written at once.
const WRITE_INTERVAL: Duration = Duration::from_millis(10);

/// The size of the waiting lines at which they are written before the interval is over.
const EARLY_WRITE_BYTES: usize = MAX_WAITING_BYTES / 4;

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
    /// Notified when lines are to be written.
    due: Condvar,
    /// Notified when all that was taken is written.
    written: Condvar,
}

#[derive(Default)]
struct LogBufferState {
    waiting: WaitingLines,
    /// True if the thread waits for the next line, and not for the end of an interval.
    is_idle: bool,
    /// True if the lines are to be written before the interval is over.
    is_flushed: bool,
    /// True if the thread has taken lines and not written them yet.
    is_writing: bool,
    /// Lines dropped since the last report of dropped lines.
    dropped: u64,
}

/// Lines in their order.
#[derive(Default)]
struct WaitingLines {
    /// Formatted lines.
    formatted: Vec<u8>,
    /// Lines of the access log.
    access: Vec<WaitingAccess>,
    /// The texts of these, which follow each other.
    texts: String,
}

/// A line of the access log that is not formatted yet.
struct WaitingAccess {
    /// The end of its request.
    ended: Instant,
    /// The length of the formatted lines before it.
    place: usize,
    /// The lengths of [`AccessTexts::all`], in bytes.
    lengths: [u16; ACCESS_TEXTS],
    facts: AccessFacts,
}

/// The maximum size of a waiting line of the access log, in bytes.
const MAX_ACCESS_BYTES: usize = size_of::<WaitingAccess>() + ACCESS_TEXTS * 4 * (MAX_LOGGED_CHARS + 1);

/// Returns the part of a peer's text that can be logged, and one character more: if there is more, the line says so.
fn loggable(text: &str) -> &str {
    if text.len() <= MAX_LOGGED_CHARS {
        return text;
    }
    let end = text.char_indices().nth(MAX_LOGGED_CHARS + 1);
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

impl WaitingLines {
    fn is_empty(&self) -> bool {
        self.formatted.is_empty() && self.access.is_empty()
    }

    /// Returns the size in bytes.
    fn size(&self) -> usize {
        let texts = self.formatted.len().saturating_add(self.texts.len());
        texts.saturating_add(self.access.len().saturating_mul(size_of::<WaitingAccess>()))
    }

    fn add_access(&mut self, ended: Instant, line: &AccessLine<'_>) {
        let mut lengths = [0; ACCESS_TEXTS];
        for (length, text) in lengths.iter_mut().zip(line.texts.all()) {
            let text = loggable(text);
            self.texts.push_str(text);
            // Four bytes for each character at most.
            *length = u16::try_from(text.len()).unwrap_or_default();
        }
        self.access.push(WaitingAccess { ended, place: self.formatted.len(), lengths, facts: line.facts });
    }

    /// Removes all lines and adds them to `lines`, formatted.
    fn format(&mut self, form: LogFormat, lines: &mut Vec<u8>) {
        // Requests read one clock only.
        let (now, clock) = (Instant::now(), SystemTime::now());
        let (mut written, mut texts) = (0, self.texts.as_str());
        for WaitingAccess { ended, place, lengths, facts } in &self.access {
            lines.extend_from_slice(self.formatted.get(written..*place).unwrap_or_default());
            written = *place;
            let of_line = lengths.map(|length| {
                let (text, after) = texts.split_at_checked(usize::from(length)).unwrap_or_default();
                texts = after;
                text
            });
            let line = AccessLine { texts: AccessTexts::of(of_line), facts: *facts };
            let at = clock.checked_sub(now.saturating_duration_since(*ended)).unwrap_or(clock);
            line.write_to(at, Some(&mut FormattedLines { lines, form }));
        }
        lines.extend_from_slice(self.formatted.get(written..).unwrap_or_default());
        self.formatted.clear();
        self.access.clear();
        self.texts.clear();
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
        let mut state = lock(&self.shared.state);
        state.is_flushed = true;
        self.shared.due.notify_one();
        let is_behind = |state: &mut LogBufferState| state.is_writing || !state.waiting.is_empty();
        drop(self.shared.written.wait_timeout_while(state, timeout, is_behind));
    }

    /// Adds a line, or drops it if there is no room.
    pub(super) fn add(&self, line: &[u8]) {
        self.shared.add(line.len(), |waiting| waiting.formatted.extend_from_slice(line));
    }

    /// Adds the line of a request that ended at this time, or drops it if there is no room for the longest.
    pub(super) fn add_access(&self, ended: Instant, line: &AccessLine<'_>) {
        self.shared.add(MAX_ACCESS_BYTES, |waiting| waiting.add_access(ended, line));
    }
}

impl LogBufferShared {
    /// Adds a line of about this size with `add`, or drops it if there is no room.
    fn add(&self, size: usize, add: impl FnOnce(&mut WaitingLines)) {
        let mut state = lock(&self.state);
        let before = state.waiting.size();
        if before.saturating_add(size) > MAX_WAITING_BYTES {
            state.count_dropped(1);
            return;
        }
        add(&mut state.waiting);
        let fills = before < EARLY_WRITE_BYTES && state.waiting.size() >= EARLY_WRITE_BYTES;
        let is_due = std::mem::take(&mut state.is_idle) || fills;
        drop(state);
        if is_due {
            self.due.notify_one();
        }
    }

    fn write_to(&self, mut output: impl Write) {
        let (mut taken, mut lines, mut is_written) = (WaitingLines::default(), Vec::new(), true);
        loop {
            let dropped = self.take(&mut taken, is_written);
            if dropped > 0 {
                // There is room for it: the buffer was emptied this moment.
                tracing::warn!(lines = dropped, "dropped log lines: their reader did not read");
            }
            lines.clear();
            taken.format(self.form, &mut lines);
            is_written = output.write_all(&lines).and_then(|()| output.flush()).is_ok();
            let mut state = lock(&self.state);
            state.is_writing = false;
            if !is_written {
                let lost = lines.iter().filter(|byte| **byte == b'\n').count();
                state.count_dropped(u64::try_from(lost).unwrap_or(u64::MAX));
            }
            self.written.notify_all();
            let keeps_waiting =
                |state: &mut LogBufferState| !state.is_flushed && state.waiting.size() < EARLY_WRITE_BYTES;
            drop(self.due.wait_timeout_while(state, WRITE_INTERVAL, keeps_waiting));
        }
    }

    /// Waits for lines and takes all of them. Returns how many were dropped and must be reported:
    /// none while writing fails, because the report itself would fail and be reported without end.
    fn take(&self, lines: &mut WaitingLines, reports: bool) -> u64 {
        let mut state = lock(&self.state);
        state.is_idle = true;
        let mut state = recover(self.due.wait_while(state, |state| state.waiting.is_empty()));
        state.is_idle = false;
        state.is_flushed = false;
        std::mem::swap(&mut state.waiting, lines);
        state.is_writing = true;
        if reports { std::mem::take(&mut state.dropped) } else { 0 }
    }
}

impl LogBufferState {
    fn count_dropped(&mut self, lines: u64) {
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

    #[test]
    fn lines_without_room_are_dropped_and_counted() {
        let path = "/a".repeat(16 * 1024);
        let texts = AccessTexts { request: "0123456789", path: &path, ..AccessTexts::default() };
        let line = AccessLine { texts, ..AccessLine::default() };
        let buffer = LogBuffer::default();
        for _ in 0..2 * MAX_WAITING_BYTES / size_of::<WaitingAccess>() {
            buffer.add_access(Instant::now(), &line);
        }
        let mut state = std::mem::take(&mut *lock(&buffer.shared.state));
        let count = state.waiting.access.len();
        assert!(state.waiting.size() <= MAX_WAITING_BYTES, "{}", state.waiting.size());
        assert!(count > 1000 && state.dropped > 0, "{count} lines, {} dropped", state.dropped);
        let mut lines = Vec::new();
        state.waiting.format(LogFormat::Json, &mut lines);
        assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), count);
        assert!(state.waiting.is_empty());
    }

    #[test]
    fn line_that_waited_has_the_time_of_its_request_and_texts_that_are_cut() {
        let mut waiting = WaitingLines::default();
        let (before, ended) = (SystemTime::now(), Instant::now());
        let after = SystemTime::now();
        let path = "é".repeat(5000);
        let texts = AccessTexts { path: &path, ..AccessTexts::default() };
        waiting.add_access(ended, &AccessLine { texts, ..AccessLine::default() });
        assert!(waiting.texts.len() < 2 * (MAX_LOGGED_CHARS + 2));
        let mut lines = Vec::new();
        waiting.format(LogFormat::Text, &mut lines);
        let line = String::from_utf8(lines).unwrap();
        let (time, rest) = line.split_once("  INFO access: ").unwrap();
        let at = SystemTime::from(OffsetDateTime::parse(time, &Rfc3339).unwrap());
        // Two clocks are compared, and the digits end with microseconds.
        const TOLERANCE: Duration = Duration::from_millis(5);
        assert!(at + TOLERANCE >= before && at <= after + TOLERANCE, "{line}");
        assert!(rest.contains("path="), "{line}");
        assert!(line.contains(&format!("path={}… ", "é".repeat(MAX_LOGGED_CHARS))), "{line}");
    }
}
