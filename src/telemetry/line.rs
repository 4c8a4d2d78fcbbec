//! The lines of the access log and the audit log, of which a request has one or more.
//!
//! Where the process has its own log and no terminal reads it, they are written straight into the
//! buffer of the log: an event of `tracing` and its formatter cost a tenth of a call. Elsewhere, as in
//! a process that embeds the gateway, they are events of `tracing` with the same fields. A line has
//! the same form from either.

use std::fmt::Display;
use std::time::Duration;

use time::OffsetDateTime;

use super::access_log::{MAX_LOGGED_CHARS, Sanitized};
use super::log::{LogFormat, LogOutput};

/// The usual size of a line, in bytes.
const LINE_BYTES: usize = 640;

/// The name of a field with the characters around it, in each form: put together at compile time.
pub(super) struct FieldName {
    pub(super) text: &'static str,
    pub(super) json: &'static str,
}

/// A line that is being written.
pub(super) struct LogLine {
    text: Vec<u8>,
    form: LogFormat,
}

impl LogLine {
    /// Begins a line of level `info` with this target.
    pub(super) fn new(form: LogFormat, target: &str) -> Self {
        let mut line = Self { text: Vec::with_capacity(LINE_BYTES), form };
        match form {
            LogFormat::Text => {
                line.text.extend_from_slice(&time_text(OffsetDateTime::now_utc()));
                line.push("  INFO ");
                line.push(target);
                line.push(":");
            }
            LogFormat::Json => {
                line.push("{\"timestamp\":\"");
                line.text.extend_from_slice(&time_text(OffsetDateTime::now_utc()));
                line.push("\",\"level\":\"INFO\"");
            }
        }
        line
    }

    /// Adds text of a peer or an identifier, as [`Sanitized`] shows it.
    pub(super) fn plain(&mut self, name: FieldName, value: Option<&str>) {
        let Some(value) = value else { return };
        self.name(name);
        match self.form {
            _ if value.len() > MAX_LOGGED_CHARS || !is_simple(value) => {
                self.shown_text(&Sanitized(value).to_string());
            }
            LogFormat::Text => self.push(value),
            LogFormat::Json => self.quote(value),
        }
    }

    /// Adds text that is quoted in either form.
    pub(super) fn quoted(&mut self, name: FieldName, value: Option<&str>) {
        let Some(value) = value else { return };
        self.name(name);
        match self.form {
            _ if is_simple(value) => self.quote(value),
            LogFormat::Text => self.push(&format!("{value:?}")),
            LogFormat::Json => self.json(value),
        }
    }

    /// Adds a value as it is displayed.
    pub(super) fn shown(&mut self, name: FieldName, value: Option<impl Display>) {
        let Some(value) = value else { return };
        self.name(name);
        self.shown_text(&value.to_string());
    }

    /// Adds a number.
    pub(super) fn number(&mut self, name: FieldName, value: u64) {
        self.name(name);
        self.push(itoa::Buffer::new().format(value));
    }

    /// Adds milliseconds with up to three decimals.
    pub(super) fn millis(&mut self, name: FieldName, value: Option<Duration>) {
        let Some(value) = value else { return };
        self.name(name);
        let micros = rounded_micros(value);
        self.push(itoa::Buffer::new().format(micros / 1000));
        let mut decimals = *b".000";
        set_digits(&mut decimals, 3, u32::try_from(micros % 1000).unwrap_or_default());
        let zeros = decimals.iter().rev().take(2).take_while(|digit| **digit == b'0').count();
        self.text.extend(decimals.iter().take(decimals.len() - zeros));
    }

    /// Ends the line and writes it.
    pub(super) fn write(self, target: &str, output: &LogOutput) {
        output.write(&self.end(target));
    }

    fn end(mut self, target: &str) -> Vec<u8> {
        if self.form == LogFormat::Json {
            self.push(",\"target\":\"");
            self.push(target);
            self.push("\"}");
        }
        self.push("\n");
        self.text
    }

    fn name(&mut self, name: FieldName) {
        self.push(match self.form {
            LogFormat::Text => name.text,
            LogFormat::Json => name.json,
        });
    }

    fn shown_text(&mut self, text: &str) {
        match self.form {
            LogFormat::Text => self.push(text),
            LogFormat::Json => self.json(text),
        }
    }

    fn json(&mut self, text: &str) {
        // Writing to a vector does not fail.
        serde_json::to_writer(&mut self.text, text).unwrap_or_default();
    }

    fn quote(&mut self, text: &str) {
        self.push("\"");
        self.push(text);
        self.push("\"");
    }

    fn push(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }
}

/// Returns true if text is the same in quotation marks as without, in both forms.
fn is_simple(text: &str) -> bool {
    let is_simple = |byte: u8| matches!(byte, b' '..=b'~') & (byte != b'"') & (byte != b'\\');
    // Without an early end, which would compare byte by byte.
    text.bytes().fold(true, |all, byte| all & is_simple(byte))
}

/// Returns microseconds, rounded as they are for the events of `tracing`.
pub(super) fn rounded_micros(duration: Duration) -> u64 {
    u64::try_from((duration.as_nanos() + 500) / 1000).unwrap_or(u64::MAX)
}

/// Returns the time in UTC with microseconds (RFC 3339).
fn time_text(time: OffsetDateTime) -> [u8; 27] {
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    let [month, day, hour, minute, second] =
        [u8::from(time.month()), time.day(), time.hour(), time.minute(), time.second()].map(u32::from);
    set_digits(&mut text, 3, time.year().unsigned_abs());
    set_digits(&mut text, 6, month);
    set_digits(&mut text, 9, day);
    set_digits(&mut text, 12, hour);
    set_digits(&mut text, 15, minute);
    set_digits(&mut text, 18, second);
    set_digits(&mut text, 25, time.microsecond());
    text
}

/// Writes a number over the digits that end at `last`.
fn set_digits(text: &mut [u8], last: usize, mut number: u32) {
    let places = text.iter_mut().take(last + 1).rev();
    for place in places.take_while(|place| place.is_ascii_digit()) {
        *place = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

/// Writes a line of level `info`: `log_line!("target", KIND NAME = VALUE, …)`. The kinds are the
/// methods of [`LogLine`].
macro_rules! log_line {
    ($target:literal, $($kind:ident $name:ident = $value:expr),* $(,)?) => {
        if tracing::enabled!(target: $target, tracing::Level::INFO) {
            match $crate::telemetry::log::output() {
                Some(output) => {
                    let mut line = $crate::telemetry::line::LogLine::new(output.form(), $target);
                    $(line.$kind($crate::telemetry::line::log_line!(@name $name), $value);)*
                    line.write($target, output);
                }
                None => tracing::info!(
                    target: $target,
                    $($name = $crate::telemetry::line::log_line!(@event $kind $value)),*
                ),
            }
        }
    };
    (@name $name:ident) => {
        $crate::telemetry::line::FieldName {
            text: concat!(" ", stringify!($name), "="),
            json: concat!(",\"", stringify!($name), "\":"),
        }
    };
    (@event plain $value:expr) => {
        $value.map(|text: &str| tracing::field::display($crate::telemetry::access_log::Sanitized(text)))
    };
    (@event quoted $value:expr) => { $value };
    (@event shown $value:expr) => { $value.map(tracing::field::display) };
    (@event number $value:expr) => { $value };
    (@event millis $value:expr) => { $value.map($crate::telemetry::line::milliseconds) };
}
pub(super) use log_line;

/// Returns milliseconds with three decimals: a gateway's own part is well under one.
#[expect(clippy::cast_precision_loss, reason = "exact for 285 years")]
pub(super) fn milliseconds(duration: Duration) -> f64 {
    rounded_micros(duration) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::super::log::tests::written;
    use super::*;

    const TEXTS: [&str; 5] = ["plain", "", "say \"hi\"\\\n", "\u{202e}é\u{7f}", "two words"];

    /// Writes an event and a line with the same fields.
    macro_rules! both {
        ($form:expr, $($kind:ident $name:ident = $value:expr),* $(,)?) => {{
            let event = written($form == LogFormat::Json, "info", || {
                tracing::info!(target: "access", $($name = log_line!(@event $kind $value)),*);
            });
            let mut line = LogLine::new($form, "access");
            $(line.$kind(log_line!(@name $name), $value);)*
            let (output, kept) = LogOutput::kept($form);
            line.write("access", &output);
            (event, kept())
        }};
    }

    #[test]
    fn log_line_has_form_of_event() {
        for form in [LogFormat::Text, LogFormat::Json] {
            for text in TEXTS {
                let (event, line) = both!(
                    form,
                    plain caller = Some(text),
                    plain tool = None::<&str>,
                    quoted session = Some(text),
                    quoted task = None::<&str>,
                    shown trace = Some(Sanitized(text)),
                    shown client = None::<&str>,
                    number status = 200_u64,
                    millis ms = Some(Duration::from_nanos(1_234_567_890)),
                    millis agent_ms = Some(Duration::from_millis(3)),
                    millis other_ms = None::<Duration>,
                );
                let without_time = |line: &str| {
                    let (start, rest) = line.split_at(line.find("20").unwrap());
                    (start.to_owned(), rest.split_at(27).1.to_owned())
                };
                assert_eq!(without_time(&event), without_time(&line), "{event}{line}");
            }
        }
    }

    #[test]
    fn log_line_has_form_of_numbers() {
        for (micros, shown) in [(0, "0.0"), (1, "0.001"), (120, "0.12"), (1500, "1.5"), (100_010, "100.01")] {
            let mut line = LogLine { text: Vec::new(), form: LogFormat::Text };
            line.millis(log_line!(@name ms), Some(Duration::from_micros(micros)));
            assert_eq!(line.text, format!(" ms={shown}").as_bytes());
        }
    }

    #[test]
    fn log_time_has_all_digits() {
        let time = OffsetDateTime::from_unix_timestamp(951_782_405).unwrap() + Duration::from_micros(70_009);
        assert_eq!(time_text(time), *b"2000-02-29T00:00:05.070009Z");
    }
}
