//! The one type that Pingora names outside of its tests: see `Cargo.toml`.

/// Replaces `tokio_test::io`.
pub mod io {
    /// A stream for tests, of which there is none.
    #[derive(Debug)]
    pub enum Mock {}
}
