//! `outbound`: destinations of the gateway that others than the operator choose, and the lists that
//! allow otherwise refused ones; and the proxy that connections are made through. `tracing`: the
//! export of traces over OTLP. `state`: the engine for state that several replicas share.
//!
//! See also `transport::address_policy`, and `agents::resolved` for the URLs of cards.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, Uri};
use ipnet::IpNet;
use redis::IntoConnectionInfo as _;

use super::agent::{AgentTls, headers};
use super::forms::{Form, HumanDuration, Setting, choice, text_form};
use super::host::{Host, check_host, web_url};
use super::reference::{ReloadableSecret, Secret, Template};
use super::resolve::ResolveContext;
use super::section::{KeysOf, section};
use super::yaml::{Location, OneOrMany, Spanned};

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
        /// HTTP proxy for the connections that the gateway opens: to agents, token endpoints,
        /// issuers, webhooks and HTTP resources.
        proxy: EgressProxy,
    }
    check check_outbound
}

section! {
    /// HTTP proxy for the connections that the gateway opens.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct EgressProxy {
        /// Its URL, `http://[USER:PASSWORD@]HOST:PORT`; user and password percent-encoded. Every
        /// connection is a tunnel (`CONNECT`), for `http` targets too. Without it: direct.
        url: Option<ProxyServer> as Template [example "http://gateway:${env:PROXY_PASSWORD}@proxy.internal:3128"],
        /// Hosts (`name` or `name:port`) and networks that are connected to directly.
        no_proxy: AllowList = [] [example ["idp.internal", 10.20.0.0/16]],
    }
    keys {
        /// Resolver of host names: the `gateway`, which checks each address and names it to the
        /// proxy; or the `proxy`, which gets the name: no rule on addresses then applies to names.
        resolve: ProxyResolve = gateway,
    }
    fields {
        /// Resolver of host names.
        resolve: ProxyResolve = ProxyResolve::Gateway,
    }
    check check_proxy
}

/// The resolver of host names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyResolve {
    /// The gateway: the addresses are checked here.
    Gateway,
    /// The proxy.
    Proxy,
}

choice! {
    /// Resolver of host names behind an egress proxy.
    ProxyResolve as "ProxyResolve" {
        "gateway" => Self::Gateway,
        "proxy" => Self::Proxy,
    }
}

/// An HTTP proxy. Its credentials are not printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyServer {
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// The value of `Proxy-Authorization`.
    pub(crate) credentials: Option<Secret>,
}

/// The proxy of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ProxyChoice {
    /// That of all connections.
    #[default]
    Common,
    /// None.
    Direct,
    /// This one.
    Server(ProxyServer),
}

impl FromStr for ProxyServer {
    type Err = String;

    /// Errors never quote the text: it may hold a password.
    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "is not the URL of a proxy (write http://[USER:PASSWORD@]HOST:PORT)";
        let rest = text.strip_prefix("http://").ok_or(FORM)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let (host, port) = place.rsplit_once(':').ok_or(FORM)?;
        let host = Host::read(host).map_err(|problem| format!("the host {problem}"))?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(FORM)?;
        let credentials = match user {
            Some(user) => {
                let plain = percent_decoded(user).filter(|plain| plain.contains(&b':')).ok_or(
                    "has a user without a password, or one that is not percent-encoded (write USER:PASSWORD@)",
                )?;
                Some(Secret::new(format!("Basic {}", STANDARD.encode(plain))))
            }
            None => None,
        };
        Ok(Self { host, port, credentials })
    }
}

/// Returns the bytes of a percent-encoded text; `None` if it is not one, or has control characters.
fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => {
                let digit =
                    |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit(bytes.next()?)? * 16 + digit(bytes.next()?)?
            }
            byte => byte,
        });
    }
    plain.iter().all(|byte| !byte.is_ascii_control()).then_some(plain)
}

impl Form<ProxyServer> for Template {
    fn resolve(self, place: &Location, context: &mut ResolveContext<'_>) -> Option<ProxyServer> {
        let url = Form::<Secret>::resolve(self, place, context)?;
        match url.expose().parse() {
            Ok(server) => Some(server),
            Err(problem) => context.report_conflict::<ProxyServer>(place, problem),
        }
    }
}

impl Form<ProxyChoice> for Template {
    fn resolve(self, place: &Location, context: &mut ResolveContext<'_>) -> Option<ProxyChoice> {
        let url = Form::<Secret>::resolve(self, place, context)?;
        if url.expose() == "none" {
            return Some(ProxyChoice::Direct);
        }
        match url.expose().parse() {
            Ok(server) => Some(ProxyChoice::Server(server)),
            Err(problem) => context.report_conflict(place, format!("{problem}, or none")),
        }
    }
}

fn check_proxy(
    proxy: EgressProxy,
    keys: KeysOf<EgressProxy>,
    context: &mut ResolveContext<'_>,
) -> EgressProxy {
    if let Some(place) =
        keys.no_proxy.place().filter(|_| keys.url.place().is_none() && !proxy.no_proxy.0.is_empty())
    {
        context.problem(place, "is of no use without a proxy (write its URL under url)");
    }
    let resolve = keys.resolve.resolve(context).map_or(ProxyResolve::Gateway, |(_, resolve)| resolve);
    EgressProxy { resolve, ..proxy }
}

fn check_outbound(outbound: Outbound, _: KeysOf<Outbound>, _: &mut ResolveContext<'_>) -> Outbound {
    let is_resolved_by_proxy = outbound.proxy.is_resolver();
    Outbound { webhooks: Webhooks { is_resolved_by_proxy, ..outbound.webhooks }, ..outbound }
}

impl EgressProxy {
    /// Returns true if host names are resolved by the proxy.
    pub(crate) fn is_resolver(&self) -> bool {
        self.url.is_some() && self.resolve == ProxyResolve::Proxy
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
    fields {
        /// True if the egress proxy resolves the names of webhooks.
        is_resolved_by_proxy: bool = false,
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

section! {
    /// Export of traces over OTLP. Without this section the trace context of clients is passed on
    /// as it came. Environment variables of OpenTelemetry (`OTEL_…`) are not read.
    keys TracingKeys("Tracing") {
        /// The URL of the collector. For `http` without a path: `/v1/traces` is added.
        endpoint: String => Option<String>
            [required "write the URL of the collector" example "http://127.0.0.1:4318"],
        /// Protocol of OTLP: `http` (protobuf over HTTP) or `grpc`.
        protocol: OtlpProtocol => OtlpProtocol = http,
        /// Headers for the collector, such as credentials. For `grpc` its metadata.
        headers: BTreeMap<String, Spanned<Template>> [example { Authorization: "Bearer ${env:OTLP_TOKEN}" }],
        /// Trust in the collector, and the gateway's certificate for it.
        tls: KeysOf<AgentTls> => AgentTls,
        /// The part of all requests that is recorded, from 0 to 1.
        ratio: f64 => f64 = 1.0 in 0.0..=1.0,
        /// True if a request with a trace context is recorded as its sender decided, and not by
        /// `ratio`. Any client can then cause spans.
        trust_client_sampling: bool => bool = false,
        /// The name of the gateway in traces (`service.name`).
        service_name: String => String = "mcp-a2a-gateway",
        /// More attributes of the gateway in traces, such as `deployment.environment.name`.
        resource: BTreeMap<String, Spanned<Template>> [example { deployment.environment.name: production }],
        /// Longest time for one request to the collector.
        timeout: HumanDuration => Duration = 10s in 10ms..=1m,
        /// Most spans that wait for the collector. Those beyond are dropped and counted.
        queue: u64 => usize = 4096 in 64..=1000000,
    }
}

/// Protocol of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// Protobuf over HTTP.
    Http,
    /// gRPC.
    Grpc,
}

choice! {
    /// Protocol of OTLP.
    OtlpProtocol as "OtlpProtocol" { "http" => Self::Http, "grpc" => Self::Grpc, }
}

/// Export of traces over OTLP.
#[derive(Debug, Clone, PartialEq)]
pub struct Tracing {
    /// The URL of the collector, with the path for HTTP.
    pub endpoint: Uri,
    /// The protocol.
    pub protocol: OtlpProtocol,
    /// Headers for the collector.
    pub headers: Vec<(HeaderName, ReloadableSecret)>,
    /// Trust in the collector, and the gateway's certificate for it.
    pub tls: AgentTls,
    /// The part of all requests that is recorded, from 0 to 1.
    pub ratio: f64,
    /// True if the decision of a sender counts.
    pub trust_client_sampling: bool,
    /// The name of the gateway in traces.
    pub service_name: String,
    /// More attributes of the gateway in traces.
    pub resource: BTreeMap<String, String>,
    /// Longest time for one request to the collector.
    pub timeout: Duration,
    /// Most spans that wait for the collector.
    pub queue: usize,
}

impl Form<Tracing> for TracingKeys {
    fn resolve(mut self, place: &Location, context: &mut ResolveContext<'_>) -> Option<Tracing> {
        self.section = place.clone();
        let url = self.endpoint(context);
        let url_place = self.endpoint.place().unwrap_or(place).clone();
        let resource = std::mem::take(&mut self.resource).value().unwrap_or_default();
        let resource = resource.into_iter().filter_map(|(name, value)| {
            let (_, value) = value.resolve::<Secret>(context)?;
            Some((name, value.expose().to_owned()))
        });
        let resource = resource.collect();
        let (protocol, tls) = (self.protocol(context), self.tls(context));
        let headers = headers(std::mem::take(&mut self.headers), context);
        let mut url = url?;
        if let Err(problem) = web_url(&url) {
            return context.report_conflict(&url_place, problem);
        }
        let has_path = url.parse::<Uri>().is_ok_and(|uri| !uri.path().trim_matches('/').is_empty());
        if protocol == OtlpProtocol::Grpc && has_path {
            return context.report_conflict(&url_place, "has a path (gRPC has one of its own: remove it)");
        }
        if protocol == OtlpProtocol::Http && !has_path {
            url.truncate(url.trim_end_matches('/').len());
            url.push_str("/v1/traces");
        }
        Some(Tracing {
            endpoint: url.parse().ok()?,
            protocol,
            headers,
            tls,
            ratio: self.ratio(context),
            trust_client_sampling: self.trust_client_sampling(context),
            service_name: self.service_name(context),
            resource,
            timeout: self.timeout(context),
            queue: self.queue(context),
        })
    }
}

/// Longest prefix of keys, in bytes.
const MAX_PREFIX: usize = 64;
/// The schemes of URLs, with and without TLS.
const SCHEMES: [&str; 4] = ["redis://", "valkey://", "rediss://", "valkeys://"];

section! {
    /// State that several replicas share through Valkey or Redis, 7.0 or later, or that one keeps in a
    /// file: tasks, answers, sessions, rates, memory. Needs `seal_key`, the same at all of them. Without this section each
    /// replica works alone.
    keys StateKeys("State") {
        /// The URL of the engine, `redis://` or `valkey://`, with TLS `rediss://` or `valkeys://`,
        /// then `[USER:PASSWORD@]HOST[:PORT][/DATABASE]`. For a cluster some of its nodes, for
        /// sentinels all of them. For one process, with nothing to install: `file:PATH`, a file that this
        /// process owns, or `memory:`.
        url: OneOrMany<Spanned<Template>> [required "write the URL of the engine" example "redis://valkey.internal:6379"],
        /// Kind of the engine: `single`, a `cluster`, or one behind `sentinel`.
        topology: StateTopology => StateTopology = single,
        /// The name that sentinels give the engine.
        master: String => String = mymaster,
        /// The user (ACL). Without it: that of the URL, or the default user.
        username: String => Option<String> = none [example gateway],
        /// The password. Without it: that of the URL.
        password: Template => Option<Secret> = none [example "${file:/run/secrets/valkey}"],
        /// The user at the sentinels, if they ask for one.
        sentinel_username: String => Option<String> = none [example gateway],
        /// The password at the sentinels, if they ask for one.
        sentinel_password: Template => Option<Secret> = none [example "${file:/run/secrets/sentinel}"],
        /// Part of the tasks that is kept at the engine: all, or `ids` alone. With `ids` texts, artifacts and
        /// events of tasks stay at the agents, and a replica asks the agent for a task that it does not follow.
        content: StateContent => StateContent = all,
        /// Trust in the engine, and the gateway's certificate for it.
        tls: KeysOf<AgentTls> => AgentTls,
        /// Longest wait for the engine. No request waits longer for it; then this replica decides
        /// alone.
        timeout: HumanDuration => Duration = 500ms in 10ms..=10s,
        /// Prefix of the names of all keys. Gateways with another prefix share nothing.
        prefix: String => String = gateway,
    }
}

/// Kind of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateTopology {
    /// One server.
    Single,
    /// A cluster.
    Cluster,
    /// One server, which sentinels name.
    Sentinel,
}

choice! {
    /// Kind of the engine.
    StateTopology as "StateTopology" { "single" => Self::Single, "cluster" => Self::Cluster, "sentinel" => Self::Sentinel, }
}

/// Part of the tasks that is kept at the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateContent {
    /// Everything.
    All,
    /// Ids, owners and answered questions; no content.
    Ids,
}

choice! {
    /// Part of the tasks at the engine.
    StateContent as "StateContent" { "all" => Self::All, "ids" => Self::Ids, }
}

/// Location of the engine for shared state.
#[derive(Debug, Clone, PartialEq)]
pub enum StateLocation {
    /// Valkey or Redis: URLs, at least one.
    Servers(Vec<Secret>),
    /// A file that one process owns.
    File(PathBuf),
    /// The memory of this process.
    Memory,
}

/// The engine for state that several replicas share.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Its location.
    pub location: StateLocation,
    /// Kind of the engine.
    pub topology: StateTopology,
    /// The name that sentinels give it.
    pub master: String,
    /// The user.
    pub username: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The user at the sentinels.
    pub sentinel_username: Option<String>,
    /// The password at the sentinels.
    pub sentinel_password: Option<Secret>,
    /// Part of the tasks that is kept there.
    pub content: StateContent,
    /// Trust in the engine, and the gateway's certificate for it.
    pub tls: AgentTls,
    /// Longest wait for it.
    pub timeout: Duration,
    /// Prefix of the names of all keys.
    pub prefix: String,
}

impl Form<State> for StateKeys {
    fn resolve(mut self, place: &Location, context: &mut ResolveContext<'_>) -> Option<State> {
        self.section = place.clone();
        let prefix_place = self.prefix.place().unwrap_or(place).clone();
        let hint = "write the URL of the engine, such as redis://valkey.internal:6379";
        let written = context.required(std::mem::take(&mut self.url), place, "url", hint);
        let prefix = self.prefix(context);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if prefix.is_empty() || prefix.len() > MAX_PREFIX || !prefix.bytes().all(is_name) {
            let problem = format!("is not a prefix (1 to {MAX_PREFIX} letters, digits, `-`, `_` and `.`)");
            context.problem(&prefix_place, problem);
        }
        let server_name = self.tls.get().and_then(|keys| keys.server_name.place().cloned());
        if let Some(place) = server_name {
            context.problem(&place, "does not apply here (the certificate must have the host of the URL)");
        }
        let topology = self.topology(context);
        let (url_place, OneOrMany(written)) = written?;
        let (nodes, mut local) = engines(written, context);
        for place in [self.sentinel_username.place(), self.sentinel_password.place()].into_iter().flatten() {
            if topology != StateTopology::Sentinel {
                context.problem(place, "has no use without sentinels (set topology to sentinel)");
            }
        }
        if nodes.len() + local.len() > 1 && topology == StateTopology::Single {
            context.problem(&url_place, "has several URLs (set topology to cluster or sentinel)");
        }
        let location = match local.pop() {
            Some(location) => {
                self.check_local(topology, context);
                location
            }
            None if nodes.is_empty() => return None,
            None => StateLocation::Servers(nodes),
        };
        Some(State {
            location,
            topology,
            master: self.master(context),
            username: self.username(context),
            password: self.password(context),
            sentinel_username: self.sentinel_username(context),
            sentinel_password: self.sentinel_password(context),
            content: self.content(context),
            tls: self.tls(context),
            timeout: self.timeout(context),
            prefix,
        })
    }
}

impl StateKeys {
    /// Reports settings of servers, where there is none.
    fn check_local(&self, topology: StateTopology, context: &mut ResolveContext<'_>) {
        let written = [self.username.place(), self.password.place(), self.tls.place()];
        let of_topology = self.topology.place().filter(|_| topology != StateTopology::Single);
        for place in written.into_iter().chain([of_topology]).flatten() {
            context.problem(place, "has no use with an engine within this process (state.url)");
        }
    }
}

/// Returns the servers and the engines within this process that these URLs name.
fn engines(
    written: Vec<Spanned<Template>>,
    context: &mut ResolveContext<'_>,
) -> (Vec<Secret>, Vec<StateLocation>) {
    let (mut nodes, mut local) = (Vec::new(), Vec::new());
    for url in written {
        let Some((place, url)) = url.resolve::<Secret>(context) else { continue };
        if let Some(location) = local_engine(url.expose(), &place, context) {
            local.push(location);
            continue;
        }
        // Not quoted: it may hold a password.
        let is_known = SCHEMES.iter().any(|scheme| url.expose().starts_with(scheme));
        match url.expose().into_connection_info() {
            Ok(_) if is_known => nodes.push(url),
            Ok(_) | Err(_) => context.problem(
                &place,
                "is not the URL of an engine (write redis://HOST:PORT, or rediss:// for TLS; a `@` or `/` of a password \
                 is `%40` or `%2F`; or file:PATH for one process)",
            ),
        }
    }
    (nodes, local)
}

/// Returns the engine within this process that a URL names.
fn local_engine(url: &str, place: &Location, context: &mut ResolveContext<'_>) -> Option<StateLocation> {
    if url == "memory:" {
        return Some(StateLocation::Memory);
    }
    let path = url.strip_prefix("file:")?;
    // `file:///PATH` too: a URL with an empty host.
    let path = path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path);
    if path.is_empty() || path.starts_with("//") || path.ends_with('/') {
        context.problem(
            place,
            "names no file (write file:PATH, such as file:/var/lib/mcp-a2a-gateway/state.redb)",
        );
    }
    Some(StateLocation::File(context.path(path)))
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
