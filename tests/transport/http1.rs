//! HTTP/1.1: the bytes of a request, and responses that come in unusual ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Request;
use mcp_a2a_gateway::transport::{DeliveryState, TransportError, Upstream};

use crate::support::*;

#[tokio::test]
async fn request_has_its_bytes() {
    let (address, seen) = always(OK).await;
    let (client, target) = (client(), target(address));
    let get = Request::get("/card?x=1").header("Accept", "*/*").body(Bytes::new()).unwrap();
    for request in [get, post(""), post("{}")] {
        let mut reply = client.send(&target, request).await.unwrap();
        assert_eq!(reply.collect(10).await.unwrap(), "ok");
    }
    let host = format!("host: {address}\r\n");
    let identity = "accept-encoding: identity\r\n";
    assert_eq!(
        seen.requests(),
        [
            format!("GET /card?x=1 HTTP/1.1\r\n{host}accept: */*\r\n{identity}\r\n"),
            format!("POST /rpc HTTP/1.1\r\n{host}{identity}content-length: 0\r\n\r\n"),
            format!("POST /rpc HTTP/1.1\r\n{host}{identity}content-length: 2\r\n\r\n{{}}"),
        ]
    );
    assert_eq!(seen.accepts(), 1);
}

#[tokio::test]
async fn response_may_come_byte_by_byte() {
    let answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                  2;x\r\nok\r\n0\r\nServer-Timing: t\r\n\r\n";
    let (address, seen) = serve(move |mut peer| async move {
        while peer.hear().await.is_some() {
            for byte in answer.bytes() {
                peer.say([byte]).await;
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    let (client, target) = (client(), target(address));
    for _ in 0..3 {
        let mut reply = client.send(&target, post("{}")).await.unwrap();
        assert_eq!(drain(&mut reply).await.0, b"ok");
        assert_eq!(reply.trailers().unwrap()["server-timing"], "t");
    }
    assert_eq!(seen.accepts(), 1, "the connection is used again");
}

#[tokio::test]
async fn large_bodies_arrive_whole() {
    let large: String = ('a'..='z').cycle().take(3 << 20).collect();
    let (echoed, chunked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counter = (echoed.clone(), chunked.clone());
    let (address, seen) = serve(move |mut peer| {
        let (echoed, chunked) = counter.clone();
        async move {
            while let Some(request) = peer.hear().await {
                let body = request.split_once("\r\n\r\n").unwrap().1;
                if echoed.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    peer.say(head + body).await;
                    continue;
                }
                chunked.fetch_add(1, Ordering::SeqCst);
                peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                for piece in body.as_bytes().chunks(100_000) {
                    peer.say([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()).await;
                }
                peer.say("0\r\n\r\n").await;
            }
        }
    })
    .await;
    let (client, target) = (client(), target(address));
    for _ in 0..4 {
        let mut reply = client.send(&target, post(&large)).await.unwrap();
        assert!(reply.collect(4 << 20).await.unwrap() == large.as_bytes());
    }
    assert_eq!((chunked.load(Ordering::SeqCst), seen.accepts()), (2, 1));
}

/// A text of a body can be kept with it for as long as a task, and counts with its own size.
#[tokio::test]
async fn body_holds_no_buffer_much_larger_than_itself() {
    let body = "b".repeat(17_000);
    let sized = |head: &str, body: &str| {
        format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    let chunks: String = (0..34).map(|_| format!("{:x}\r\n{}\r\n", 500, "b".repeat(500))).collect();
    for answer in [
        sized("", &body),
        sized("", &"b".repeat(50_000)),
        "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1_500) + &sized("", &body),
        sized(&format!("x-long: {}\r\n", "x".repeat(12_000)), &body),
        sized("", &body) + &"b".repeat(46_000),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"),
    ] {
        let (address, _) = always(answer.clone()).await;
        let mut reply = client().send(&target(address), post("{}")).await.unwrap();
        let held = reply.collect(1 << 20).await.unwrap();
        drop(reply);
        let length = held.len();
        assert!(length >= body.len() && held.iter().all(|byte| *byte == b'b'));
        let capacity = held.try_into_mut().unwrap().capacity();
        assert!(capacity <= length / 3 * 4 + 4, "{capacity} for {length}: {:?}", answer.get(..60));
    }
}

#[tokio::test]
async fn response_before_the_end_of_the_request_is_read() {
    let large = "x".repeat(20 << 20);
    for reads_on in [true, false] {
        let (address, seen) = serve(move |mut peer| async move {
            peer.say("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await;
            // The bytes of the request, and those of the next one.
            if reads_on { peer.wait().await } else { peer.stall().await }
        })
        .await;
        let (client, target) = (client(), target(address));
        // The peer speaks before the request is written: which of both is seen first is open.
        let answered = client.send(&target, post(&large)).await;
        match answered {
            Ok(mut reply) => {
                assert_eq!(reply.status(), 413);
                assert_eq!(reply.collect(10).await.unwrap(), "no");
            }
            Err(error) => assert_eq!(error.sent(), DeliveryState::No, "{error}"),
        }
        assert_eq!(client.idle_connections(), 0, "the request was not written whole");
        assert!(seen.accepts() <= 2);
    }
}

#[tokio::test]
async fn refusal_of_a_large_request_is_read() {
    let (address, _) = serve(|mut peer| async move {
        peer.hear_head().await;
        peer.say("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await;
        peer.stall().await;
    })
    .await;
    let (client, target) = (client(), target(address));
    let mut reply = client.send(&target, post(&"x".repeat(20 << 20))).await.unwrap();
    assert_eq!((reply.status().as_u16(), reply.collect(10).await.unwrap()), (413, Bytes::from("no")));
    assert_eq!(client.idle_connections(), 0, "the request was not written whole");
}

#[tokio::test]
async fn informational_responses_have_an_end() {
    let (address, _) = serve(|mut peer| async move {
        peer.hear().await;
        while peer.say("HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n").await {}
    })
    .await;
    let error = client().send(&target(address), post("{}")).await.err().unwrap();
    assert!(matches!(error, TransportError::Unasked(_)), "{error}");
}

#[tokio::test]
async fn end_of_the_connection_ends_a_body_without_length() {
    for (head, is_kept) in [
        ("HTTP/1.1 200 OK\r\n\r\n", false),
        ("HTTP/1.0 200 OK\r\n\r\n", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n", true),
    ] {
        let (address, _) = once(format!("{head}hello")).await;
        let (client, target) = (client(), target(address));
        assert_eq!(call(&client, &target, "{}").await.unwrap(), "hello", "{head}");
        assert_eq!(client.idle_connections() == 1, is_kept, "{head}");
    }
}

#[tokio::test]
async fn answer_before_a_reset_is_read() {
    // The peer closes with bytes unread: the kernel resets the connection while the client still writes.
    let (address, _) = serve(|mut peer| async move {
        peer.hear_head().await;
        peer.say("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await;
    })
    .await;
    let (client, target) = (client(), target(address));
    let large = "x".repeat(20 << 20);
    for _ in 0..20 {
        // A write may fail before the client has seen that there is something to read.
        let reply = client.send(&target, post(&large)).await.unwrap();
        assert_eq!(reply.status(), 413);
    }
    assert_eq!(client.idle_connections(), 0);
}

#[tokio::test]
async fn other_protocols_are_found_out_at_once() {
    for greeting in ["SSH-2.0-x\r\n", "220 mail ESMTP\r\n", "hello", "\u{15}\u{3}\u{1}", "HTTP/2 200 OK\r\n"]
    {
        let (address, _) = serve(move |mut peer| async move {
            peer.hear().await;
            peer.say(greeting).await;
            peer.wait().await;
        })
        .await;
        let error = client().send(&target(address), post("{}")).await.err().unwrap();
        assert!(matches!(error, TransportError::Broken(_)), "{greeting:?}: {error}");
    }
}

#[tokio::test]
async fn empty_lines_before_a_response_are_skipped() {
    let (address, seen) = always(format!("\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n\r\n{OK}")).await;
    let (client, target) = (client(), target(address));
    for _ in 0..2 {
        assert_eq!(call(&client, &target, "{}").await.unwrap(), "ok");
    }
    assert_eq!(seen.accepts(), 1);
    let (address, _) = serve(|mut peer| async move {
        peer.hear().await;
        while peer.say("\r\n".repeat(1000)).await {}
    })
    .await;
    let error = client.send(&Upstream::new(settings(address)).unwrap(), post("{}")).await.err().unwrap();
    assert!(matches!(error, TransportError::Unasked(_)), "{error}");
}

#[tokio::test]
async fn body_of_a_response_that_has_none_is_never_a_response() {
    let answer = "HTTP/1.1 204 No Content\r\nContent-Length: 40\r\n\r\n";
    let (address, seen) = serve(move |mut peer| async move {
        while peer.hear().await.is_some() {
            peer.say(answer).await;
            tokio::time::sleep(ms(5)).await;
            peer.say(OK).await;
        }
    })
    .await;
    let (client, target) = (client(), target(address));
    for _ in 0..3 {
        let mut reply = client.send(&target, post("{}")).await.unwrap();
        assert_eq!((reply.status().as_u16(), reply.collect(10).await.unwrap()), (204, Bytes::new()));
        assert_eq!(client.idle_connections(), 0);
    }
    assert_eq!(seen.accepts(), 3);
}

#[tokio::test]
async fn large_chunk_may_come_in_small_packets() {
    let (address, _) = serve(|mut peer| async move {
        peer.hear().await;
        peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n").await;
        for _ in 0..200 {
            peer.say("x").await;
            tokio::task::yield_now().await;
        }
        peer.wait().await;
    })
    .await;
    let (client, target) = (client(), target(address));
    let mut reply = client.send(&target, post("{}")).await.unwrap();
    let mut read = 0;
    while read < 200 {
        read += reply.chunk().await.unwrap().unwrap().len();
    }
    assert_eq!(read, 200);
}
