//! Rewriting the data of SSE events; comments, field names and line ends stay.
//!
//! Input are complete events (see `boundary`).

use std::borrow::Cow;

/// Writes the same events with other data. Data on several lines is written on one: between the
/// tokens of JSON a line end means no more than a space. `change` may return `None` to leave an
/// event out.
///
/// # Errors
///
/// The error of `change`; the events before it are written.
pub(super) fn rewrite_data<E>(
    out: &mut String,
    events: &str,
    mut change: impl FnMut(&str) -> Result<Option<String>, E>,
) -> Result<(), E> {
    out.reserve(events.len() + events.len() / 2);
    let mut data: Option<Cow<'_, str>> = None;
    // Start of the output of the current event.
    let mut begun = out.len();
    for (line, end) in lines(events) {
        match value(line) {
            Some(value) => match &mut data {
                None => data = Some(Cow::Borrowed(value)),
                Some(before) => {
                    let before = before.to_mut();
                    before.push(' ');
                    before.push_str(value);
                }
            },
            None => {
                // The first line of another field ends the data: mostly a blank one. Further data
                // of the event follows on a line of its own.
                if line.is_empty()
                    && let Some(data) = data.take()
                {
                    let new = change(&data).inspect_err(|_| out.truncate(begun))?;
                    if let Some(new) = new {
                        out.push_str("data: ");
                        out.push_str(&new);
                        out.push_str(if end.is_empty() { "\n" } else { end });
                    }
                }
                out.push_str(line);
                out.push_str(end);
                if line.is_empty() {
                    begun = out.len();
                }
            }
        }
    }
    Ok(())
}

/// Returns the value of a data line.
fn value(line: &str) -> Option<&str> {
    // SSE readers ignore a byte order mark at the start of a stream.
    let rest = line.trim_start_matches('\u{FEFF}').strip_prefix("data")?;
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(':')? };
    Some(rest.strip_prefix(' ').unwrap_or(rest))
}

/// Returns the lines of a text, each with its line end.
fn lines(mut text: &str) -> impl Iterator<Item = (&str, &str)> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let at = text.find(['\r', '\n']).unwrap_or(text.len());
        let (line, rest) = text.split_at(at);
        let length = if rest.starts_with("\r\n") { 2 } else { rest.len().min(1) };
        let (end, rest) = rest.split_at(length);
        text = rest;
        Some((line, end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(events: &str) -> String {
        let mut out = String::new();
        rewrite_data(&mut out, events, |data| Ok::<_, ()>(Some(data.replace("raw", "sealed")))).unwrap();
        out
    }

    #[test]
    fn only_data_changes() {
        for (events, expected) in [
            ("data: raw\n\n", "data: sealed\n\n"),
            ("data:raw\r\n\r\n", "data: sealed\r\n\r\n"),
            (": raw\r\n\r\n", ": raw\r\n\r\n"),
            (
                "event: error\nid: raw\ndata: raw\n\n: ping\n\n",
                "event: error\nid: raw\ndata: sealed\n\n: ping\n\n",
            ),
            ("data: {\ndata: raw}\n\ndata: raw\n\n", "data: { sealed}\n\ndata: sealed\n\n"),
            ("data: raw\nid: 7\n\n", "id: 7\ndata: sealed\n\n"),
            ("database: raw\n\n", "database: raw\n\n"),
            ("data: raw\r\r", "data: sealed\r\r"),
            ("\u{FEFF}data: raw\n\n", "data: sealed\n\n"),
        ] {
            assert_eq!(with(events), expected, "{events:?}");
        }
    }

    #[test]
    fn what_cannot_be_changed_ends_it_and_what_came_before_is_written() {
        let mut out = String::new();
        let ended = rewrite_data(&mut out, "data: 1\n\nid: 7\ndata: 2\n\n", |data| match data {
            "2" => Err("no"),
            data => Ok(Some(data.into())),
        });
        assert_eq!((ended, out.as_str()), (Err("no"), "data: 1\n\n"));
    }

    #[test]
    fn data_that_says_nothing_is_left_out() {
        let mut out = String::new();
        rewrite_data(&mut out, "event: ping\ndata: \n\ndata: 1\n\n", |data| {
            Ok::<_, ()>(Some(data.to_owned()).filter(|data| !data.is_empty()))
        })
        .unwrap();
        assert_eq!(out, "event: ping\n\ndata: 1\n\n");
    }

    #[test]
    fn many_lines_of_one_event_take_no_more_than_their_length() {
        let events = "data:x\n".repeat(200_000) + "\n";
        let began = std::time::Instant::now();
        assert_eq!(with(&events).len(), "data: ".len() + 400_000 - 1 + 2);
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    }

    proptest! {
        #[test]
        fn what_stays_the_same_stays_as_it_was(events in "((event: x|: c|id: 1)\n|data: [a-z]{1,9}\n\n|\n){0,9}") {
            let mut same = String::new();
            rewrite_data(&mut same, &events, |data| Ok::<_, ()>(Some(data.to_owned()))).unwrap();
            prop_assert_eq!(same, events);
        }
    }
}
