//! Metrics of TLS: handshakes, reloads, and expiries of certificates and lists.
//!
//! Listeners and names in labels are the operator's own.

use std::sync::{Arc, Mutex};

use prometheus::{IntCounter, IntCounterVec, IntGaugeVec, Registry};

use super::label::{Handshake, Reload};
use super::metrics::{opts, register};
use crate::sync::lock;

/// The metrics of TLS of one gateway.
pub struct TlsMetrics {
    handshakes: IntCounterVec,
    reloads: IntCounterVec,
    ends: IntGaugeVec,
}

/// An expiry: its kind, its name, and its time in seconds since 1970.
pub type Expiry = (&'static str, String, i64);

/// The metrics of one listener, resolved.
pub struct ListenerMetrics {
    listener: String,
    handshakes: [IntCounter; Handshake::ALL.len()],
    reloads: [IntCounter; Reload::ALL.len()],
    ends: IntGaugeVec,
    shown: Mutex<Vec<Expiry>>,
}

impl TlsMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let handshakes = opts("tls_handshakes_total", "TLS handshakes with clients, by how they ended.");
        let reloads = opts("tls_reloads_total", "Certificates and lists read again, by what became of them.");
        let ends = opts(
            "tls_expiry_timestamp_seconds",
            "When certificates, authorities of clients and revocation lists end.",
        );
        Ok(Self {
            handshakes: register(registry, IntCounterVec::new(handshakes, &["listener", "outcome"])?)?,
            reloads: register(registry, IntCounterVec::new(reloads, &["listener", "outcome"])?)?,
            ends: register(registry, IntGaugeVec::new(ends, &["listener", "kind", "name"])?)?,
        })
    }

    /// Returns the metrics of the listener at this address. Keep it as long as the listener.
    #[must_use]
    pub fn listener(&self, address: &str) -> Arc<ListenerMetrics> {
        Arc::new(ListenerMetrics {
            listener: address.to_owned(),
            handshakes: Handshake::ALL
                .map(|outcome| self.handshakes.with_label_values(&[address, outcome.label()])),
            reloads: Reload::ALL.map(|outcome| self.reloads.with_label_values(&[address, outcome.label()])),
            ends: self.ends.clone(),
            shown: Mutex::default(),
        })
    }
}

impl ListenerMetrics {
    /// Counts a handshake.
    pub fn handshake(&self, outcome: Handshake) {
        if let Some(counter) = self.handshakes.get(outcome as usize) {
            counter.inc();
        }
    }

    /// Counts a reload of the files.
    pub fn reload(&self, outcome: Reload) {
        if let Some(counter) = self.reloads.get(outcome as usize) {
            counter.inc();
        }
    }

    /// Sets the expiries of all that the listener uses, and removes those of the past.
    pub fn set_expiries(&self, ends: Vec<Expiry>) {
        let mut shown = lock(&self.shown);
        for (kind, name, _) in shown.iter() {
            // Fails only for a name that existed twice.
            drop(self.ends.remove_label_values(&[&self.listener, *kind, name]));
        }
        for (kind, name, seconds) in &ends {
            let gauge = self.ends.with_label_values(&[&self.listener, *kind, name]);
            // Of two with one name the first to expire is set.
            let first = if gauge.get() == 0 { *seconds } else { gauge.get().min(*seconds) };
            gauge.set(first);
        }
        *shown = ends;
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Metrics;
    use super::*;

    #[test]
    fn what_is_no_longer_used_is_no_longer_shown() {
        let metrics = Metrics::new().unwrap();
        let listener = metrics.tls.listener("127.0.0.1:8443");
        listener.handshake(Handshake::Revoked);
        listener.reload(Reload::Refused);
        listener.set_expiries(vec![("certificate", "old".into(), 5), ("ca", "CN=a".into(), 9)]);
        listener.set_expiries(vec![("certificate", "new".into(), 8), ("certificate", "new".into(), 7)]);
        let text = String::from_utf8(metrics.render()).unwrap();
        for line in [
            r#"mcp_a2a_gateway_tls_handshakes_total{listener="127.0.0.1:8443",outcome="revoked"} 1"#,
            r#"mcp_a2a_gateway_tls_handshakes_total{listener="127.0.0.1:8443",outcome="ok"} 0"#,
            r#"mcp_a2a_gateway_tls_reloads_total{listener="127.0.0.1:8443",outcome="refused"} 1"#,
            r#"mcp_a2a_gateway_tls_expiry_timestamp_seconds{kind="certificate",listener="127.0.0.1:8443",name="new"} 7"#,
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains(r#"name="old""#) && !text.contains("CN=a"), "{text}");
    }
}
