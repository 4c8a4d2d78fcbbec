//! `listeners`, `admin` and `health`: addresses, TLS, services, and the credentials that clients must present.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::auth::key_hash;
use super::certificate::{self, CertificateProblem};
use super::forms::{Form, KeyForm, choice, text_form};
use super::host::AllowedHost;
use super::outbound::Network;
use super::pem::{self, CertificatePem, CrlPem, KeyPem};
use super::reference::{Secret, Template};
use super::resolve::ResolveContext;
use super::section::{KeysOf, section};
use super::yaml::{Location, OneOrMany, Spanned};
use super::{Mechanism, Pem, Require, RequireRule};

section! {
    /// One address on which the gateway listens for clients.
    keys ListenerKeys("Listener") {
        /// IP address and port, for example `127.0.0.1:8080`, `0.0.0.0:8443` or `[::]:8443`; port 0
        /// lets the system choose.
        address: ListenAddress => Option<SocketAddr>
            [required "write an IP address and a port, such as 127.0.0.1:8080" example "0.0.0.0:8443"],
        /// TLS of the listener, with HTTP/2 and HTTP/1.1. Without it the listener speaks plain
        /// HTTP.
        tls: ListenerTlsKeys,
        /// Services of the listener: `mcp` (`/mcp`, `/mcp/AGENT`), `a2a` (`/a2a/AGENT`: the agents,
        /// for A2A clients; `/a2a` and `/.well-known/api-catalog`: lists of them), `health`
        /// (`/healthz`), `push` (`/push/…`, for notifications of agents).
        serve: Vec<Spanned<ServiceName>> = [mcp, health] [schema { "minItems": 1 }],
        /// True if `a2a` is served over gRPC too. `false` is for a listener behind a proxy that
        /// passes on HTTP/1.1 only: cards and the list of agents name no gRPC then.
        grpc: bool => bool = true,
        /// Credentials that clients must present here, of the mechanisms under `auth`: `any` of
        /// them, `all`, or `none` (a client without credentials is anonymous); or for example
        /// `{ any: [certificate, token] }`. Presented credentials must be valid in any case.
        /// `/healthz`, `/push`, well-known documents and `OPTIONS` need none. Without it: `any`, if
        /// `auth` configures a mechanism.
        require: RequireText [example any],
        /// Networks of proxies before this listener (`10.0.0.0/8`, `fd00::/8`, or one address). The
        /// address of a client is then read from their header: the last address that is not of a
        /// proxy. They may also name the request (`X-Request-Id`). Such headers of others are
        /// ignored.
        trusted_proxies: Vec<Spanned<ProxyNetwork>> => Vec<Network> = [] [example [10.0.0.0/8]],
        /// The header in which `trusted_proxies` send the addresses: `x_forwarded_for`, or
        /// `forwarded` (RFC 7239). The other one is ignored, because proxies pass it on as a client
        /// wrote it.
        client_address: AddressHeader => AddressHeader = x_forwarded_for,
        /// True if each connection begins with a header of the PROXY protocol, version 1 or 2.
        /// Connections of others than `trusted_proxies` are refused then.
        proxy_protocol: bool => bool = false,
    }
}

text_form!(ProxyNetwork as "network", Network, |text: String| text.parse::<Network>());

/// The header in which proxies send the address of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

choice! {
    /// The header in which proxies send the address of a client.
    AddressHeader as "AddressHeader" {
        "x_forwarded_for" => Self::XForwardedFor,
        "forwarded" => Self::Forwarded,
    }
}

/// The proxies before a listener.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrustedProxies {
    /// Their networks. Empty: there are none.
    pub networks: Vec<Network>,
    /// The header in which they send the address of a client.
    pub header: AddressHeader,
    /// True if their connections begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
}

impl TrustedProxies {
    /// Returns true if an address is one of a trusted proxy.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }
}

/// One address on which the gateway listens for clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// TLS of the listener; `None`: plain HTTP.
    pub tls: Option<ListenerTls>,
    /// The services of the listener.
    pub serve: Services,
    /// Credentials that clients must present here.
    pub require: Require,
    /// The proxies before the listener.
    pub proxies: TrustedProxies,
}

impl Listener {
    /// Returns a plain HTTP listener with the default services.
    pub fn new(address: SocketAddr) -> Self {
        let (serve, require, proxies) = (Services::default(), Require::default(), TrustedProxies::default());
        Self { address, tls: None, serve, require, proxies }
    }
}

impl ListenerKeys {
    /// Returns the listener. `mechanisms` are those under `auth`.
    pub(super) fn resolve(
        mut self,
        mechanisms: &[Mechanism],
        context: &mut ResolveContext<'_>,
    ) -> Option<Listener> {
        let address = self.address(context);
        let proxies = self.proxies(context);
        let grpc = self.grpc(context);
        let tls = self.tls.open().and_then(|tls| tls.resolve(context));
        let serve = Services { grpc, ..services(self.serve, context) };
        let shows_certificates = tls.as_ref().is_some_and(|tls| tls.client_auth.is_some());
        let place = self.require.place().unwrap_or(&self.section).clone();
        let require = requirement(self.require, mechanisms, shows_certificates, context);
        if require.rule != RequireRule::None && require.of.is_empty() && (serve.mcp || serve.a2a) {
            let hint = "(add tls.client_auth, or write require: none)";
            context.problem(&place, format!("nothing that auth configures can be shown here {hint}"));
        }
        Some(Listener { address: address?, tls, serve, require, proxies })
    }

    fn proxies(&mut self, context: &mut ResolveContext<'_>) -> TrustedProxies {
        let needs_proxies = self.proxy_protocol.place().cloned();
        let proxies = TrustedProxies {
            networks: self.trusted_proxies(context),
            header: self.client_address(context),
            proxy_protocol: self.proxy_protocol(context),
        };
        if let Some(place) = needs_proxies.filter(|_| proxies.proxy_protocol && proxies.networks.is_empty()) {
            let hint = "(list the networks of the proxies under trusted_proxies)";
            context.problem(&place, format!("refuses every connection without trusted_proxies {hint}"));
        }
        proxies
    }
}

/// The services of a listener. Default: `mcp` and `health`; agents reach `push` without
/// authentication, and A2A clients are a choice of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Services {
    /// `/mcp` and `/mcp/{agent}`.
    pub mcp: bool,
    /// `/a2a/{agent}`.
    pub a2a: bool,
    /// True if `a2a` includes gRPC.
    pub grpc: bool,
    /// `/healthz`.
    pub health: bool,
    /// `/push/{token}`, for agents.
    pub push: bool,
}

impl Default for Services {
    fn default() -> Self {
        Self { mcp: true, a2a: false, grpc: true, health: true, push: false }
    }
}

/// A service of a listener.
#[derive(Clone, Copy)]
pub(super) enum ServiceName {
    Mcp,
    A2a,
    Health,
    Push,
}

choice! {
    /// A service of a listener.
    ServiceName as "Service" {
        "mcp" => Self::Mcp,
        "a2a" => Self::A2a,
        "health" => Self::Health,
        "push" => Self::Push,
    }
}

fn services(written: Spanned<Vec<Spanned<ServiceName>>>, context: &mut ResolveContext<'_>) -> Services {
    let Some((place, list)) = written.take() else { return Services::default() };
    if list.is_empty() {
        context.problem(&place, "is empty (write [mcp, health])");
    }
    let mut services = Services { mcp: false, health: false, ..Services::default() };
    for service in list.into_iter().filter_map(Spanned::value) {
        match service {
            ServiceName::Mcp => services.mcp = true,
            ServiceName::A2a => services.a2a = true,
            ServiceName::Health => services.health = true,
            ServiceName::Push => services.push = true,
        }
    }
    services
}

section! {
    /// The operator's own listener: health, readiness, metrics, state, changes, and a page for
    /// people.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Admin {
        /// IP address and port.
        address: SocketAddr as ListenAddress = "127.0.0.1:9090",
        /// Accepted hosts (`name` or `name:port`) in `Host` besides loopback names and IP
        /// addresses, for scrapers that use a name; `*` accepts any.
        allowed_hosts: Vec<String> as Vec<Spanned<AllowedHost>> = [] [example ["gateway.monitoring:9090"]],
        /// Time after which a person must sign in to the page again.
        session_ttl: Duration = 8h in 1m..=30d,
        /// Path of a file that keeps agents which operators write by `PUT` and `DELETE /agents/NAME`
        /// of this listener. It need not exist, and is read with the configuration. Without it these
        /// routes are closed.
        agents_file: Option<PathBuf> [example "agents.json"],
    }
    keys {
        /// The token of operators, or a list of them while they are being exchanged: at least 16
        /// characters, or `sha256:` and its hash as `mcp-a2a-gateway key` makes it. With a token,
        /// everything but the probes needs it. Without a token, and without client certificates in
        /// `tls`, there is no page, and nothing can be changed.
        token: OneOrMany<Spanned<Template>> [example "${file:/run/secrets/gateway-admin}"],
        /// TLS of the listener. A client with a certificate that `client_auth` accepts is an
        /// operator.
        tls: ListenerTlsKeys,
    }
    fields {
        /// SHA-256 of each token of operators.
        token_hashes: Vec<[u8; 32]> = Vec::new(),
        /// TLS of the listener; `None`: plain HTTP.
        tls: Option<ListenerTls> = None,
    }
    check check_admin
}

impl Admin {
    /// Returns the listener at an address, with defaults for the rest.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, ..Self::default() }
    }

    /// Returns true if requests can be authenticated: by a token or by a client certificate.
    pub fn has_authentication(&self) -> bool {
        !self.token_hashes.is_empty() || self.takes_certificates()
    }

    /// Returns true if clients can present a certificate.
    pub fn takes_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_auth.is_some())
    }
}

/// Fewest characters of a token of operators.
const MIN_TOKEN_CHARS: usize = 16;

fn check_admin(admin: Admin, keys: KeysOf<Admin>, context: &mut ResolveContext<'_>) -> Admin {
    let tls = keys.tls.open().and_then(|tls| tls.resolve(context));
    let mut token_hashes: Vec<[u8; 32]> = Vec::new();
    if let Some((place, OneOrMany(written))) = keys.token.take() {
        if written.is_empty() {
            context.problem(&place, "is an empty list (write a token, or remove it)");
        }
        for token in written {
            let Some((place, token)) = token.resolve::<Secret>(context) else { continue };
            match token_hash(token.expose()) {
                Ok(hash) if token_hashes.contains(&hash) => context.problem(&place, "is there twice"),
                Ok(hash) => token_hashes.push(hash),
                Err(problem) => context.problem(&place, problem),
            }
        }
    }
    Admin { token_hashes, tls, ..admin }
}

/// Returns the hash of a token that is written as such or as its hash.
fn token_hash(text: &str) -> Result<[u8; 32], &'static str> {
    if text.starts_with("sha256:") {
        return key_hash(text).ok_or("is not a hash (write sha256: and 64 hexadecimal digits)");
    }
    if text.chars().count() < MIN_TOKEN_CHARS || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("is not a token (16 or more printable ASCII characters without spaces; make one with \
                    `openssl rand -hex 32`)");
    }
    Ok(Sha256::digest(text.as_bytes()).into())
}

section! {
    /// A listener for probes alone: `/livez`, `/readyz` and `/startupz`, plain HTTP.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct HealthListener {
        /// IP address and port.
        address: SocketAddr as ListenAddress = "127.0.0.1:9091",
        /// True if `/metrics` is served too.
        metrics: bool = false,
        /// Accepted hosts (`name` or `name:port`) in `Host` of a request for `/metrics`, besides
        /// loopback names and IP addresses; `*` accepts any.
        allowed_hosts: Vec<String> as Vec<Spanned<AllowedHost>> = [] [example ["gateway.monitoring:9091"]],
    }
}

section! {
    /// The time until the gateway is ready.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ReadyRule {
        /// Longest wait of `/readyz` for agents that have not answered since the start. Then the
        /// gateway is ready without them.
        timeout: Duration = 5s in 0s..=1h,
    }
}

text_form!(ListenAddress as "IP address and port", SocketAddr, |text: String| {
    text.parse::<SocketAddr>().map_err(|_| {
        let hint = match text.rsplit_once(':') {
            Some(("", port)) => {
                format!("0.0.0.0:{port} for every address, 127.0.0.1:{port} for this machine only")
            }
            Some(("localhost", port)) => format!("127.0.0.1:{port}"),
            Some(_) | None => "such as 127.0.0.1:8080 or [::1]:8080".to_owned(),
        };
        format!("is not an IP address and a port (write {hint})")
    })
});

section! {
    /// TLS of a listener. Files that are named here are read again when they change, and on SIGHUP.
    keys ListenerTlsKeys("ListenerTls")
        with { "anyOf": [{ "required": ["certificate", "key"] }, { "required": ["certificates"] }] }
    {
        /// The certificate for clients that ask for no name or an unknown one, followed by those
        /// that lead to its root.
        certificate: CertificatePem [example "/etc/gateway/tls.crt"],
        /// The private key of the certificate, RSA or ECDSA, without a passphrase.
        key: KeyPem [example "/etc/gateway/tls.key"],
        /// More certificates, each for the DNS names in it (`*.example.com` too). Two may have the
        /// same name and keys of different kinds. Without `certificate` the first is used for all
        /// other names.
        certificates: Vec<Spanned<CertificateKeys>> [schema { "minItems": 1 }],
        /// Versions of TLS. `intermediate`: TLS 1.2 (ephemeral keys and authenticated encryption
        /// only) and 1.3. `modern`: TLS 1.3 only.
        profile: TlsProfile => TlsProfile = intermediate,
        /// Verification of client certificates.
        client_auth: ClientAuthKeys,
    }
}

section! {
    /// A certificate of a listener and its key.
    keys CertificateKeys("ListenerCertificate") {
        /// The certificate, followed by those that lead to its root.
        certificate: CertificatePem => Option<Pem>
            [required "write the path of a PEM file" example "/etc/gateway/partners.crt"],
        /// The private key of the certificate, RSA or ECDSA, without a passphrase.
        key: KeyPem => Option<Pem>
            [required "write the path of a PEM file" example "/etc/gateway/partners.key"],
    }
}

section! {
    /// Verification of client certificates.
    keys ClientAuthKeys("ClientAuth") {
        /// `off`: clients are not asked for a certificate. `optional`: a client without a
        /// certificate is accepted, a client with a bad one is not. `required`: only clients with a
        /// valid certificate are accepted.
        mode: ClientAuthMode => Option<ClientAuthMode>
            [required "write required, optional or off" example required],
        /// The authorities that sign valid certificates; one PEM or a list.
        ca: OneOrMany<Spanned<CertificatePem>> [example "/etc/gateway/clients-ca.pem"],
        /// Their revocation lists; one PEM or a list. Each authority needs one, intermediate ones
        /// too. Without it revocation is not checked.
        crl: OneOrMany<Spanned<CrlPem>> [example "/etc/gateway/clients.crl"],
        /// Treatment of a revocation list after the time for its next update: `refuse` rejects all
        /// certificates that it covers, `accept` still uses it.
        expired_crl: ExpiredCrl => ExpiredCrl = refuse,
    }
}

/// TLS of a listener.
#[derive(Debug, Clone, PartialEq)]
pub struct ListenerTls {
    /// The certificates to present, chosen by the name that a client asks for. The first is for all
    /// other names. Not empty.
    pub certificates: Vec<ListenerCertificate>,
    /// The versions of TLS.
    pub profile: TlsProfile,
    /// Verification of client certificates; `None`: clients are not asked for one.
    pub client_auth: Option<ClientAuth>,
}

impl ListenerTls {
    /// Returns true if the settings are the same, and name the same files.
    pub(crate) fn has_same_files(&self, other: &Self) -> bool {
        let pair = |pair: &ListenerCertificate| [pair.certificate.source(), pair.key.source()];
        let pairs = |tls: &Self| tls.certificates.iter().map(pair).collect::<Vec<_>>();
        let sources = |pems: &[Pem]| pems.iter().map(Pem::source).collect::<Vec<_>>();
        let clients = |tls: &Self| {
            tls.client_auth.as_ref().map(|clients| {
                let ClientAuth { required, ca, crl, accept_expired_crl } = clients;
                (*required, *accept_expired_crl, sources(ca), sources(crl))
            })
        };
        self.profile == other.profile && pairs(self) == pairs(other) && clients(self) == clients(other)
    }
}

/// A certificate of a listener.
#[derive(Debug, Clone, PartialEq)]
pub struct ListenerCertificate {
    /// The certificate, followed by those that lead to its root. Its names are its subject
    /// alternative names.
    pub certificate: Pem,
    /// Its private key.
    pub key: Pem,
}

/// The versions of TLS that a listener speaks, after Mozilla's recommendations of these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsProfile {
    /// TLS 1.3 only.
    Modern,
    /// TLS 1.2, with ephemeral keys and authenticated encryption only, and 1.3.
    #[default]
    Intermediate,
}

choice! {
    /// Versions of TLS.
    TlsProfile as "TlsProfile" { "modern" => Self::Modern, "intermediate" => Self::Intermediate, }
}

/// Verification of client certificates.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientAuth {
    /// True if a client without a certificate is rejected. One with a bad certificate always is.
    pub required: bool,
    /// The authorities that sign valid certificates. Not empty.
    pub ca: Vec<Pem>,
    /// The revocation lists. Empty: revocation is not checked. Else a certificate is rejected
    /// unless each of the authorities above it, up to the root, has a list here that does not name
    /// it.
    pub crl: Vec<Pem>,
    /// True if a revocation list is still accepted after the time for its next update. Else all
    /// certificates that it covers are rejected.
    pub accept_expired_crl: bool,
}

#[derive(PartialEq, Clone, Copy)]
pub(super) enum ClientAuthMode {
    Off,
    Optional,
    Required,
}

choice! {
    /// Need of a client certificate.
    ClientAuthMode as "ClientAuthMode" {
        "off" => Self::Off,
        "optional" => Self::Optional,
        "required" => Self::Required,
    }
}

#[derive(PartialEq, Clone, Copy)]
pub(super) enum ExpiredCrl {
    Refuse,
    Accept,
}

choice! {
    /// Treatment of a revocation list after the time for its next update.
    ExpiredCrl as "ExpiredCrl" { "refuse" => Self::Refuse, "accept" => Self::Accept, }
}

impl ListenerTlsKeys {
    fn resolve(mut self, context: &mut ResolveContext<'_>) -> Option<ListenerTls> {
        let profile = self.profile(context);
        let has_more = self.certificates.place().is_some();
        let main = CertificateKeys { section: self.section, certificate: self.certificate, key: self.key };
        let mut certificates = Vec::new();
        if !has_more || main.certificate.place().is_some() || main.key.place().is_some() {
            certificates.extend(main.resolve(true, context));
        }
        if let Some((place, pairs)) = self.certificates.take() {
            if pairs.is_empty() {
                context.problem(&place, "is empty (write a certificate and its key, or remove it)");
            }
            for pair in pairs.into_iter().filter_map(Spanned::open) {
                let is_first = certificates.is_empty();
                certificates.extend(pair.resolve(is_first, context));
            }
        }
        let client_auth = self.client_auth.open().and_then(|keys| keys.resolve(context));
        (!certificates.is_empty()).then_some(ListenerTls { certificates, profile, client_auth })
    }
}

impl CertificateKeys {
    fn resolve(mut self, is_first: bool, context: &mut ResolveContext<'_>) -> Option<ListenerCertificate> {
        let (certificate, key) = (self.certificate(context), self.key(context));
        let place = self.certificate.place()?;
        let (certificate, key) = pem::pair(certificate, key, place, context)?;
        let pair = ListenerCertificate { certificate, key };
        let problem = match certificate::chain(&pair, SystemTime::now()) {
            Ok(chain) if chain.names.is_empty() && !is_first => CertificateProblem::Nameless,
            Ok(_) => return Some(pair),
            Err(problem) => problem,
        };
        context.report_conflict(place, problem.to_string())
    }
}

impl ClientAuthKeys {
    fn resolve(mut self, context: &mut ResolveContext<'_>) -> Option<ClientAuth> {
        let mode = self.mode(context)?;
        if mode != ClientAuthMode::Off && self.ca.place().is_none() {
            context.problem(
                &self.section.child("ca"),
                "is missing (write the path of a PEM file with the authorities of the clients)",
            );
        }
        let now = SystemTime::now();
        let accept_expired_crl = self.expired_crl(context) == ExpiredCrl::Accept;
        let mut authorities = Vec::new();
        let ca = pems(self.ca, context, |pem| {
            authorities.extend(certificate::authorities(pem, now)?);
            Ok(())
        });
        let place = self.crl.place().cloned();
        let before = authorities.len();
        let mut lists = Vec::new();
        let crl = pems(self.crl, context, |pem| {
            lists.extend(certificate::revocation_lists(pem, &authorities, accept_expired_crl, now)?);
            Ok(())
        });
        // A list that could not be read has been reported.
        if let (Some(place), Some(_), true) = (place, &crl, before > 0)
            && let Err(problem) = certificate::check_revocation_coverage(&authorities, &lists)
        {
            context.problem(&place, problem.to_string());
        }
        let required = match mode {
            ClientAuthMode::Off => return None,
            ClientAuthMode::Optional => false,
            ClientAuthMode::Required => true,
        };
        Some(ClientAuth { required, ca: ca?, crl: crl.unwrap_or_default(), accept_expired_crl })
    }
}

/// Returns each of the PEM texts with the right content; `None` if there is none or one has other
/// content.
fn pems<F: Form<Pem>>(
    written: Spanned<OneOrMany<Spanned<F>>>,
    context: &mut ResolveContext<'_>,
    mut check: impl FnMut(&Pem) -> Result<(), CertificateProblem>,
) -> Option<Vec<Pem>> {
    let (place, OneOrMany(written)) = written.take()?;
    let count = written.len();
    if count == 0 {
        return context
            .report_conflict(&place, "is an empty list (write the path of a PEM file, or remove it)");
    }
    let mut pems = Vec::new();
    for (place, text) in written.into_iter().filter_map(Spanned::take) {
        let Some(pem) = text.resolve(&place, context) else { continue };
        match check(&pem) {
            Ok(()) => pems.push(pem),
            Err(problem) => context.problem(&place, problem.to_string()),
        }
    }
    (pems.len() == count).then_some(pems)
}

/// `none`, `any` or `all`, or one of the last two with the mechanisms that are meant.
#[derive(Clone, Deserialize, Default)]
#[serde(from = "RequireForm")]
pub(super) struct RequireText {
    rule: RequireRule,
    of: Option<Vec<String>>,
    is_wrong: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RequireForm {
    Word(String),
    Listed(RequireList),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequireList {
    any: Option<Vec<String>>,
    all: Option<Vec<String>>,
}

impl From<RequireForm> for RequireText {
    fn from(wire: RequireForm) -> Self {
        let (rule, of) = match wire {
            RequireForm::Word(word) => match word.as_str() {
                "none" => (RequireRule::None, None),
                "any" => (RequireRule::Any, None),
                "all" => (RequireRule::All, None),
                _ => return Self { is_wrong: true, ..Self::default() },
            },
            RequireForm::Listed(RequireList { any: Some(of), all: None }) => (RequireRule::Any, Some(of)),
            RequireForm::Listed(RequireList { any: None, all: Some(of) }) => (RequireRule::All, Some(of)),
            RequireForm::Listed(_) => return Self { is_wrong: true, ..Self::default() },
        };
        Self { rule, of, is_wrong: false }
    }
}

impl JsonSchema for RequireText {
    fn schema_name() -> Cow<'static, str> {
        "Require".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mechanisms = json_schema!({
            "type": "array", "minItems": 1, "items": { "enum": ["certificate", "token", "api_key"] },
        });
        json_schema!({
            "anyOf": [
                { "enum": ["none", "any", "all"] },
                { "type": "object", "properties": { "any": mechanisms }, "required": ["any"], "additionalProperties": false },
                { "type": "object", "properties": { "all": mechanisms }, "required": ["all"], "additionalProperties": false },
            ],
        })
    }
}

impl KeyForm for RequireText {
    fn describe() -> String {
        "`none`, `any`, `all`, or a section with `any` or `all`".to_owned()
    }
}

const REQUIRE_HINT: &str = "write none, any, all, or for example { any: [certificate, token] }; there are certificate, token and api_key";

/// Returns the requirement of one listener, given the mechanisms under `auth`, and whether clients
/// present certificates there. Without a value a listener requires any of them.
fn requirement(
    written: Spanned<RequireText>,
    configured: &[Mechanism],
    shows_certificates: bool,
    context: &mut ResolveContext<'_>,
) -> Require {
    let can_be_shown = |mechanism: &Mechanism| shows_certificates || *mechanism != Mechanism::Certificate;
    let here: Vec<Mechanism> = configured.iter().copied().filter(can_be_shown).collect();
    let Some((place, text)) = written.take() else {
        let rule = if configured.is_empty() { RequireRule::None } else { RequireRule::Any };
        return Require { rule, of: here };
    };
    if text.is_wrong {
        context.problem(&place, format!("is not understood ({REQUIRE_HINT})"));
    }
    if configured.is_empty() && text.rule != RequireRule::None {
        context.problem(&place, "there is nothing to require: configure it under auth");
        return Require::default();
    }
    let is_named = text.of.is_some();
    let of = match text.of {
        None if text.rule == RequireRule::All => configured.to_vec(),
        None => here,
        Some(names) => listed(&names, configured, &place, context),
    };
    if (is_named || text.rule == RequireRule::All) && !of.iter().all(can_be_shown) {
        context.problem(&place, "certificate can be shown only where tls.client_auth asks for it (add it)");
    }
    Require { rule: text.rule, of }
}

fn listed(
    names: &[String],
    configured: &[Mechanism],
    place: &Location,
    context: &mut ResolveContext<'_>,
) -> Vec<Mechanism> {
    if names.is_empty() {
        context.problem(place, format!("is empty ({REQUIRE_HINT})"));
    }
    let mut of = Vec::new();
    for name in names {
        let mechanism = match name.as_str() {
            "certificate" => Mechanism::Certificate,
            "token" => Mechanism::Token,
            "api_key" => Mechanism::ApiKey,
            _ => {
                context.problem(place, format!("{name:?} is no mechanism ({REQUIRE_HINT})"));
                continue;
            }
        };
        if !configured.contains(&mechanism) {
            context.problem(place, format!("{name} is not configured under auth"));
        } else if !of.contains(&mechanism) {
            of.push(mechanism);
        }
    }
    // In one order everywhere, so that a caller that uses several mechanisms has one name on every
    // listener.
    configured.iter().copied().filter(|mechanism| of.contains(mechanism)).collect()
}
