//! Every wait ends.

use std::time::Instant;

use mcp_a2a_gateway::transport::{
    AddressPolicy, DeliveryState, ExchangeTimeouts, TargetSettings, TransportError, Upstream,
};
use tokio::net::TcpSocket;

use crate::support::*;

#[tokio::test]
async fn connecting_has_deadline() {
    // A full backlog: the kernel answers no more handshakes.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(ms(100), tokio::net::TcpStream::connect(address)).await {
        held.push(stream);
    }
    let target = target(address).with_timeouts(ExchangeTimeouts { connect: ms(100), ..PATIENT });
    let error = call(&client(), &target, "{}").await.unwrap_err();
    assert!(matches!(error, TransportError::ConnectTimeout) && error.sent() == DeliveryState::No, "{error}");
}

#[tokio::test]
async fn unfinished_handshake_is_abandoned() {
    let (address, _) = serve(|mut peer| async move { peer.wait().await }).await;
    let tls =
        mcp_a2a_gateway::transport::client_config(Some(&[crate::secure::authority().certificate()]), None)
            .unwrap();
    let uri = format!("https://localhost:{}", address.port()).parse().unwrap();
    let timeouts = ExchangeTimeouts { connect: ms(150), ..PATIENT };
    let target = Upstream::new(TargetSettings {
        tls: Some(tls.into()),
        timeouts,
        ..TargetSettings::new(uri, AddressPolicy::Trusted)
    })
    .unwrap();
    let error = call(&client(), &target, "{}").await.unwrap_err();
    assert!(matches!(error, TransportError::ConnectTimeout), "{error}");
}

#[tokio::test]
async fn response_header_has_deadline() {
    // Silence, and a header that drips for ever.
    let (silent, _) = serve(|mut peer| async move { peer.wait().await }).await;
    let (dripping, _) = serve(|mut peer| async move {
        peer.hear().await;
        peer.say("HTTP/1.1 200 OK\r\n").await;
        while peer.say("x-a: b\r\n").await {
            tokio::time::sleep(ms(10)).await;
        }
    })
    .await;
    for address in [silent, dripping] {
        let target = target(address).with_timeouts(ExchangeTimeouts { first_byte: ms(120), ..PATIENT });
        let begun = Instant::now();
        let error = call(&client(), &target, "{}").await.unwrap_err();
        assert!(
            matches!(error, TransportError::FirstByteTimeout) && error.sent() == DeliveryState::Maybe,
            "{error}"
        );
        assert!(begun.elapsed() >= ms(110));
    }
}

#[tokio::test]
async fn silent_body_is_abandoned() {
    let (address, _) = serve(|mut peer| async move {
        peer.hear().await;
        peer.say("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345").await;
        peer.wait().await;
    })
    .await;
    let target = target(address).with_timeouts(ExchangeTimeouts { idle: ms(120), ..PATIENT });
    let mut reply = client().send(&target, post("{}")).await.unwrap();
    let begun = Instant::now();
    let (read, error) = drain(&mut reply).await;
    assert_eq!(read, b"12345");
    assert!(matches!(error, Some(TransportError::IdleTimeout)), "{error:?}");
    assert!(begun.elapsed() >= ms(110));
    assert!(matches!(reply.chunk().await, Err(TransportError::Truncated)), "a failed body never ends well");
}

#[tokio::test]
async fn only_body_bytes_end_silence() {
    // Chunk extensions keep the socket busy and carry nothing.
    let (address, _) = serve(|mut peer| async move {
        peer.hear().await;
        peer.say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;").await;
        while peer.say("e").await {
            tokio::time::sleep(ms(20)).await;
        }
    })
    .await;
    let target = target(address).with_timeouts(ExchangeTimeouts { idle: ms(150), ..PATIENT });
    let mut reply = client().send(&target, post("{}")).await.unwrap();
    assert!(matches!(reply.chunk().await, Err(TransportError::IdleTimeout)));
}

#[tokio::test]
async fn drip_outlives_silence_but_not_total() {
    let (address, _) = serve(|mut peer| async move {
        peer.hear().await;
        peer.say("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await;
        while peer.say("x").await {
            tokio::time::sleep(ms(20)).await;
        }
    })
    .await;
    let target = target(address).with_timeouts(ExchangeTimeouts { idle: ms(150), total: ms(500), ..PATIENT });
    let begun = Instant::now();
    let mut reply = client().send(&target, post("{}")).await.unwrap();
    let (read, error) = drain(&mut reply).await;
    assert!(matches!(error, Some(TransportError::TotalTimeout)), "{error:?}");
    assert!(begun.elapsed() >= ms(490) && read.len() > 5, "{} bytes", read.len());
}

#[tokio::test]
async fn total_covers_header_too() {
    let (address, _) = serve(|mut peer| async move { peer.wait().await }).await;
    let target = target(address).with_timeouts(ExchangeTimeouts { total: ms(100), ..PATIENT });
    let error = call(&client(), &target, "{}").await.unwrap_err();
    assert!(matches!(error, TransportError::TotalTimeout), "{error}");
}

#[tokio::test]
async fn dropped_wait_loses_no_byte() {
    let (address, _) = serve(|mut peer| async move {
        peer.hear().await;
        peer.say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        for letter in ["a", "b", "c"] {
            for piece in ["1", "\r", "\n", letter, "\r\n"] {
                tokio::time::sleep(ms(10)).await;
                peer.say(piece).await;
            }
        }
        peer.wait().await;
    })
    .await;
    let target = target(address).with_timeouts(ExchangeTimeouts { idle: ms(400), ..PATIENT });
    let mut reply = client().send(&target, post("{}")).await.unwrap();
    let (mut read, mut dropped) = (Vec::new(), 0);
    let error = loop {
        tokio::select! {
            biased;
            chunk = reply.chunk() => match chunk {
                Ok(data) => read.extend_from_slice(&data.unwrap()),
                Err(error) => break error,
            },
            () = tokio::time::sleep(ms(3)) => dropped += 1,
        }
    };
    assert_eq!(read, b"abc");
    assert!(matches!(error, TransportError::IdleTimeout) && dropped > 20, "{error}, {dropped}");
}
