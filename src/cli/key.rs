//! `key`: creates an API key and the hash that goes into the configuration.
//!
//! The key itself is printed once and stored nowhere.

use std::process::ExitCode;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::RngCore;
use rand::rngs::OsRng;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::print_line;

/// Random bytes of a key.
const BYTES: usize = 32;

/// Creates and prints both.
pub(super) fn run(as_json: bool) -> ExitCode {
    let mut random = [0; BYTES];
    OsRng.fill_bytes(&mut random);
    let key = URL_SAFE_NO_PAD.encode(random);
    let hex: String = Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    if as_json {
        print_line(&json!({ "key": key, "hash": format!("sha256:{hex}") }).to_string());
    } else {
        print_line(&format!("key (for the caller, shown once):   {key}"));
        print_line(&format!("hash (for auth.api_keys.keys):      sha256:{hex}"));
    }
    ExitCode::SUCCESS
}
