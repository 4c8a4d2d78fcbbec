//! The lines of the log on their way to its output: a buffer that never waits, and the thread that writes them.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::Duration;

use prometheus::IntCounter;
use tracing_subscriber::fmt::MakeWriter;

use crate::sync::{lock, recover};

/// The maximum size of the waiting lines, in bytes. The writing thread may hold as much again.
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
    state: Mutex<LogBufferState>,
    /// Notified when lines are to be written.
    due: Condvar,
    /// Notified when all that was taken is written.
    written: Condvar,
}

#[derive(Default)]
struct LogBufferState {
    waiting: Vec<u8>,
    /// True if the thread waits for the next line, and not for the end of an interval.
    is_idle: bool,
    /// True if the lines are to be written before the interval is over.
    is_flushed: bool,
    /// True if the thread has taken lines and not written them yet.
    is_writing: bool,
    /// Lines dropped since the last report of dropped lines.
    dropped: u64,
}

impl LogBuffer {
    /// Starts the thread that writes what is added to `output`.
    ///
    /// # Errors
    ///
    /// The error of the system, if it gives no thread.
    pub(super) fn start(output: impl Write + Send + 'static) -> io::Result<Self> {
        let buffer = Self::default();
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
        self.shared.add(line);
    }
}

impl LogBufferShared {
    /// Adds a line, or drops it if there is no room.
    fn add(&self, line: &[u8]) {
        let mut state = lock(&self.state);
        if state.waiting.len().saturating_add(line.len()) > MAX_WAITING_BYTES {
            state.count_dropped(1);
            return;
        }
        let before = state.waiting.len();
        state.waiting.extend_from_slice(line);
        let fills = before < EARLY_WRITE_BYTES && state.waiting.len() >= EARLY_WRITE_BYTES;
        let is_due = std::mem::take(&mut state.is_idle) || fills;
        drop(state);
        if is_due {
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
                let lost = lines.iter().filter(|byte| **byte == b'\n').count();
                state.count_dropped(u64::try_from(lost).unwrap_or(u64::MAX));
            }
            self.written.notify_all();
            let keeps_waiting =
                |state: &mut LogBufferState| !state.is_flushed && state.waiting.len() < EARLY_WRITE_BYTES;
            drop(self.due.wait_timeout_while(state, WRITE_INTERVAL, keeps_waiting));
        }
    }

    /// Waits for lines and takes all of them. Returns how many were dropped and must be reported:
    /// none while writing fails, because the report itself would fail and be reported without end.
    fn take(&self, lines: &mut Vec<u8>, reports: bool) -> u64 {
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
    use std::time::Instant;

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
        let buffer = LogBuffer::start(CountedWrites(writes.clone())).unwrap();
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
}
