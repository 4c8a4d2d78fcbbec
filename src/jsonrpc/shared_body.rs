//! A large body of which the long texts are kept, rather than copied, and examined once.
//!
//! A message is read in layers, each of which passes over the raw values of the next one, so that a long string would be
//! examined by each. A copy of it costs as much as that, since the memory of a copy is in no cache.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// The least bytes of a text that keeps its body.
pub(super) const MIN_SHARED_BYTES: usize = 16 * 1024;
/// The least plain bytes in a row that are examined once.
const MIN_RUN_BYTES: usize = 4 * 1024;

/// A body that may be read in several steps.
pub(crate) struct SharedBody<'a> {
    bytes: &'a Bytes,
    /// The last long run of plain bytes: the place of its first byte in the upper half, its length in the lower one.
    run: AtomicU64,
}

thread_local! {
    /// The body that is read, if it is large.
    static BODY: RefCell<Option<BodyReading>> = const { RefCell::new(None) };
}

struct BodyReading {
    bytes: Bytes,
    start: usize,
    length: usize,
}

impl<'a> SharedBody<'a> {
    /// Shares a body.
    pub(crate) fn new(bytes: &'a Bytes) -> Self {
        Self { bytes, run: AtomicU64::new(0) }
    }

    /// Runs `read`, in which a long [`JsonText`](super::JsonText) that is most of the body keeps it, rather than a copy of its
    /// own.
    pub(crate) fn read<T>(&self, read: impl FnOnce() -> T) -> T {
        /// Ends it, also after a panic.
        struct End<'a>(&'a AtomicU64);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                let run = BODY.take().and_then(|BodyReading { start, length, .. }| {
                    Some(u64::from(u32::try_from(start).ok()?) << 32 | u64::from(u32::try_from(length).ok()?))
                });
                self.0.store(run.unwrap_or_default(), Ordering::Relaxed);
            }
        }
        if self.bytes.len() < MIN_SHARED_BYTES {
            return read();
        }
        let run = self.run.load(Ordering::Relaxed);
        let place = |bits: u64| usize::try_from(bits & u64::from(u32::MAX)).unwrap_or_default();
        let (start, length) = (place(run >> 32), place(run));
        BODY.set(Some(BodyReading { bytes: self.bytes.clone(), start, length }));
        let _end = End(&self.run);
        read()
    }
}

impl BodyReading {
    /// Returns the place of the first byte of `part` in the body; `None` if it is elsewhere.
    fn place(&self, part: &[u8]) -> Option<usize> {
        let place = part.as_ptr().addr().checked_sub(self.bytes.as_ptr().addr())?;
        (place.checked_add(part.len())? <= self.bytes.len()).then_some(place)
    }
}

/// Returns true while a large body is read.
pub(super) fn is_shared() -> bool {
    BODY.with_borrow(Option::is_some)
}

/// Returns the bytes of a text within the body that is read, if it is long, and most of that.
pub(super) fn shared_part(text: &str) -> Option<Bytes> {
    if text.len() < MIN_SHARED_BYTES {
        return None;
    }
    BODY.with_borrow(|body| {
        let body = body.as_ref().filter(|body| text.len() >= body.bytes.len() / 4 * 3)?;
        body.place(text.as_bytes()).map(|_| body.bytes.slice_ref(text.as_bytes()))
    })
}

/// Returns the number of bytes at the start of `text` that `count` counts, as it does: of a long run in the body that is
/// read from before.
#[inline]
pub(super) fn plain_run(text: &[u8], count: impl FnOnce() -> usize) -> usize {
    if text.len() < MIN_RUN_BYTES {
        return count();
    }
    let known = BODY.with_borrow(|body| {
        let body = body.as_ref()?;
        let is_known = body.length > 0 && body.length < text.len() && body.place(text) == Some(body.start);
        is_known.then_some(body.length)
    });
    known.unwrap_or_else(|| {
        let length = count();
        if length >= MIN_RUN_BYTES {
            note_run(text, length);
        }
        length
    })
}

/// Returns the start of `text` without a run up to its end that is known to be plain.
pub(super) fn without_plain_end(text: &str) -> &str {
    if text.len() < MIN_RUN_BYTES {
        return text;
    }
    let known = BODY.with_borrow(|body| {
        let body = body.as_ref().filter(|body| body.length > 0)?;
        let start = body.start.checked_sub(body.place(text.as_bytes())?)?;
        (start.checked_add(body.length)? == text.len()).then_some(start)
    });
    known.and_then(|start| text.get(..start)).unwrap_or(text)
}

fn note_run(text: &[u8], length: usize) {
    BODY.with_borrow_mut(|body| {
        if let Some(body) = body
            && let Some(start) = body.place(text)
        {
            (body.start, body.length) = (start, length);
        }
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::super::{JsonText, read_json, well_formed};
    use super::*;

    /// Reads a body in three layers, as a call does.
    fn texts(body: &Bytes, scope: impl Fn(&mut dyn FnMut())) -> Vec<(String, usize)> {
        let mut items = Vec::new();
        scope(&mut || assert!(well_formed(body, 64).is_ok()));
        scope(&mut || items = read_json::<Vec<&RawValue>>(std::str::from_utf8(body).unwrap()).unwrap());
        let mut texts = Vec::new();
        scope(&mut || {
            for item in &items {
                let [inner] = read_json::<[&RawValue; 1]>(item.get()).unwrap();
                let text = JsonText::read(inner).unwrap();
                texts.push((serde_json::to_string(&text).unwrap(), text.bytes()));
            }
        });
        texts
    }

    /// A string with long runs, escapes between them, and characters of several bytes at any place.
    fn string() -> impl Strategy<Value = String> {
        let run = (0..3 * MIN_RUN_BYTES, 0..200_usize, prop_oneof![Just("é"), Just("a"), Just("😀")])
            .prop_map(|(length, before, character)| {
                "a".repeat(before) + &character.repeat(length / character.len())
            });
        let between = prop_oneof![Just(""), Just("\\n"), Just("\\\\"), Just("\\\""), Just("\\u00e9")];
        proptest::collection::vec((run, between), 1..4)
            .prop_map(|pieces| pieces.into_iter().map(|(run, between)| run + between).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_shared_body_is_read_as_any_other(strings in proptest::collection::vec(string(), 1..4)) {
            let items: Vec<String> = strings.iter().map(|string| format!("[\"{string}\"]")).collect();
            let body = Bytes::from(format!("[{}]", items.join(", ")));
            let shared = SharedBody::new(&body);
            let alone = texts(&body, |read| read());
            prop_assert!(texts(&body, |read| shared.read(read)) == alone);
            let written: Vec<serde_json::Value> = alone.iter().map(|(json, _)| serde_json::from_str(json).unwrap()).collect();
            let given: Vec<serde_json::Value> = strings.iter().map(|string| serde_json::from_str(&format!("\"{string}\"")).unwrap()).collect();
            prop_assert!(written == given);
        }
    }

    #[test]
    fn a_long_run_is_counted_once_for_each_body() {
        let text = "a".repeat(MIN_SHARED_BYTES);
        let body = Bytes::from(format!("\"{text}\""));
        let shared = SharedBody::new(&body);
        let rest = &body[1..];
        assert_eq!(shared.read(|| plain_run(rest, || text.len())), text.len());
        assert_eq!(shared.read(|| plain_run(rest, || unreachable!("it is known"))), text.len());
        // A part that ends within the run, another place, and another body.
        assert_eq!(shared.read(|| plain_run(&body[1..MIN_RUN_BYTES + 1], || 7)), 7);
        assert_eq!(shared.read(|| plain_run(&body[2..], || 7)), 7);
        let other = Bytes::from(body.to_vec());
        assert_eq!(shared.read(|| plain_run(&other[1..], || 7)), 7);
        assert_eq!(plain_run(rest, || 7), 7);
    }
}
