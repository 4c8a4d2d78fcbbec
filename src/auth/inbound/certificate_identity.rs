//! The name of a caller in its client certificate.
//!
//! One field names, as the configuration says; a certificate with two values for it names no
//! caller. Nor does a URI with the scheme of SPIFFE ids that is not one, in any field:
//! `spiffe://corp/a/../b` fits the patterns of a rule for `spiffe://corp/a/*`.

use crate::auth::Caller;
use crate::auth::caller::{AND, Identity};
use crate::config::{CertificateName, check_spiffe_id, is_spiffe_uri};

/// The facts of a verified certificate about its owner.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CertificateFacts<'a> {
    /// URI SANs, as written.
    pub(crate) uris: &'a [String],
    /// DNS SANs, in lower case.
    pub(crate) dns_names: &'a [String],
    /// The common name of the subject.
    pub(crate) common_name: Option<&'a str>,
    /// Its SHA-256.
    pub(crate) thumbprint: [u8; 32],
}

/// The field that names the caller.
pub(super) struct IdentityField(Vec<CertificateName>);

impl IdentityField {
    pub(super) fn new(names: &[CertificateName]) -> Self {
        Self(names.to_vec())
    }

    /// Returns the owner of a certificate, by the first field that it has.
    pub(super) fn caller(&self, facts: &CertificateFacts<'_>) -> Option<Caller> {
        let name = self.0.iter().find_map(|field| match field {
            CertificateName::Spiffe => {
                let id = single(facts.uris)?.filter(|uri| check_spiffe_id(uri).is_ok());
                Some(id.map(|id| format!("uri:{id}")))
            }
            CertificateName::Uri => {
                Some(single(facts.uris)?.filter(|uri| may_name(uri)).map(|uri| format!("uri:{uri}")))
            }
            CertificateName::Dns => Some(single(facts.dns_names)?.map(|name| format!("dns:{name}"))),
            CertificateName::CommonName => {
                facts.common_name.filter(|name| !name.is_empty()).map(|name| Some(format!("cn:{name}")))
            }
        })??;
        // A name that reads as two could be taken for a caller with both credentials.
        if name.contains(AND) {
            return None;
        }
        // An X.509-SVID has exactly one URI (X509-SVID §2): of several, no rule sees a SPIFFE id.
        let is_seen = |uri: &&String| !is_spiffe_uri(uri) || (facts.uris.len() == 1 && may_name(uri));
        let certificate = facts.uris.iter().filter(is_seen).chain(facts.dns_names).cloned().collect();
        Some(Caller::from(Identity { name, certificate, ..Identity::default() }))
    }
}

/// Returns the only value; `Some(None)` if there are several, so that none of them counts.
fn single(values: &[String]) -> Option<Option<&str>> {
    match values {
        [] => None,
        [one] => Some(Some(one.as_str()).filter(|one| !one.is_empty())),
        _ => Some(None),
    }
}

/// Returns true if a URI may name a caller: one with the scheme of SPIFFE ids must be one.
fn may_name(uri: &str) -> bool {
    !is_spiffe_uri(uri) || check_spiffe_id(uri).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_values_of_the_naming_field_name_no_caller() {
        use CertificateName::{CommonName, Dns, Spiffe, Uri};
        let strings = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        for (fields, uris, dns, common, expected) in [
            (vec![Spiffe], &["spiffe://corp/a"][..], &[][..], Some("x"), Some("uri:spiffe://corp/a")),
            (vec![CommonName], &[], &[], Some("R&D"), Some("cn:R&D")),
            (vec![CommonName], &[], &[], Some("app & key:ci"), None),
            (vec![Spiffe], &["https://corp/a"], &[], Some("x"), None),
            (vec![Spiffe], &["spiffe://corp/a", "spiffe://corp/b"], &[], None, None),
            (vec![Spiffe, Dns], &["spiffe://corp/a", "spiffe://corp/b"], &["d"], None, None),
            (vec![Spiffe, Dns], &[], &["d.example"], None, Some("dns:d.example")),
            (vec![Dns], &[], &["a", "b"], Some("x"), None),
            (vec![Dns, CommonName], &[], &[], Some("x"), Some("cn:x")),
            (vec![Uri], &["urn:x"], &[], None, Some("uri:urn:x")),
            (vec![Uri], &["spiffe://corp/a"], &[], None, Some("uri:spiffe://corp/a")),
            (vec![Uri], &["spiffe://corp/a/../b"], &[], None, None),
            (vec![Uri, CommonName], &["Spiffe://corp/a"], &[], Some("x"), None),
            (vec![Spiffe], &["spiffe://corp/a/"], &[], None, None),
            (vec![CommonName], &["urn:x"], &[], Some(""), None),
            (vec![Dns], &["urn:x"], &[], Some("d.example"), None),
        ] {
            let (uris, dns_names) = (strings(uris), strings(dns));
            let facts = CertificateFacts {
                uris: &uris,
                dns_names: &dns_names,
                common_name: common,
                thumbprint: [0; 32],
            };
            let caller = IdentityField::new(&fields).caller(&facts);
            assert_eq!(caller.as_ref().map(Caller::name), expected, "{fields:?} {uris:?} {dns_names:?}");
        }
    }
    /// Rules see the SANs of a certificate beside the one that names its owner.
    #[test]
    fn rules_see_no_malformed_spiffe_id() {
        for (uris, seen) in [
            (&["spiffe://corp/a"][..], &["spiffe://corp/a", "d"][..]),
            (&["spiffe://corp/a/../b"], &["d"]),
            (&["spiffe://corp/a", "urn:x"], &["urn:x", "d"]),
        ] {
            let uris: Vec<String> = uris.iter().map(|uri| (*uri).to_owned()).collect();
            let facts = CertificateFacts {
                uris: &uris,
                dns_names: &["d".to_owned()],
                common_name: None,
                thumbprint: [0; 32],
            };
            let caller = IdentityField::new(&[CertificateName::Dns]).caller(&facts).unwrap();
            assert_eq!(caller.certificate(), seen, "{uris:?}");
        }
    }
}
