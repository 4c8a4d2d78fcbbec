//! The official Rust SDK of A2A 1.0, by gRPC: an agent of the interop tests, and a client that does what it is told.
//!
//! `a2a-rs agent [--port N]` is the agent; `a2a-rs client ADDRESS TENANT [NAME VALUE]...` reads requests from standard input. Not a mock:
//! the SDK makes every byte on the wire.

mod agent;
mod client;
mod story;

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["agent"] => agent::serve(0).await,
        ["agent", "--port", port] => agent::serve(port.parse().expect("a port")).await,
        ["client", address, tenant, ref headers @ ..] => client::run(address, tenant, headers).await,
        _ => panic!("a2a-rs agent [--port N] | client ADDRESS TENANT [NAME VALUE]..."),
    }
}
