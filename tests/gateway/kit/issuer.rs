//! An issuer of tokens: keys that can be exchanged, its metadata and key set over HTTP, and an
//! introspection endpoint.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use serde_json::{Value, json};

use crate::support::{Card, Reply, ScriptedAgent};

pub(crate) struct Issuer {
    pub(crate) server: ScriptedAgent,
    set: Arc<Mutex<Value>>,
}

/// A key that signs, under an id.
pub(crate) struct Key {
    id: String,
    algorithm: &'static str,
    pair: KeyPair,
    /// Members of its JWK, besides those that every key has.
    more: Value,
}

impl Key {
    pub(crate) fn es256(id: &str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        Self { id: id.to_owned(), algorithm: "ES256", pair, more: json!({ "use": "sig" }) }
    }

    pub(crate) fn ed25519(id: &str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        Self { id: id.to_owned(), algorithm: "EdDSA", pair, more: json!({ "use": "sig" }) }
    }

    /// The same key with these members in place of `use`.
    pub(crate) fn with(self, more: Value) -> Self {
        Self { more, ..self }
    }

    pub(crate) fn public(&self) -> Value {
        let raw = self.pair.public_key_raw();
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut key = match self.algorithm {
            "ES256" => {
                let (x, y) = raw[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "x": text(x), "y": text(y) })
            }
            _ => json!({ "kty": "OKP", "crv": "Ed25519", "x": text(raw) }),
        };
        key["kid"] = json!(self.id);
        key.as_object_mut().unwrap().extend(self.more.as_object().unwrap().clone());
        key
    }

    /// A token with these claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_as(json!({ "typ": "JWT" }), claims)
    }

    /// A token with these claims and, besides `alg` and `kid`, these members of the header.
    pub(crate) fn sign_as(&self, mut header: Value, claims: &Value) -> String {
        header["alg"] = json!(self.algorithm);
        header["kid"] = json!(self.id);
        let [header, claims] = [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let message = format!("{header}.{claims}");
        let signature = signature(&self.pair, message.as_bytes());
        format!("{message}.{signature}")
    }
}

/// The signature of a JWS over these bytes, by a key on P-256 (ES256) or by Ed25519.
pub(crate) fn signature(pair: &KeyPair, message: &[u8]) -> String {
    let (der, random) = (pair.serialize_der(), SystemRandom::new());
    let signature = match EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random) {
        Ok(key) => key.sign(&random, message).unwrap(),
        Err(_) => Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).unwrap().sign(message),
    };
    URL_SAFE_NO_PAD.encode(signature)
}

/// Seconds since 1970, and so many more.
pub(crate) fn at(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    i64::try_from(now).unwrap() + seconds
}

impl Issuer {
    pub(crate) async fn new(keys: &[&Key]) -> Self {
        let server = ScriptedAgent::start(Card::v1()).await;
        let issuer = Self { server, set: Arc::default() };
        issuer.publish(keys);
        let set = issuer.set.clone();
        issuer.server.on_path("/jwks", move |_| Reply::json(&set.lock().unwrap()));
        let metadata = json!({ "issuer": issuer.name(), "jwks_uri": format!("{}/jwks", issuer.name()) });
        issuer.server.on_path("/.well-known/openid-configuration", move |_| Reply::json(&metadata));
        issuer
    }

    /// The value of `iss`.
    pub(crate) fn name(&self) -> String {
        self.server.url().trim_end_matches('/').to_owned()
    }

    /// Exchanges the keys.
    pub(crate) fn publish(&self, keys: &[&Key]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.public()).collect();
        *self.set.lock().unwrap() = json!({ "keys": keys });
    }

    /// Claims that are good for ten minutes, changed by `change`.
    pub(crate) fn claims(&self, audience: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut claims = json!({ "iss": self.name(), "sub": "alice", "aud": audience, "exp": at(600) });
        change(&mut claims);
        claims
    }
}
