//! The HTTP client against real sockets: scripted peers, and hyper's server for HTTP/2.
#![cfg(feature = "gateway")]

#[cfg(test)]
mod deadlines;
#[cfg(test)]
mod guarded;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod pooling;
#[cfg(test)]
mod secure;
#[cfg(test)]
mod support;
