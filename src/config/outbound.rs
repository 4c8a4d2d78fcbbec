//! `outbound`: destinations of the gateway that others than the operator choose, and the lists that
//! allow otherwise refused ones.
//!
//! See also `transport::address_policy`, and `agents::resolved` for the URLs of cards.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::forms::{Form, Setting, text_form};
use super::host::check_host;
use super::resolve::ResolveContext;
use super::section::section;
use super::spanned::{Location, Spanned};

section! {
    /// Destinations that the operator allows others to choose.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Outbound {
        /// Destinations to which an agent's card may direct the gateway with that agent's
        /// credentials, and those of metadata of token issuers, besides their own host: hosts
        /// (`name` or `name:port`) and networks (`10.0.0.0/8`, `fd00::/8`, or one address). For all
        /// agents; `allow_hosts` is for one.
        allow: AllowList = [] [example ["agents-eu.internal", 10.20.0.0/16]],
        /// Destinations of webhooks of A2A clients.
        webhooks: Webhooks,
    }
}

section! {
    /// Destinations of webhooks of A2A clients.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Webhooks {
        /// Hosts and networks besides public addresses, in the form of `outbound.allow`. Neither
        /// list allows anything for the other.
        allow: AllowList = [] [example ["hooks.internal", 10.30.0.0/16]],
        /// True if a webhook may be plain HTTP. Tokens of clients and results of tasks are sent to
        /// it.
        http: bool = false,
    }
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
pub struct Network(IpNet);

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
        self.networks()
            .filter(|network| network.contains(address))
            .max_by_key(|network| network.0.prefix_len())
    }

    /// Returns the listed networks.
    pub fn networks(&self) -> impl Iterator<Item = &Network> {
        self.0.iter().filter_map(|allowed| match allowed {
            Allowed::Network(network) => Some(network),
            Allowed::Host(_) => None,
        })
    }
}

text_form!(AllowedText as "host or network", Allowed, |text: String| text.parse::<Allowed>());

impl Setting for AllowList {
    type Form = Vec<Spanned<AllowedText>>;
}

impl Form<AllowList> for Vec<Spanned<AllowedText>> {
    fn resolve(self, place: &Location, context: &mut ResolveContext<'_>) -> Option<AllowList> {
        Form::<Vec<Allowed>>::resolve(self, place, context).map(AllowList)
    }
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') && !text.contains("://") {
            return text.parse().map(Self::Network).map_err(str::to_owned);
        }
        if let Ok(network) = text.parse() {
            return Ok(Self::Network(network));
        }
        check_host(text).map(|()| Self::Host(text.to_ascii_lowercase()))
    }
}

impl Network {
    /// Returns true if the network contains the address. An IPv4 address within IPv6
    /// (`::ffff:10.0.0.1`) counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Returns true if the network is one address.
    pub fn is_single(&self) -> bool {
        self.0.prefix_len() == self.0.max_prefix_len()
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
        let address = address.parse::<IpAddr>().map_err(|_| FORM)?.to_canonical();
        let Some(prefix) = prefix else { return Ok(Self(address.into())) };
        // No sign: one spelling.
        let is_number = prefix.len() <= 3 && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix: u16 = prefix.parse().ok().filter(|_| is_number).ok_or(FORM)?;
        let network = u8::try_from(prefix).ok().and_then(|prefix| IpNet::new(address, prefix).ok());
        let network = network.ok_or("has more bits than its addresses")?;
        if network.network() == address {
            return Ok(Self(network));
        }
        Err("is an address within a network (write the network's first address)")
    }
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
