//! Between an A2A client and an A2A agent: what one of them says, as the other understands it.
//!
//! Pure. Of one version, only ids are replaced and every other byte stays (`splice`); of two, what is said is read into the
//! canonical model and written again. Not here: which ids a client may name, HTTP, sending.

mod operation;
mod splice;

pub use operation::{Mismatch, Operation};
pub use splice::{IdKind, Unspliced, params as splice_params, result as splice_result};
