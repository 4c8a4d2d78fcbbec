//! Frames of gRPC are read alike in any pieces, and a status that was read is written and read again
//! as it was.

#![cfg_attr(feature = "libfuzzer", no_main)]

use mcp_a2a_gateway::a2a::grpc::{FrameError, FrameReader, GrpcStatus, UnaryReader, write_frame};

fuzz::program!(read);

/// Most bytes of a message.
const LIMIT: usize = 1024;

/// The first byte is the size of the pieces; the rest is a body, a text and the details of a status.
fn read(bytes: &[u8]) {
    let Some((size, body)) = bytes.split_first() else { return };
    frames(body, usize::from(*size).max(1));
    status(body);
}

/// The messages of a body that comes in pieces of this size, and the error after them.
fn messages(body: &[u8], size: usize) -> (Vec<Vec<u8>>, Option<FrameError>, usize) {
    let (mut reader, mut found) = (FrameReader::default(), Vec::new());
    for piece in body.chunks(size) {
        let mut next = reader.push(piece, LIMIT).and_then(|()| reader.next(LIMIT));
        loop {
            match next {
                Ok(Some(message)) => found.push(message.to_vec()),
                Ok(None) => break,
                Err(error) => return (found, Some(error), 0),
            }
            next = reader.next(LIMIT);
        }
        assert!(reader.held() <= LIMIT + 5 + size, "more than a message is held");
    }
    (found, None, reader.held())
}

fn frames(body: &[u8], size: usize) {
    let (found, error, held) = messages(body, size);
    assert_eq!(messages(body, body.len().max(1)), (found.clone(), error.clone(), held), "the pieces matter");
    let mut written = Vec::new();
    for message in &found {
        assert!(message.len() <= LIMIT && write_frame(&mut written, message));
    }
    assert!(body.starts_with(&written), "other messages are read");
    if error.is_none() {
        assert_eq!(body.len(), written.len() + held, "bytes are lost");
    }
    let mut reader = UnaryReader::new(LIMIT);
    let mut message = Vec::new();
    let read = body.chunks(size).try_for_each(|piece| {
        let bytes = reader.push(piece.to_vec().into())?;
        message.extend_from_slice(&bytes);
        Ok::<_, FrameError>(())
    });
    match (read.and_then(|()| reader.finish()), &found[..]) {
        (Ok(()), [only]) => assert_eq!((&message, error, held), (only, None, 0)),
        (Ok(()), other) => panic!("one message, and {} of the other reader", other.len()),
        (Err(_), [_]) => assert!(error.is_some() || held > 0, "one message was refused"),
        (Err(_), _) => {}
    }
}

fn status(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let read = |message: &[u8], details: Option<&str>| GrpcStatus::read("5", message, details).expect("a code");
    let status = read(bytes, Some(&text));
    assert!(status.message.len() <= 2048 && !status.message.contains(['\u{1b}', '\r']));
    let encoded = status.encoded_message();
    assert!(encoded.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{encoded}");
    let again = read(encoded.as_bytes(), status.details().as_deref());
    assert_eq!(again.info, status.info);
    match status.message.len() {
        ..=1024 => assert_eq!(again.message, status.message),
        _ => assert!(status.message.starts_with(&again.message)),
    }
    if let Some(code) = GrpcStatus::read(&text, b"", None).map(|status| status.code) {
        assert_eq!(code.to_string().parse::<i32>(), text.parse());
    }
}
