//! The form of the lines of the access log and the audit log.
//!
//! Each request has one or more of them, so they are written straight into the buffer of the line.
//! All other events, and all events on a terminal, are formatted by `tracing-subscriber`, and a line
//! has the same form from either.

use std::fmt::{self, Write as _};

use time::OffsetDateTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use super::log::LogFormat;

/// Formats the frequent events itself, and the others by `standard`.
pub(super) struct LineFormat<F> {
    /// The formatter of `tracing-subscriber` for the same form.
    pub(super) standard: F,
    /// The form of the lines.
    pub(super) form: LogFormat,
}

impl<S, N, F> FormatEvent<S, N> for LineFormat<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let target = event.metadata().target();
        if !matches!(target, "access" | "audit") || line.has_ansi_escapes() {
            return self.standard.format_event(context, line, event);
        }
        let level = event.metadata().level().as_str();
        let mut fields = match self.form {
            LogFormat::Text => {
                write_time(&mut line)?;
                write!(line, " {level:>5} {target}:")?;
                FieldWriter { line, form: self.form, result: Ok(()) }
            }
            LogFormat::Json => {
                line.write_str("{\"timestamp\":\"")?;
                write_time(&mut line)?;
                line.write_str("\",\"level\":\"")?;
                line.write_str(level)?;
                line.write_str("\"")?;
                FieldWriter { line, form: self.form, result: Ok(()) }
            }
        };
        event.record(&mut fields);
        let FieldWriter { mut line, result, .. } = fields;
        result?;
        match self.form {
            LogFormat::Text => line.write_str("\n"),
            LogFormat::Json => {
                line.write_str(",\"target\":\"")?;
                line.write_str(target)?;
                line.write_str("\"}\n")
            }
        }
    }
}

/// Writes the time in UTC, with microseconds (RFC 3339).
fn write_time(line: &mut Writer<'_>) -> fmt::Result {
    let now = OffsetDateTime::now_utc();
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    let year = now.year().unsigned_abs();
    let [month, day, hour, minute, second] =
        [u8::from(now.month()), now.day(), now.hour(), now.minute(), now.second()].map(u32::from);
    let numbers = [(3, year), (6, month), (9, day), (12, hour), (15, minute), (18, second)];
    for (last, mut number) in numbers.into_iter().chain([(25, now.microsecond())]) {
        let (places, _) = text.split_at_mut(last + 1);
        // From the last digit to the separator before the first one.
        for place in places.iter_mut().rev().take_while(|place| place.is_ascii_digit()) {
            *place = b'0' + u8::try_from(number % 10).unwrap_or_default();
            number /= 10;
        }
    }
    line.write_str(str::from_utf8(&text).unwrap_or_default())
}

/// Writes the fields of an event one after the other.
struct FieldWriter<'a> {
    line: Writer<'a>,
    form: LogFormat,
    result: fmt::Result,
}

impl FieldWriter<'_> {
    /// Writes a field; `text` and `json` write its value.
    fn field(
        &mut self,
        field: &Field,
        text: impl FnOnce(&mut Writer<'_>) -> fmt::Result,
        json: impl FnOnce(&mut Writer<'_>) -> fmt::Result,
    ) {
        if self.result.is_err() {
            return;
        }
        let (start, end) = match self.form {
            LogFormat::Text => (" ", "="),
            LogFormat::Json => (",\"", "\":"),
        };
        let name = self.line.write_str(start).and_then(|()| self.line.write_str(field.name()));
        let name = name.and_then(|()| self.line.write_str(end));
        self.result = name.and_then(|()| match self.form {
            LogFormat::Text => text(&mut self.line),
            LogFormat::Json => json(&mut self.line),
        });
    }

    /// Writes a field that has the same value in both forms.
    fn plain(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        self.field(field, |line| line.write_fmt(value), |line| line.write_fmt(value));
    }
}

impl Visit for FieldWriter<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field, format_args!("{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field, format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field, format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.plain(field, format_args!("{value:?}"));
        } else {
            self.plain(field, format_args!("null"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') & !matches!(byte, b'"' | b'\\');
        if value.as_bytes().iter().all(is_plain) {
            // The same in both forms, and most values are such.
            let quoted = |line: &mut Writer<'_>| {
                line.write_str("\"")?;
                line.write_str(value)?;
                line.write_str("\"")
            };
            return self.field(field, quoted, quoted);
        }
        self.field(field, |line| write!(line, "{value:?}"), |line| write_json(line, format_args!("{value}")));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(
            field,
            |line| write!(line, "{value:?}"),
            |line| write_json(line, format_args!("{value:?}")),
        );
    }
}

/// Writes a JSON string (RFC 8259 §7).
fn write_json(line: &mut Writer<'_>, value: fmt::Arguments<'_>) -> fmt::Result {
    line.write_str("\"")?;
    JsonText(line).write_fmt(value)?;
    line.write_str("\"")
}

/// Escapes text for a JSON string.
struct JsonText<'w, 'l>(&'w mut Writer<'l>);

impl fmt::Write for JsonText<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if !text.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
            return self.0.write_str(text);
        }
        for character in text.chars() {
            match character {
                '"' => self.0.write_str("\\\"")?,
                '\\' => self.0.write_str("\\\\")?,
                '\n' => self.0.write_str("\\n")?,
                '\r' => self.0.write_str("\\r")?,
                '\t' => self.0.write_str("\\t")?,
                '\0'..' ' => write!(self.0, "\\u{:04x}", u32::from(character))?,
                _ => self.0.write_char(character)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::tests::written;
    use serde_json::Value;

    /// Writes one event under each target.
    fn events() {
        let (text, absent) = ("say \"hi\"\\\n\u{202e}é", None::<&str>);
        macro_rules! event {
            ($target:literal) => {
                tracing::info!(
                    target: $target,
                    caller = %text,
                    tool = text,
                    absent,
                    debug = ?vec![text],
                    status = 200_u16,
                    signed = -3,
                    ms = 0.125,
                    whole = 3.0,
                    is_last = true,
                );
            };
        }
        event!("access");
        event!("audit");
        event!("other");
    }

    #[test]
    fn access_lines_have_the_standard_json() {
        let lines = written(true, "info", events);
        let [access, audit, other] = [0, 1, 2].map(|line| {
            let mut line: Value = serde_json::from_str(lines.lines().nth(line).unwrap()).unwrap();
            let line = line.as_object_mut().unwrap();
            (line.remove("target").unwrap(), line.remove("timestamp").unwrap(), line.clone())
        });
        let times = [&access.1, &audit.1, &other.1].map(|time| time.as_str().unwrap());
        assert!(times.is_sorted() && times.iter().all(|time| time.len() == 27), "{times:?}");
        assert!(times[2][..16] <= times[0][..16] || times[2].get(17..19) == Some("00"), "{times:?}");
        assert_eq!((&access.0, &audit.0, &other.0), (&"access".into(), &"audit".into(), &"other".into()));
        assert_eq!(access.2, other.2);
        assert_eq!(audit.2, other.2);
        let keys = |line: usize| {
            let line = lines.lines().nth(line).unwrap();
            ["timestamp", "level", "caller", "is_last", "target"].map(|key| line.find(&format!("\"{key}\":")))
        };
        assert!(keys(0).is_sorted() && keys(2).is_sorted(), "{lines}");
    }

    #[test]
    fn access_lines_have_the_standard_text() {
        let lines = written(false, "info", events);
        let fields = |line: usize, target: &str| {
            let line = lines.lines().nth(line).unwrap().to_owned();
            let (head, fields) = line.split_once(&format!("  INFO {target}: ")).unwrap();
            assert!(head.ends_with('Z') && head.starts_with("20"), "{head}");
            fields.to_owned()
        };
        assert_eq!(fields(0, "access"), fields(2, "other"));
        assert_eq!(fields(1, "audit"), fields(2, "other"));
    }
}
