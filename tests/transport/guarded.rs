//! Targets by who named them: where a name leads is judged, and nothing else is connected to.

use std::sync::Arc;

use mcp_a2a_gateway::config::{AllowList, Allowed};
use mcp_a2a_gateway::transport::{
    AddressClass, AddressPolicy, DeliveryState, TargetSettings, TransportError, Upstream,
};

use crate::support::*;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn listing(networks: &[&str]) -> Arc<AllowList> {
    let list = networks.iter().map(|network| Allowed::Network(network.parse().unwrap())).collect();
    Arc::new(AllowList(list))
}

#[tokio::test]
async fn only_judged_address_is_connected_to() {
    let (address, seen) = always(OK).await;
    let port = address.port();
    for (host, policy, is_open) in [
        ("127.0.0.1", AddressPolicy::Trusted, true),
        ("localhost", AddressPolicy::Trusted, true),
        ("127.0.0.1", AddressPolicy::Guarded(listing(&[])), false),
        ("localhost", AddressPolicy::Guarded(listing(&["10.0.0.0/8"])), false),
        ("localhost", AddressPolicy::Listed(listing(&["::1"])), false),
        // One of its two addresses is enough.
        ("localhost", AddressPolicy::Guarded(listing(&["127.0.0.1"])), true),
        ("[::ffff:127.0.0.1]", AddressPolicy::Guarded(listing(&[])), false),
    ] {
        let before = seen.accepts();
        let uri = format!("http://{host}:{port}/").parse().unwrap();
        let settings = TargetSettings { timeouts: PATIENT, ..TargetSettings::new(uri, policy.clone()) };
        let called = call(&client(), &Upstream::new(settings).unwrap(), "{}").await;
        match called {
            Ok(body) => assert!(is_open && body == "ok", "{host} {policy:?}"),
            Err(error) => {
                let refused = matches!(&error, TransportError::Refused { class: AddressClass::Loopback, .. });
                // A system may know `localhost` by one address only: then it is not there, and that
                // is no way in either.
                let away = host == "localhost" && matches!(&error, TransportError::Connect(_));
                assert!(!is_open && (refused || away), "{host} {policy:?}: {error}");
                assert_eq!((error.sent(), seen.accepts()), (DeliveryState::No, before), "{host} {policy:?}");
            }
        }
    }
}

#[test]
fn odd_spellings_are_no_target() {
    for host in ["0x7f.1", "2130706433", "0177.0.0.1", "127.1", "127.0.0.1.", "[fe80::1%25lo]", "a..b"] {
        let Ok(uri) = format!("http://{host}/").parse() else { continue };
        let error = Upstream::new(TargetSettings::new(uri, AddressPolicy::Trusted)).err().unwrap();
        assert!(matches!(error, TransportError::BadUri(_)), "{host}: {error}");
    }
}
