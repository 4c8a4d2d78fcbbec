//! Private keys that sign assertions: which algorithm each is for.
//!
//! Not here: what is signed (see `auth::outbound`).

use jsonwebtoken::errors::Error;
use jsonwebtoken::{Algorithm, EncodingKey, Header};

use super::Pem;

/// A key, and the algorithm that it signs with.
pub(crate) struct SigningKey {
    /// RS256, ES256, ES384 or EdDSA.
    pub(crate) algorithm: Algorithm,
    /// The key.
    pub(crate) key: EncodingKey,
}

/// Makes a key ready to sign; `None` if it is none of RSA, P-256, P-384 and Ed25519.
pub(crate) fn signing_key(pem: &Pem) -> Option<SigningKey> {
    type Read = fn(&[u8]) -> Result<EncodingKey, Error>;
    let kinds: [(Algorithm, Read); 4] = [
        (Algorithm::ES256, EncodingKey::from_ec_pem),
        (Algorithm::ES384, EncodingKey::from_ec_pem),
        (Algorithm::EdDSA, EncodingKey::from_ed_pem),
        (Algorithm::RS256, EncodingKey::from_rsa_pem),
    ];
    let bytes = pem.expose().as_bytes();
    kinds.into_iter().find_map(|(algorithm, read)| {
        let key = read(bytes).ok()?;
        // Only signing tells a curve from another.
        jsonwebtoken::encode(&Header::new(algorithm), &(), &key).ok()?;
        Some(SigningKey { algorithm, key })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_knows_its_algorithm() {
        for (curve, algorithm) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Algorithm::ES256),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Algorithm::ES384),
            (&rcgen::PKCS_ED25519, Algorithm::EdDSA),
        ] {
            let pem = Pem::inline(rcgen::KeyPair::generate_for(curve).unwrap().serialize_pem());
            assert_eq!(signing_key(&pem).unwrap().algorithm, algorithm);
        }
        assert!(
            signing_key(&Pem::inline("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
                .is_none()
        );
    }
}
