//! Which connection carries which request, and that no message is sent twice.

use std::time::{Duration, Instant};

use mcp_a2a_gateway::transport::{AddressPolicy, DeliveryState, TargetSettings, TransportError, Upstream};

use crate::support::*;

#[tokio::test]
async fn connection_is_used_again() {
    let (address, seen) = always(OK).await;
    let (client, target) = (client(), target(address));
    for _ in 0..5 {
        assert_eq!(call(&client, &target, "{}").await.unwrap(), "ok");
    }
    assert_eq!((seen.accepts(), client.idle_connections()), (1, 1));
}

#[tokio::test]
async fn target_alone_frames_request() {
    let (address, seen) = always(OK).await;
    let mut request = post("{\"a\":1}");
    for (name, value) in
        [("host", "evil"), ("transfer-encoding", "chunked"), ("connection", "close"), ("te", "gzip")]
    {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request.headers_mut().insert("authorization", "Bearer x".parse().unwrap());
    client().send(&target(address), request).await.unwrap().collect(10).await.unwrap();
    let text = &seen.requests()[0];
    let mut lines: Vec<&str> = text.split("\r\n").collect();
    lines[1..].sort_unstable();
    let host = format!("host: {address}");
    let expected = [
        "POST /rpc HTTP/1.1",
        "",
        "accept-encoding: identity",
        "authorization: Bearer x",
        "content-length: 7",
        &host,
    ];
    assert_eq!(lines[..6], expected, "{text}");
}

#[tokio::test]
async fn other_origin_in_request_is_refused() {
    let (address, seen) = always(OK).await;
    for uri in ["http://other.example/rpc", "https://127.0.0.1/rpc", "*"] {
        let mut request = post("{}");
        *request.uri_mut() = uri.parse().unwrap();
        let error = client().send(&target(address), request).await.err().unwrap();
        assert!(matches!(error, TransportError::BadUri(_)), "{uri}: {error}");
    }
    let mut request = post("{}");
    *request.uri_mut() = format!("http://{address}/rpc?x=1").parse().unwrap();
    client().send(&target(address), request).await.unwrap().collect(10).await.unwrap();
    assert!(seen.requests()[0].starts_with("POST /rpc?x=1 HTTP/1.1\r\n"));
}

#[test]
fn unusable_origins_are_refused() {
    for uri in ["/rpc", "ftp://agent.example", "http://user:secret@agent.example", "https://agent.example"] {
        let error =
            Upstream::new(TargetSettings::new(uri.parse().unwrap(), AddressPolicy::Trusted)).err().unwrap();
        assert!(
            matches!(error, TransportError::BadUri(_)) && error.sent() == DeliveryState::No,
            "{uri}: {error}"
        );
    }
}

#[tokio::test]
async fn closed_idle_connection_is_replaced() {
    let (address, seen) = once(OK).await;
    let (client, target) = (client(), target(address));
    for body in ["1", "2", "3"] {
        assert_eq!(call(&client, &target, body).await.unwrap(), "ok");
        tokio::time::sleep(ms(30)).await;
    }
    let bodies: String = seen.requests().iter().filter_map(|text| text.chars().last()).collect();
    assert_eq!((seen.accepts(), bodies.as_str()), (3, "123"));
}

#[tokio::test]
async fn stale_connections_use_up_no_tries() {
    // Answers together, so that each of the four calls has a connection of its own, then closes
    // all.
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(4));
    let (address, seen) = serve(move |mut peer| {
        let barrier = barrier.clone();
        async move {
            peer.hear().await;
            if peer.number < 4 {
                barrier.wait().await;
            }
            peer.say(OK).await;
            tokio::time::sleep(ms(100)).await;
        }
    })
    .await;
    let (client, target) = (client(), target(address));
    let calls = (0..4).map(|_| (client.clone(), target.clone()));
    let calls: Vec<_> = calls.map(|(c, t)| tokio::spawn(async move { call(&c, &t, "x").await })).collect();
    for answer in calls {
        answer.await.unwrap().unwrap();
    }
    assert_eq!(client.idle_connections(), 4);
    tokio::time::sleep(ms(200)).await;
    call(&client, &target, "x").await.unwrap();
    assert_eq!((seen.accepts(), seen.requests().len()), (5, 5));
}

#[tokio::test]
async fn delivered_message_is_not_repeated() {
    let (address, seen) = serve(|mut peer| async move {
        peer.hear().await;
        if peer.number == 0 {
            peer.say(OK).await;
            peer.hear().await; // the second request on this connection: read, never answered
        }
    })
    .await;
    let (client, target) = (client(), target(address));
    call(&client, &target, "first").await.unwrap();
    let error = call(&client, &target, "second").await.unwrap_err();
    assert!(matches!(error, TransportError::Broken(_)), "{error}");
    assert_eq!((error.sent(), seen.accepts(), seen.requests().len()), (DeliveryState::Maybe, 1, 2));
}

#[tokio::test]
async fn refused_connection_sent_nothing() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = call(&client(), &target(address), "{}").await.unwrap_err();
    assert!(matches!(error, TransportError::Connect(_)) && error.sent() == DeliveryState::No, "{error}");
}

#[tokio::test]
async fn targets_never_share_connections() {
    let (address, seen) = always(OK).await;
    let client = client();
    for target in [target(address), target(address)] {
        call(&client, &target, "{}").await.unwrap();
        call(&client, &target.clone(), "{}").await.unwrap();
        call(&client, &target.with_timeouts(PATIENT), "{}").await.unwrap();
    }
    assert_eq!(seen.accepts(), 2);
}

#[tokio::test]
async fn reply_dropped_early_closes_connection() {
    let (address, seen) = always("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345").await;
    let (client, target) = (client(), target(address));
    for _ in 0..2 {
        let mut reply = client.send(&target, post("{}")).await.unwrap();
        assert_eq!(reply.chunk().await.unwrap().unwrap(), "12345");
        drop(reply);
        assert_eq!(client.idle_connections(), 0);
    }
    assert_eq!(seen.accepts(), 2);
}

#[tokio::test]
async fn properly_ended_stream_is_pooled() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
                  9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n";
    let (address, seen) = always(answer).await;
    let (client, target) = (client(), target(address));
    for _ in 0..3 {
        let mut reply = client.send(&target, post("{}")).await.unwrap();
        let (read, error) = drain(&mut reply).await;
        assert_eq!((read.as_slice(), error.is_none()), (b"data: 1\n\ndata: 2\n\n".as_slice(), true));
        assert!(reply.chunk().await.unwrap().is_none());
    }
    assert_eq!(seen.accepts(), 1);
}

#[tokio::test]
async fn empty_answer_is_pooled_at_once() {
    let (address, seen) = always("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await;
    let (client, target) = (client(), target(address));
    for _ in 0..3 {
        assert_eq!(client.send(&target, post("")).await.unwrap().status(), 202);
    }
    assert_eq!(seen.accepts(), 1);
    assert!(seen.requests()[0].contains("content-length: 0\r\n"));
}

#[tokio::test]
async fn close_is_obeyed() {
    for answer in
        ["HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", "HTTP/1.0 200 OK\r\n\r\nok"]
    {
        let (address, seen) = once(answer).await;
        let (client, target) = (client(), target(address));
        for _ in 0..2 {
            assert_eq!(call(&client, &target, "{}").await.unwrap(), "ok");
            assert_eq!(client.idle_connections(), 0, "{answer}");
        }
        assert_eq!(seen.accepts(), 2);
    }
}

#[tokio::test]
async fn bytes_after_answer_poison_connection() {
    // A second answer to no request must never be taken for the next one.
    let (address, seen) = always(format!("{OK}{OK}")).await;
    let (client, target) = (client(), target(address));
    for _ in 0..3 {
        assert_eq!(call(&client, &target, "{}").await.unwrap(), "ok");
        assert_eq!(client.idle_connections(), 0);
    }
    assert_eq!(seen.accepts(), 3);
}

#[tokio::test]
async fn pool_is_bounded_and_swept() {
    let (address, _) = serve(|mut peer| async move {
        while peer.hear().await.is_some() {
            tokio::time::sleep(ms(50)).await;
            peer.say(OK).await;
        }
    })
    .await;
    let client = client();
    let target = Upstream::new(TargetSettings { max_idle: 2, ..settings(address) }).unwrap();
    let calls: Vec<_> = (0..5)
        .map(|_| (client.clone(), target.clone()))
        .map(|(client, target)| tokio::spawn(async move { call(&client, &target, "{}").await.unwrap() }))
        .collect();
    for answer in calls {
        answer.await.unwrap();
    }
    assert_eq!(client.idle_connections(), 2);
    client.sweep(Instant::now());
    assert_eq!(client.idle_connections(), 2);
    client.sweep(Instant::now() + Duration::from_secs(31));
    assert_eq!(client.idle_connections(), 0);
}

#[tokio::test]
async fn sweep_finds_closed_connections() {
    let (address, _) = once(OK).await;
    let (client, target) = (client(), target(address));
    call(&client, &target, "{}").await.unwrap();
    tokio::time::sleep(ms(30)).await;
    client.sweep(Instant::now());
    assert_eq!(client.idle_connections(), 0);
}

#[test]
fn connection_stays_on_its_runtime() {
    let new = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (server, first, second) = (new(), new(), new());
    let (address, seen) = server.block_on(always(OK));
    let (client, target) = (client(), target(address));
    first.block_on(call(&client, &target, "1")).unwrap();
    second.block_on(call(&client, &target, "2")).unwrap();
    assert_eq!(seen.accepts(), 2);
    first.block_on(call(&client, &target, "3")).unwrap();
    assert_eq!(seen.accepts(), 2);
    // The remains of a runtime after its end do no harm.
    drop(first);
    second.block_on(call(&client, &target, "4")).unwrap();
    client.sweep(Instant::now());
    assert_eq!((seen.accepts(), client.idle_connections()), (2, 1));
}

#[tokio::test]
async fn long_idle_connection_is_checked() {
    let (address, seen) = serve(|mut peer| async move {
        peer.hear().await;
        peer.say(OK).await;
        tokio::time::sleep(ms(600)).await;
    })
    .await;
    let (client, target) = (client(), target(address));
    call(&client, &target, "1").await.unwrap();
    // Blocks this runtime's only thread past the close, so its I/O driver cannot have seen it.
    let end = Instant::now() + ms(900);
    tokio::time::sleep(ms(590)).await;
    while Instant::now() < end {
        tokio::task::yield_now().await;
    }
    call(&client, &target, "2").await.unwrap();
    assert_eq!((seen.accepts(), seen.requests().len()), (2, 2));
}
