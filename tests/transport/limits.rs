//! Limits that a hostile or broken agent cannot break.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcp_a2a_gateway::transport::TransportError;

use crate::support::*;

#[tokio::test]
async fn cut_body_is_never_clean_end() {
    let head = "HTTP/1.1 200 OK\r\n";
    for (rest, bytes) in [
        ("content-length: 10\r\n\r\n12345", "12345"),
        ("content-length: 10\r\n\r\n", ""),
        ("transfer-encoding: chunked\r\n\r\n5\r\n12345\r\n", "12345"),
        ("transfer-encoding: chunked\r\n\r\n5\r\n123", "123"),
        ("transfer-encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n", "12345"),
        ("transfer-encoding: chunked\r\n\r\n5\r\n12345\r\nzz\r\n", "12345"),
    ] {
        let (address, _) = once(format!("{head}{rest}")).await;
        let client = client();
        let mut reply = client.send(&target(address), post("{}")).await.unwrap();
        let (read, error) = drain(&mut reply).await;
        assert_eq!(String::from_utf8(read).unwrap(), bytes, "{rest:?}");
        assert!(matches!(error, Some(TransportError::Broken(_))), "{rest:?}: {error:?}");
        assert!(reply.chunk().await.is_err(), "{rest:?}");
        assert_eq!(client.idle_connections(), 0, "{rest:?}");
    }
}

#[tokio::test]
async fn body_over_limit_is_refused_unread() {
    const MIB: usize = 1 << 20;
    let piece = vec![b'x'; MIB];
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 100 * MIB);
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    for (head, framed) in [(head, false), (chunked, true)] {
        let written = Arc::new(AtomicUsize::new(0));
        let (counter, piece) = (Arc::clone(&written), piece.clone());
        let (address, _) = serve(move |mut peer| {
            let (head, piece, counter) = (head.clone(), piece.clone(), Arc::clone(&counter));
            async move {
                peer.hear().await;
                peer.say(&head).await;
                for _ in 0..100 {
                    let went = if framed { peer.say("100000\r\n").await } else { true };
                    if !went || !peer.say(&piece).await || (framed && !peer.say("\r\n").await) {
                        return;
                    }
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            }
        })
        .await;
        let mut reply = client().send(&target(address), post("{}")).await.unwrap();
        let error = reply.collect(2 * MIB).await.unwrap_err();
        assert!(matches!(error, TransportError::TooLarge { limit } if limit == 2 * MIB), "{error}");
        tokio::time::sleep(ms(50)).await;
        // The bytes that were read are under the limit; the rest lies in the kernel's socket
        // buffers.
        assert!(written.load(Ordering::SeqCst) < 20, "{} MiB were taken", written.load(Ordering::SeqCst));
    }
}

#[tokio::test]
async fn body_of_exactly_limit_is_read() {
    let (address, _) = always(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n1\r\ne\r\n0\r\n\r\n",
    )
    .await;
    for (limit, fits) in [(5, true), (4, false), (3, false), (1, false), (0, false)] {
        let held = Arc::new(());
        let reply = client().send(&target(address), post("{}")).await.unwrap();
        let mut reply = reply.holding(held.clone());
        match reply.collect(limit).await {
            Ok(body) => assert!(fits && body == "abcde", "{limit}"),
            Err(TransportError::TooLarge { limit: told }) => {
                assert!(!fits && told == limit, "{limit} {told}");
                assert!(reply.chunk().await.is_err(), "{limit}: nothing is read after that");
            }
            Err(error) => panic!("{limit}: {error}"),
        }
        assert_eq!(Arc::strong_count(&held), 1, "{limit}: nothing is held when all is read");
    }
}

#[tokio::test]
async fn redirect_is_answer_like_any_other() {
    let (other, other_seen) = always(OK).await;
    let answer = format!("HTTP/1.1 307 Moved\r\nlocation: http://{other}/\r\ncontent-length: 0\r\n\r\n");
    let (address, _) = always(answer).await;
    let reply = client().send(&target(address), post("{}")).await.unwrap();
    assert_eq!(reply.status(), 307);
    assert_eq!(other_seen.accepts(), 0);
}

#[tokio::test]
async fn encodings_are_refused() {
    for header in [
        "content-encoding: gzip",
        "content-encoding: identity, br",
        "content-encoding: identity\r\ncontent-encoding: gzip",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: gzip",
    ] {
        let (address, _) = once(format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\n")).await;
        let error = client().send(&target(address), post("{}")).await.err().unwrap();
        assert!(matches!(error, TransportError::Encoded), "{header}: {error}");
    }
    let (address, _) =
        always("HTTP/1.1 200 OK\r\ncontent-encoding: identity\r\ncontent-length: 2\r\n\r\nok").await;
    assert_eq!(call(&client(), &target(address), "{}").await.unwrap(), "ok");
}

#[tokio::test]
async fn header_has_limits() {
    let lines = |count: usize| (0..count).map(|line| format!("x-{line}: y\r\n")).collect::<String>();
    let long = |bytes: usize| format!("x-long: {}\r\n", "y".repeat(bytes));
    for (header, fits) in [
        (lines(98), true),
        (lines(101), false),
        (long(60_000), true),
        (long(70_000), false),
        (long(10 << 20), false),
    ] {
        let (address, _) = always(format!("HTTP/1.1 200 OK\r\n{header}content-length: 2\r\n\r\nok")).await;
        match call(&client(), &target(address), "{}").await {
            Ok(body) => assert!(fits && body == "ok", "{} bytes", header.len()),
            Err(TransportError::HeaderTooLarge) => assert!(!fits, "{} bytes", header.len()),
            Err(error) => panic!("{} bytes: {error}", header.len()),
        }
    }
}

#[tokio::test]
async fn non_http_is_refused() {
    for answer in [
        "HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad header: x\r\n\r\n",
        "hello\r\n\r\n",
        "",
    ] {
        let (address, _) = once(answer).await;
        let client = client();
        assert!(call(&client, &target(address), "{}").await.is_err(), "{answer:?}");
        assert_eq!(client.idle_connections(), 0);
    }
}

#[tokio::test]
async fn informational_answers_are_skipped() {
    let (address, _) =
        always(format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n{OK}")).await;
    assert_eq!(call(&client(), &target(address), "{}").await.unwrap(), "ok");
}
