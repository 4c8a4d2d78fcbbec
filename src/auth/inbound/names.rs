//! The name that a client certificate gives its owner.
//!
//! One field names, as the configuration says; a certificate with two values for it names nobody. Not here: whether the certificate is
//! good (see `tls`).

use crate::auth::Caller;
use crate::auth::caller::{AND, Identity};
use crate::config::CertificateName;

/// What a verified certificate says about its owner.
#[derive(Debug, Clone, Copy, Default)]
pub struct CertificateFacts<'a> {
    /// URI SANs, as written.
    pub uris: &'a [String],
    /// DNS SANs, in lower case.
    pub dns_names: &'a [String],
    /// The common name of the subject.
    pub common_name: Option<&'a str>,
}

/// Which field names the caller.
pub(super) struct Names(Vec<CertificateName>);

impl Names {
    pub(super) fn new(names: &[CertificateName]) -> Self {
        Self(names.to_vec())
    }

    /// The owner of a certificate, by the first field that it has.
    pub(super) fn caller(&self, facts: &CertificateFacts<'_>) -> Option<Caller> {
        let name = self.0.iter().find_map(|field| match field {
            CertificateName::Spiffe => {
                Some(only(facts.uris)?.filter(|uri| is_spiffe(uri)).map(|uri| format!("uri:{uri}")))
            }
            CertificateName::Uri => Some(only(facts.uris)?.map(|uri| format!("uri:{uri}"))),
            CertificateName::Dns => Some(only(facts.dns_names)?.map(|name| format!("dns:{name}"))),
            CertificateName::CommonName => {
                facts.common_name.filter(|name| !name.is_empty()).map(|name| Some(format!("cn:{name}")))
            }
        })??;
        // One that reads as two names could be taken for who proved both.
        if name.contains(AND) {
            return None;
        }
        let certificate = facts.uris.iter().chain(facts.dns_names).cloned().collect();
        Some(Caller::from(Identity { name, certificate, ..Identity::default() }))
    }
}

/// The only value; `Some(None)` if there are several, so that none of them counts.
fn only(values: &[String]) -> Option<Option<&str>> {
    match values {
        [] => None,
        [one] => Some(Some(one.as_str()).filter(|one| !one.is_empty())),
        _ => Some(None),
    }
}

/// Whether a URI is a SPIFFE id: a trust domain and a path, and nothing else.
fn is_spiffe(uri: &str) -> bool {
    uri.strip_prefix("spiffe://").and_then(|rest| rest.split_once('/')).is_some_and(|(domain, path)| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
        !domain.is_empty() && domain.bytes().all(fits) && !path.is_empty() && !path.contains(['?', '#'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_field_names_and_two_values_of_it_name_nobody() {
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
            (vec![CommonName], &["urn:x"], &[], Some(""), None),
            (vec![Dns], &["urn:x"], &[], Some("d.example"), None),
        ] {
            let (uris, dns_names) = (strings(uris), strings(dns));
            let facts = CertificateFacts { uris: &uris, dns_names: &dns_names, common_name: common };
            let caller = Names::new(&fields).caller(&facts);
            assert_eq!(caller.as_ref().map(Caller::name), expected, "{fields:?} {uris:?} {dns_names:?}");
        }
    }
}
