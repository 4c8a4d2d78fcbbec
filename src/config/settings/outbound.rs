//! Destinations of the gateway that others than the operator choose: the lists that allow otherwise
//! refused ones.
//!
//! See also `transport::address_policy`, and `agents::interface` for the URLs of cards.

use std::net::IpAddr;
use std::str::FromStr;

/// Destinations that the operator allows others to choose.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outbound {
    /// Destinations of cards of agents and metadata of token issuers. Default: none.
    pub allow: AllowList,
    /// Destinations of webhooks of A2A clients.
    pub webhooks: Webhooks,
}

/// Destinations of webhooks of A2A clients.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Webhooks {
    /// Hosts and networks besides public addresses. Default: none.
    pub allow: AllowList,
    /// True if a webhook may be plain HTTP. Default: false.
    pub http: bool,
}

/// Allowed hosts and networks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowList(pub Vec<Allowed>);

/// One entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// Every address of this network, by any name.
    Network(Network),
    /// This host, as it is written: in lower case, with or without a port.
    Host(String),
}

/// A network of addresses, such as `10.0.0.0/8`; a single address is one too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl AllowList {
    /// Returns true if this host is listed by name; `place` is `host:port` in lower case.
    pub fn has_host(&self, host: &str, place: &str) -> bool {
        self.0.iter().any(|allowed| match allowed {
            Allowed::Host(listed) => listed == place || listed.eq_ignore_ascii_case(host),
            Allowed::Network(_) => false,
        })
    }

    /// Returns the smallest listed network that contains this address.
    pub fn network_of(&self, address: IpAddr) -> Option<&Network> {
        self.networks().filter(|network| network.contains(address)).max_by_key(|network| network.prefix)
    }

    /// Returns the listed networks.
    pub fn networks(&self) -> impl Iterator<Item = &Network> {
        self.0.iter().filter_map(|allowed| match allowed {
            Allowed::Network(network) => Some(network),
            Allowed::Host(_) => None,
        })
    }
}

impl Network {
    /// Returns true if the network contains the address. An IPv4 address within IPv6
    /// (`::ffff:10.0.0.1`) counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                net.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(net), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                net.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        }
    }

    /// Returns true if the network is one address.
    pub fn is_single(&self) -> bool {
        usize::from(self.prefix) == bits(self.address)
    }
}

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "is not a network (write an address and a number of bits, such as 10.0.0.0/8)";
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| FORM)?;
        let address = address.to_canonical();
        let most = bits(address);
        let prefix = match prefix {
            // No sign, no leading zeros: one spelling.
            Some(prefix) if prefix.len() <= 3 && prefix.bytes().all(|byte| byte.is_ascii_digit()) => {
                prefix.parse::<usize>().map_err(|_| FORM)?
            }
            Some(_) => return Err(FORM),
            None => most,
        };
        if prefix > most {
            return Err("has more bits than its addresses");
        }
        let network = Self { address, prefix: u8::try_from(prefix).map_err(|_| FORM)? };
        let has_rest = match address {
            IpAddr::V4(own) => {
                u32::MAX.checked_shr(u32::from(network.prefix)).unwrap_or(0) & own.to_bits() != 0
            }
            IpAddr::V6(own) => {
                u128::MAX.checked_shr(u32::from(network.prefix)).unwrap_or(0) & own.to_bits() != 0
            }
        };
        if has_rest {
            Err("is an address within a network (write the network's first address)")
        } else {
            Ok(network)
        }
    }
}

fn bits(address: IpAddr) -> usize {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses_and_no_others() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::10.0.0.1"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("192.168.4.0/22", "192.168.7.255", "192.168.8.0"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("::1/128", "::1", "::2"),
            ("::/0", "2001:db8::1", "1.2.3.4"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network:?} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{network:?} {outside}");
        }
        for bad in [
            "10.0.0.1/8",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/+8",
            "10/8",
            "a/8",
            "",
            "10.0.0.0/",
            "fd00::1/8",
        ] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
        assert!("10.0.0.1".parse::<Network>().unwrap().is_single());
        assert!(!"10.0.0.0/31".parse::<Network>().unwrap().is_single());
    }
}
