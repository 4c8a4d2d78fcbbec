//! The addresses at which an upstream may be reached, checked after its name was resolved and
//! before a connection is opened.
//!
//! The owner of a name decides where it leads, at each resolution anew. So the address is checked,
//! at the moment at which it is connected to, and no other address is used. See `agents::resolved`
//! for permission to send the gateway's credentials, and [`Host`](crate::config::Host) for odd
//! spellings of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use super::error::TransportError;
use crate::config::{AllowList, Host};

/// The party that named an upstream, which decides its permitted addresses.
#[derive(Debug, Clone)]
pub enum AddressPolicy {
    /// The operator: any address, internal or external, but for those of metadata services, to
    /// which no name rightly leads.
    Trusted,
    /// Another party, and credentials are sent: only networks that the operator listed.
    Listed(Arc<AllowList>),
    /// Another party: public addresses, and networks that the operator listed.
    Guarded(Arc<AllowList>),
    /// A client, as its webhook: public addresses, and networks that the operator listed for
    /// webhooks.
    Webhook(Arc<AllowList>),
}

/// The class of an address. One within another (`::ffff:10.0.0.1`, NAT64, 6to4) has the class of
/// the inner one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressClass {
    /// Any other.
    Public,
    /// `0.0.0.0/8`, `::`.
    Unspecified,
    /// `127.0.0.0/8`, `::1`.
    Loopback,
    /// RFC 1918.
    Private,
    /// `169.254.0.0/16`, `fe80::/10`.
    LinkLocal,
    /// Addresses at which clouds give machines their credentials.
    Metadata,
    /// `100.64.0.0/10`, behind a carrier's NAT.
    Shared,
    /// `fc00::/7`, and `fec0::/10` before it.
    UniqueLocal,
    /// Multicast, `255.255.255.255` included.
    Multicast,
    /// For documents, measurements and later use, and tunnels with an unknown inner address.
    Reserved,
}

impl AddressPolicy {
    /// Returns the addresses that may be connected to.
    ///
    /// # Errors
    ///
    /// [`TransportError::Refused`] if there are some and none of them may be.
    pub(super) fn check(
        &self,
        host: &Host,
        found: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, TransportError> {
        let refused = found.iter().map(|found| found.ip()).find(|address| !self.admits(host, *address));
        let good: Vec<SocketAddr> = found.into_iter().filter(|found| self.admits(host, found.ip())).collect();
        match refused {
            Some(address) if good.is_empty() => {
                let host = match host {
                    Host::Address(address) => address.to_string(),
                    Host::Name(name) => name.clone(),
                };
                Err(TransportError::Refused { host, class: AddressClass::of(address), remedy: self.hint() })
            }
            _ => Ok(good),
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::Trusted => "write the address instead of the name",
            Self::Listed(_) | Self::Guarded(_) => "list the address or its network under outbound.allow",
            Self::Webhook(_) => "list the address or its network under outbound.webhooks.allow",
        }
    }

    fn admits(&self, host: &Host, address: IpAddr) -> bool {
        let class = AddressClass::of(address);
        let listed = |list: &AllowList| {
            let network = list.network_of(address);
            // A whole network is listed for the services in it, not for one that hands out
            // credentials.
            network.is_some_and(|network| class != AddressClass::Metadata || network.is_single())
        };
        match self {
            Self::Trusted => class != AddressClass::Metadata || matches!(host, Host::Address(_)),
            Self::Listed(list) => listed(list),
            Self::Guarded(list) | Self::Webhook(list) => class == AddressClass::Public || listed(list),
        }
    }
}

impl AddressClass {
    /// Returns the class of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }

    /// Returns the label for metrics; one of a closed set.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Unspecified => "unspecified",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link_local",
            Self::Metadata => "metadata",
            Self::Shared => "shared",
            Self::UniqueLocal => "unique_local",
            Self::Multicast => "multicast",
            Self::Reserved => "reserved",
        }
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "a public address",
            Self::Unspecified => "an unspecified address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "the address of a metadata service",
            Self::Shared => "an address behind a carrier's NAT",
            Self::UniqueLocal => "a private (unique local) address",
            Self::Multicast => "a multicast address",
            Self::Reserved => "a reserved address",
        })
    }
}

/// AWS, Azure, Google, Oracle, DigitalOcean and others share the first one; then AWS tasks and
/// pods, Alibaba, Oracle, Azure.
const METADATA_V4: [Ipv4Addr; 6] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];
/// AWS machines, AWS pods, Google.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

fn of_v4(address: Ipv4Addr) -> AddressClass {
    if METADATA_V4.contains(&address) {
        return AddressClass::Metadata;
    }
    match address.octets() {
        [0, ..] => AddressClass::Unspecified,
        [127, ..] => AddressClass::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressClass::Private,
        [169, 254, ..] => AddressClass::LinkLocal,
        [100, 64..=127, ..] => AddressClass::Shared,
        [224..=239, ..] | [255, 255, 255, 255] => AddressClass::Multicast,
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18 | 19, ..] => AddressClass::Reserved,
        [198, 51, 100, _] | [203, 0, 113, _] | [240..=255, ..] => AddressClass::Reserved,
        _ => AddressClass::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> AddressClass {
    if METADATA_V6.contains(&address) {
        return AddressClass::Metadata;
    }
    if let Some(inner) = inner_v4(address) {
        return of_v4(inner);
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressClass::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Loopback,
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => AddressClass::UniqueLocal,
        [0xfe80..=0xfebf, ..] => AddressClass::LinkLocal,
        [0xff00..=0xffff, ..] => AddressClass::Multicast,
        // Teredo, benchmarks, ORCHID and their like, then documents.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => AddressClass::Reserved,
        // Assigned to the public.
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Reserved,
    }
}

/// Returns the IPv4 address that packets to this one go to.
fn inner_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        // Unspecified and loopback are no IPv4 addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        // Mapped, translated, compatible, NAT64.
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0, 0, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(of(high, low)),
        // 6to4.
        [0x2002, high, low, ..] => Some(of(high, low)),
        // ISATAP: a public network, and in it the machine of that address.
        [0x2000..=0x3fff, _, _, _, 0 | 0x200, 0x5efe, high, low] => Some(of(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Allowed;

    fn class(address: &str) -> AddressClass {
        AddressClass::of(address.parse().unwrap())
    }

    fn judged(policy: &AddressPolicy, host: &str, addresses: &[&str]) -> Result<Vec<String>, String> {
        let found = addresses.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 80)).collect();
        let good = policy.check(&Host::read(host).unwrap(), found).map_err(|error| error.to_string())?;
        Ok(good.iter().map(|address| address.ip().to_string()).collect())
    }

    fn listing(entries: &[&str]) -> Arc<AllowList> {
        let list = entries.iter().map(|entry| Allowed::Network(entry.parse().unwrap()));
        Arc::new(AllowList(list.collect()))
    }

    #[test]
    fn every_kind_of_address_is_known_for_what_it_is() {
        use AddressClass as Is;
        for (expected, addresses) in [
            (Is::Public, "1.1.1.1 172.32.0.1 100.128.0.1 2606:4700::1111 64:ff9b::101:101 2002:101:101::1"),
            (Is::Unspecified, "0.0.0.0 0.1.2.3 :: ::ffff:0.0.0.0"),
            (
                Is::Loopback,
                "127.0.0.1 127.255.0.9 ::1 ::ffff:127.0.0.1 ::7f00:1 64:ff9b::7f00:1 2002:7f00:1::",
            ),
            (Is::Private, "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 ::ffff:10.0.0.1 ::ffff:0:10.0.0.1"),
            (Is::Private, "2001:4860::5efe:a00:1"),
            (Is::LinkLocal, "169.254.1.1 fe80::1 febf::1 ::ffff:169.254.1.1 fe80::5efe:1.1.1.1"),
            (Is::Metadata, "169.254.169.254 169.254.170.2 100.100.100.200 192.0.0.192 168.63.129.16"),
            (
                Is::Metadata,
                "fd00:ec2::254 fd20:ce::254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::",
            ),
            (Is::Shared, "100.64.0.1 100.127.255.255"),
            (Is::UniqueLocal, "fc00::1 fdff::1 fec0::1"),
            (Is::Multicast, "224.0.0.1 239.255.255.255 255.255.255.255 ff02::1"),
            (Is::Reserved, "192.0.2.1 198.51.100.1 203.0.113.1 198.18.0.1 240.0.0.1 192.88.99.1 2001:db8::1"),
            (Is::Reserved, "2001::1 3fff::1 100::1 64:ff9b:1::1 5f00::1 4000::1"),
        ] {
            for address in addresses.split(' ') {
                assert_eq!(class(address), expected, "{address}");
            }
        }
    }

    #[test]
    fn the_operator_goes_anywhere_but_a_name_never_to_a_metadata_service() {
        let trusted = AddressPolicy::Trusted;
        for inside in ["127.0.0.1", "10.0.0.1", "fd00::1", "169.254.1.1", "1.1.1.1"] {
            assert_eq!(judged(&trusted, "agent.example", &[inside]).unwrap(), [inside]);
        }
        let told = judged(&trusted, "agent.example", &["169.254.169.254"]).unwrap_err();
        assert!(told.contains("metadata") && told.contains("write the address"), "{told}");
        assert_eq!(judged(&trusted, "169.254.169.254", &["169.254.169.254"]).unwrap(), ["169.254.169.254"]);
    }

    #[test]
    fn unlisted_addresses_are_refused() {
        let guarded = AddressPolicy::Guarded(listing(&[]));
        assert_eq!(
            judged(&guarded, "a.example", &["10.0.0.1", "1.1.1.1"]).unwrap(),
            ["1.1.1.1"],
            "only what was judged"
        );
        let told = judged(&guarded, "a.example", &["127.0.0.1"]).unwrap_err();
        assert!(
            told.contains("a.example")
                && told.contains("a loopback address")
                && told.contains("outbound.allow"),
            "{told}"
        );
        assert_eq!(
            judged(&guarded, "a.example", &[]).unwrap(),
            Vec::<String>::new(),
            "no address is another problem"
        );
        let listed = AddressPolicy::Listed(listing(&[]));
        assert!(judged(&listed, "a.example", &["1.1.1.1"]).unwrap_err().contains("a public address"));
    }

    #[test]
    fn a_listed_network_lets_in_what_is_meant() {
        for policy in [
            AddressPolicy::Guarded(listing(&["10.0.0.0/8", "100.64.0.0/10"])),
            AddressPolicy::Listed(listing(&["10.0.0.0/8", "100.64.0.0/10"])),
        ] {
            assert_eq!(judged(&policy, "a.example", &["10.1.2.3", "192.168.0.1"]).unwrap(), ["10.1.2.3"]);
            assert!(judged(&policy, "a.example", &["192.168.0.1"]).is_err());
            assert!(judged(&policy, "a.example", &["100.100.100.200"]).is_err(), "not a metadata service");
            assert!(judged(&policy, "a.example", &["64:ff9b::a00:1"]).is_err(), "nor a way around");
        }
        let meant = AddressPolicy::Listed(listing(&["100.100.100.200"]));
        assert!(judged(&meant, "a.example", &["100.100.100.200"]).is_ok(), "unless it is listed by itself");
    }
}
