//! An event stream means the same for every split into chunks, and encoded events are decoded
//! again.

#![cfg_attr(feature = "libfuzzer", no_main)]

use mcp_a2a_gateway::sse::{self, Decoder, Event};

fuzz::program!(stream);

/// Small, so that it is reached.
const LIMIT: usize = 256;

/// The first byte says how the rest is cut.
fn stream(bytes: &[u8]) {
    let Some((step, stream)) = bytes.split_first() else { return };
    let whole = read(stream.chunks(stream.len().max(1)));
    assert_eq!(whole, read(stream.chunks(usize::from(*step).max(1))), "cutting changed the events");
    assert_eq!(whole, read(stream.chunks(1)), "cutting changed the events");
    for event in whole.0 {
        let mut written = Vec::new();
        sse::write_event(&mut written, &event.data);
        let line =
            event.data.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect();
        assert_eq!(read([written.as_slice()]), (vec![Event { name: None, data: line }], false));
    }
}

/// The events, and whether the stream was broken off.
fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Event<'a>>, bool) {
    let mut decoder = Decoder::new(LIMIT);
    let mut events = Vec::new();
    for chunk in chunks {
        match decoder.push(chunk) {
            Ok(more) => events.extend(more),
            Err(_) => break,
        }
    }
    let broken = decoder.push(b"").is_err();
    (events, broken)
}
