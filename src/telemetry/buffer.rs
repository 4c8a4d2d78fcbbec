//! The buffer between the log and its reader, which may stop reading at any time.
//!
//! A line is added without waiting; a thread of its own writes. Lines that exceed the buffer are
//! dropped and counted. See `log` for the content of lines.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::Duration;

use prometheus::IntCounter;
use tracing_subscriber::fmt::MakeWriter;

use crate::sync::{lock, recover};

/// The maximum size of the waiting lines, in bytes. The writing thread may hold as much again.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// Lines that were dropped, by all buffers of the process.
static DROPPED_LINES: LazyLock<Option<IntCounter>> = LazyLock::new(|| {
    let name = "mcp_a2a_gateway_log_lines_dropped_total";
    IntCounter::new(name, "Log lines dropped because their reader did not read.").ok()
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
    /// Notified when a line is added.
    added: Condvar,
    /// Notified when all that was taken is written.
    written: Condvar,
}

#[derive(Default)]
struct LogBufferState {
    waiting: Vec<u8>,
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
        let is_behind = |state: &mut LogBufferState| state.is_writing || !state.waiting.is_empty();
        drop(self.shared.written.wait_timeout_while(lock(&self.shared.state), timeout, is_behind));
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
        state.waiting.extend_from_slice(line);
        drop(state);
        self.added.notify_one();
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
            drop(state);
            self.written.notify_all();
        }
    }

    /// Waits for lines and takes all of them. Returns how many were dropped and must be reported:
    /// none while writing fails, because the report itself would fail and be reported without end.
    fn take(&self, lines: &mut Vec<u8>, reports: bool) -> u64 {
        let state = lock(&self.state);
        let state = self.added.wait_while(state, |state| state.waiting.is_empty());
        let mut state = recover(state);
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
        self.shared.add(line);
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
