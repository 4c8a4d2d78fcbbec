//! Upstreams that speak HTTP/2 and nothing else: prior knowledge, ALPN, trailers, `GOAWAY` and resets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response, Version};
use mcp_a2a_gateway::transport::{DeliveryState, TargetSettings, TransportError, Upstream};
use tokio::net::TcpListener;

use crate::support::{always, call, client, post, settings};

fn target(address: SocketAddr) -> Upstream {
    Upstream::new(TargetSettings { http2_only: true, ..settings(address) }).unwrap()
}

type Exchange = (Request<RecvStream>, SendResponse<Bytes>);

/// Starts a server: each connection, by its number, does this with each request. Returns the number of
/// connections as well.
async fn serve<F>(script: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(usize, &mut h2::server::Connection<tokio::net::TcpStream, Bytes>, Exchange) + Send + Sync + 'static,
{
    serve_with(h2::server::Builder::new(), script).await
}

/// As [`serve`], with these settings of the server.
async fn serve_with<F>(settings: h2::server::Builder, script: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(usize, &mut h2::server::Connection<tokio::net::TcpStream, Bytes>, Exchange) + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (count, script) = (Arc::<AtomicUsize>::default(), Arc::new(script));
    let counter = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (number, script) = (counter.fetch_add(1, Ordering::SeqCst), script.clone());
            let handshake = settings.handshake(stream);
            tokio::spawn(async move {
                let mut connection = handshake.await.unwrap();
                while let Some(Ok(exchange)) = connection.accept().await {
                    script(number, &mut connection, exchange);
                }
            });
        }
    });
    (address, count)
}

fn answer(respond: &mut SendResponse<Bytes>, trailers: HeaderMap) {
    let mut body = respond.send_response(Response::new(()), false).unwrap();
    body.send_data(Bytes::from_static(b"ok"), false).unwrap();
    body.send_trailers(trailers).unwrap();
}

#[tokio::test]
async fn prior_knowledge_and_trailers() {
    let (address, connections) = serve(|_, _, (request, mut respond)| {
        assert_eq!(request.headers()["te"], "trailers");
        answer(&mut respond, HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]));
    })
    .await;
    let (client, target) = (client(), target(address));
    for _ in 0..2 {
        let mut reply = client.send(&target, post("x")).await.unwrap();
        assert_eq!((reply.version(), reply.trailers()), (Version::HTTP_2, None));
        assert_eq!(reply.collect(10).await.unwrap(), "ok");
        assert!(reply.is_over());
        assert_eq!(reply.trailers().unwrap()["grpc-status"], "0");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn trailers_have_limit() {
    let (address, _) = serve(|_, _, (_, mut respond)| {
        let name = |number: usize| format!("x-{number}").parse().unwrap();
        answer(&mut respond, (0..101).map(|number| (name(number), "y".parse().unwrap())).collect());
    })
    .await;
    let error = call(&client(), &target(address), "x").await.unwrap_err();
    assert!(matches!(error, TransportError::HeaderTooLarge), "{error}");
}

/// An agent that allows one stream on each connection must not make the gateway keep a connection for each request.
#[tokio::test]
async fn shared_connections_have_limit() {
    const REQUESTS: usize = 70;
    const MAX_SHARED: usize = 64;
    let mut settings = h2::server::Builder::new();
    settings.max_concurrent_streams(1);
    let (address, connections) = serve_with(settings, |_, _, (_, mut respond)| {
        // The response has no end before the client resets it.
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        tokio::spawn(async move { std::future::poll_fn(|cx| body.poll_reset(cx)).await });
    })
    .await;
    let (client, target) = (client(), target(address));
    let mut replies = Vec::new();
    for _ in 0..REQUESTS {
        replies.push(client.send(&target, post("x")).await.unwrap());
    }
    assert_eq!((connections.load(Ordering::SeqCst), client.idle_connections()), (REQUESTS, 0));
    drop(replies);
    assert_eq!(client.idle_connections(), MAX_SHARED, "the others served one request");
    drop(client.send(&target, post("x")).await.unwrap());
    assert_eq!(connections.load(Ordering::SeqCst), REQUESTS, "those that are kept are used again");
}

#[tokio::test]
async fn refused_stream_is_sent_elsewhere() {
    let (address, connections) = serve(|number, _, (_, mut respond)| match number {
        0 => respond.send_reset(Reason::REFUSED_STREAM),
        _ => answer(&mut respond, HeaderMap::new()),
    })
    .await;
    assert_eq!(call(&client(), &target(address), "x").await.unwrap(), "ok");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn always_refused_stream_was_not_sent() {
    let (address, _) = serve(|_, _, (_, mut respond)| respond.send_reset(Reason::REFUSED_STREAM)).await;
    let error = call(&client(), &target(address), "x").await.unwrap_err();
    assert_eq!(error.sent(), DeliveryState::No, "{error}");
}

#[tokio::test]
async fn other_reset_may_have_done_work() {
    let (address, connections) =
        serve(|_, _, (_, mut respond)| respond.send_reset(Reason::INTERNAL_ERROR)).await;
    let error = call(&client(), &target(address), "x").await.unwrap_err();
    assert_eq!(error.sent(), DeliveryState::Maybe, "{error}");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// Bytes of an HTTP/2 server that answers the first request by `GOAWAY` with this last stream.
async fn going_away(last: u8) -> (SocketAddr, Arc<AtomicUsize>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::<AtomicUsize>::default();
    let counter = count.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let number = counter.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                if number > 0 {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((_, mut respond))) = connection.accept().await {
                        answer(&mut respond, HeaderMap::new());
                    }
                    return;
                }
                let (mut seen, settings) = (Vec::new(), [0, 0, 0, 4, 0, 0, 0, 0, 0]);
                stream.write_all(&settings).await.unwrap();
                // Until the message of the request is there.
                while !seen.windows(5).any(|five| five == b"hello") {
                    assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0);
                }
                let away = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, 0];
                stream.write_all(&away).await.unwrap();
                while stream.read_buf(&mut seen).await.is_ok_and(|read| read > 0) {}
            });
        }
    });
    (address, count)
}

#[tokio::test]
async fn request_after_goaway_is_sent_elsewhere() {
    let (address, connections) = going_away(0).await;
    assert_eq!(call(&client(), &target(address), "hello").await.unwrap(), "ok");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

/// The stream is the last that the agent has processed, or will: nothing else may be tried.
#[tokio::test]
async fn request_before_goaway_is_awaited() {
    let (address, connections) = going_away(1).await;
    let target = target(address);
    let hasty = mcp_a2a_gateway::transport::ExchangeTimeouts {
        first_byte: crate::support::ms(200),
        ..target.timeouts()
    };
    let error = call(&client(), &target.with_timeouts(hasty), "hello").await.unwrap_err();
    assert_eq!(error.sent(), DeliveryState::Maybe, "{error}");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn server_of_http1_has_done_nothing() {
    let (address, _) = always("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let (silent, _) = crate::support::serve(async |mut peer| drop(peer.hear().await)).await;
    for address in [address, silent] {
        let error = call(&client(), &target(address), "x").await.unwrap_err();
        assert_eq!(error.sent(), DeliveryState::No, "{error}");
        assert!(error.to_string().contains("does not speak HTTP/2"), "{error}");
    }
}

#[tokio::test]
async fn dropped_response_resets_its_stream() {
    let (sender, mut left) = tokio::sync::mpsc::unbounded_channel();
    let (address, _) = serve(move |_, _, (_, mut respond)| {
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        let sender = sender.clone();
        tokio::spawn(async move {
            let reset = std::future::poll_fn(|cx| body.poll_reset(cx)).await;
            sender.send(reset.unwrap()).unwrap();
        });
    })
    .await;
    let (client, target) = (client(), target(address));
    drop(client.send(&target, post("x")).await.unwrap());
    assert_eq!(left.recv().await, Some(Reason::CANCEL));
}
