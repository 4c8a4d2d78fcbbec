//! The HTTP client against real sockets: scripted peers, and hyper's server for HTTP/2.
#![cfg(feature = "gateway")]
// Always true here. Clippy takes it as a sign that functions beside the tests are tests as well.
#![cfg(test)]

mod deadlines;
mod guarded;
mod http1;
mod http2;
mod limits;
mod pooling;
mod secure;
mod support;
