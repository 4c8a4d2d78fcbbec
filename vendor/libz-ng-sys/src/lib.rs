//! Stock zlib under the name of zlib-ng: see `Cargo.toml`.
pub use libz_sys::*;
