//! Changing the data of events and nothing else of a stream: comments, names and the ends of lines stay.
//!
//! Takes whole events (see `boundary`). Not here: what the data becomes.

use std::borrow::Cow;

/// The same events with other data. An event whose data stands on several lines is written on one: between the tokens of JSON a line
/// end says no more than a space.
///
/// # Errors
///
/// Those of `change`.
pub(super) fn changed<E>(
    events: &str,
    mut change: impl FnMut(&str) -> Result<String, E>,
) -> Result<String, E> {
    let mut out = String::with_capacity(events.len() + events.len() / 2);
    let mut data: Option<Cow<'_, str>> = None;
    for (line, end) in lines(events) {
        match value(line) {
            Some(value) => {
                data = Some(match data {
                    None => Cow::Borrowed(value),
                    Some(before) => Cow::Owned(format!("{before} {value}")),
                });
            }
            None => {
                // The first line of another kind ends the data: a blank one mostly. More data of the event follows on a line of
                // its own.
                if line.is_empty()
                    && let Some(data) = data.take()
                {
                    out.push_str("data: ");
                    out.push_str(&change(&data)?);
                    out.push_str(if end.is_empty() { "\n" } else { end });
                }
                out.push_str(line);
                out.push_str(end);
            }
        }
    }
    Ok(out)
}

/// What stands in a line of data.
fn value(line: &str) -> Option<&str> {
    // Readers pass over the mark at the head of a stream.
    let rest = line.trim_start_matches('\u{FEFF}').strip_prefix("data")?;
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(':')? };
    Some(rest.strip_prefix(' ').unwrap_or(rest))
}

/// The lines of a text, and what ends each.
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
        changed(events, |data| Ok::<_, ()>(data.replace("raw", "sealed"))).unwrap()
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
    fn what_cannot_be_changed_ends_it() {
        assert_eq!(
            changed("data: 1\n\ndata: 2\n\n", |data| if data == "2" { Err("no") } else { Ok(data.into()) }),
            Err("no")
        );
    }

    proptest! {
        #[test]
        fn what_stays_the_same_stays_as_it_was(events in "((event: x|: c|id: 1)\n|data: [a-z]{1,9}\n\n|\n){0,9}") {
            let same = changed(&events, |data| Ok::<_, ()>(data.to_owned())).unwrap();
            prop_assert_eq!(same, events);
        }
    }
}
