//! From settings to a Pingora server: listeners, services, shutdown, upgrade.
//!
//! Out of scope: responses (see `gateway`), certificates (see `tls`).

mod app;
mod connection_limit;
mod http1;
mod http2;
mod preface;
mod reload;
mod shutdown;
mod upgrade;

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use connection_limit::{ConnectionLimit, ConnectionLimits, ListenerConnections};
use pingora::listeners::{ListenerConfig, TcpSocketOptions};
use pingora::protocols::TcpKeepalive;
use pingora::protocols::l4::stream::L4BufferSettings;
use pingora::server::configuration::{Opt, ServerConf};
use pingora::server::{RunArgs, Server, ShutdownWatch};
use pingora::services::ServiceHandle;
use pingora::services::background::{BackgroundService, background_service};
use pingora::services::listening::Service;
use preface::HttpVersionDetector;
use reload::ConfigWatcher;
use shutdown::{DrainSignal, YieldingService};
use upgrade::{Serving, SocketTakeover, UpgradeCoordinator, UpgradeProblem};

use crate::admin::AdminApp;
use crate::config::{Admin, Limits, Listener, ListenerTls, RequireRule, Settings, Shutdown};
use crate::gateway::{self, Gateway, GatewayError, Reloader, SourcePoller};
use crate::http_edge::HttpConnection;
use crate::telemetry::log;
use crate::tls::{self, CertificateReloader, HandshakeThreads, TlsAcceptor, TlsListener};
use crate::transport::FileDescriptorBudget;
pub(crate) use app::{HttpApp, HttpLimits, ServedRequest};
pub(crate) use http1::serve_http1;
pub(crate) use http2::serve_http2;
pub(crate) use reload::ReloadSource;
pub(crate) use shutdown::{EndSignals, ListenerShutdown, survive_file_size_limit};
pub(crate) use upgrade::ServiceManager;

/// The size of Pingora's buffers of a client connection, in bytes: larger reads and writes pass by. What is read goes into a buffer
/// of the thread (HTTP/1.1, TLS) or of the connection (HTTP/2), and a response is written as one piece.
const SOCKET_BUFFERS: usize = 64;

/// The maximum number of concurrent requests on a connection of HTTP/2.
const MAX_STREAMS: u32 = 100;

/// The maximum time for which the system keeps a connection with a peer that acknowledges nothing.
const MAX_USER_TIMEOUT: Duration = Duration::from_secs(120);

/// The maximum number of connections of the admin listener, for which descriptors are reserved (see
/// [`FileDescriptorBudget`]).
const ADMIN_CONNECTIONS: usize = 32;

/// The reason for which the server cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The gateway cannot be created.
    #[error("{0}")]
    Bridge(#[from] GatewayError),
    /// An address cannot be listened on.
    #[error("cannot listen on {0}: {1}; is another process using it?")]
    Address(SocketAddr, io::Error),
    /// A certificate cannot be used.
    #[error("listener {0}: {1}")]
    Tls(SocketAddr, tls::TlsProblem),
    /// The threads of TLS handshakes cannot be started.
    #[error("cannot start threads for TLS handshakes: {0}")]
    Threads(io::Error),
    /// The sockets cannot be taken over.
    #[error("{0}")]
    Upgrade(#[from] UpgradeProblem),
}

/// A server that is ready to run, and the gateway within.
pub(crate) struct PreparedServer {
    server: Server,
    /// The gateway that serves requests.
    pub(crate) gateway: Gateway,
    /// False until the sockets of another process are taken over, if they are to be.
    pub(crate) is_serving: Arc<AtomicBool>,
    /// The receiver of the report that requests are served.
    pub(crate) manager: Arc<ServiceManager>,
    shutdown: Shutdown,
    upgrade: UpgradeCoordinator,
    listeners: ListenerShutdown,
    signals: Option<EndSignals>,
}

/// Creates a server, which takes the sockets of another process over if `takes_over`. Its
/// configuration is read again from `source`.
///
/// # Errors
///
/// [`StartError`] names the unusable part.
pub(crate) fn prepare(
    settings: Settings,
    takes_over: bool,
    source: Option<ReloadSource>,
) -> Result<PreparedServer, StartError> {
    create(settings, takes_over, EndSignals::register(), source)
}

/// Creates a server for a command that handles signals itself. It runs until the process ends.
///
/// # Errors
///
/// [`StartError`] names the unusable part.
pub(crate) fn prepare_without_signals(settings: Settings) -> Result<PreparedServer, StartError> {
    create(settings, false, None, None)
}

fn create(
    settings: Settings,
    takes_over: bool,
    signals: Option<EndSignals>,
    source: Option<ReloadSource>,
) -> Result<PreparedServer, StartError> {
    tls::install_provider();
    let hangups = tls::hangups();
    let config_hangups = source.as_ref().and_then(|_| tls::hangups());
    // Before the first file is written.
    survive_file_size_limit();
    // Before the gateway, which reads the limit too.
    let descriptors = FileDescriptorBudget::raised();
    warn_if_few(descriptors, &settings);
    let mut sockets = UpgradeCoordinator::new(settings.upgrade.directory.clone(), own_addresses(&settings));
    if takes_over || settings.upgrade.directory.is_some() {
        sockets.prepare()?;
    }
    let opt = Opt { upgrade: takes_over, ..Opt::default() };
    let mut server = Server::new_with_opt_and_conf(opt, conf(&settings, &sockets));
    if !takes_over {
        sockets.addresses().iter().try_for_each(|address| probe(*address))?;
    }
    let (gateway, background) = open_gateway(settings.clone(), takes_over)?;
    let listeners = ListenerShutdown::new();
    settings.listeners.iter().for_each(warn_if_unauthenticated);
    let (reloader, config_file) = source
        .map(|ReloadSource { file, load }| (Reloader::new(gateway.clone(), settings.clone(), load), file))
        .unzip();
    let served = ServedGateway { gateway: &gateway, end: &listeners, reloader: reloader.as_ref() };
    let mut terminal = TlsTerminal::default();
    let mut services = add_listeners(&mut server, &settings, served, descriptors, &mut terminal)?;
    services.extend(add_admin(&mut server, &settings, served, &mut terminal)?);
    server.add_service(background_service("gateway", background));
    if signals.is_some() {
        add_level_service(&mut server);
    }
    if let (Some(reloader), Some(file)) = (reloader, config_file) {
        add_small_service(&mut server, "sources", SourceService(SourcePoller::new(reloader.clone())));
        let watcher = ConfigWatcher::new(reloader, config_hangups, file, &settings);
        add_small_service(&mut server, "configuration", watcher);
    }
    let certificates = CertificateReloader::new(terminal.listeners, hangups);
    add_small_service(&mut server, "certificates", certificates);
    let is_serving = Arc::new(AtomicBool::new(!takes_over));
    if takes_over {
        let takeover = SocketTakeover { gateway: gateway.clone(), upgrade: sockets.clone() };
        let serving = Serving { gateway: gateway.clone(), is_serving: is_serving.clone() };
        bootstrap_after(&mut server, takeover, serving, services);
    } else {
        server.bootstrap();
    }
    let shutdown = settings.shutdown;
    let manager = Arc::new(ServiceManager::new(settings.upgrade.directory, takes_over));
    Ok(PreparedServer {
        server,
        gateway,
        is_serving,
        manager,
        shutdown,
        upgrade: sockets,
        listeners,
        signals,
    })
}

/// Returns the addresses of all listeners.
fn own_addresses(settings: &Settings) -> Vec<SocketAddr> {
    let clients = settings.listeners.iter().map(|listener| listener.address);
    let admin = settings.admin.iter().map(|admin| admin.address);
    clients.chain(admin).chain(settings.health.iter().map(|health| health.address)).collect()
}

/// Creates the gateway. The process that hands over still owns the data directory.
fn open_gateway(
    settings: Settings,
    takes_over: bool,
) -> Result<(Gateway, gateway::BackgroundService), GatewayError> {
    let make = if takes_over { Gateway::with_store_handover } else { Gateway::new };
    let (gateway, background) = make(settings)?;
    if takes_over {
        gateway.expect_predecessor();
    }
    Ok((gateway, background))
}

/// Starts the services of a process that takes sockets over, once it has them.
fn bootstrap_after(
    server: &mut Server,
    takeover: SocketTakeover,
    serving: Serving,
    mut services: Vec<ServiceHandle>,
) {
    let takeover = server.add_service(background_service("takeover", takeover));
    let bootstrap = server.bootstrap_as_a_service();
    bootstrap.add_dependency(takeover);
    services.push(server.add_service(background_service("serving", serving)));
    services.iter().for_each(|service| service.add_dependency(&bootstrap));
}

/// Adds a service that needs one thread.
fn add_small_service(
    server: &mut Server,
    name: &str,
    service: impl BackgroundService + Send + Sync + 'static,
) {
    let mut service = background_service(name, service);
    service.threads = Some(1);
    server.add_service(service);
}

/// Adds the service that changes the level of the log on signals.
fn add_level_service(server: &mut Server) {
    if let Some(levels) = log::LevelSignals::register() {
        let levels = LevelService(tokio::sync::Mutex::new(levels));
        server.add_service(background_service("log level", levels));
    }
}

/// Reads the sources of agents until the process ends.
struct SourceService(SourcePoller);

#[async_trait]
impl BackgroundService for SourceService {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            () = self.0.run() => {}
            _ = shutdown.wait_for(|ends| *ends) => {}
        }
    }
}

/// Changes the level of the log on signals.
struct LevelService(tokio::sync::Mutex<log::LevelSignals>);

#[async_trait]
impl BackgroundService for LevelService {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut levels = self.0.lock().await;
        tokio::select! {
            () = levels.follow() => {}
            _ = shutdown.changed() => {}
        }
    }
}

/// The gateway behind the services of the process, and the end of their listeners.
#[derive(Clone, Copy)]
struct ServedGateway<'a> {
    gateway: &'a Gateway,
    end: &'a ListenerShutdown,
    /// Reloads the configuration, if it can be read again.
    reloader: Option<&'a Arc<Reloader>>,
}

/// The TLS of the listeners that have it, and the threads of their handshakes.
#[derive(Default)]
struct TlsTerminal {
    listeners: Vec<Arc<TlsListener>>,
    threads: Option<Arc<HandshakeThreads>>,
}

impl TlsTerminal {
    /// Puts an application behind TLS.
    fn accept<A>(
        &mut self,
        app: A,
        listener: TerminatedListener,
        served: ServedGateway<'_>,
        server: &Server,
        limits: &Limits,
    ) -> Result<TlsAcceptor<A>, StartError> {
        let TerminatedListener { address, tls } = listener;
        let endpoint = TlsListener::new(address, tls, &served.gateway.metrics().tls, limits.auth_failures)
            .map_err(|problem| StartError::Tls(address, problem))?;
        self.listeners.push(endpoint.clone());
        let (app, threads) = (Arc::new(app), handshake_threads(&mut self.threads, server)?);
        Ok(TlsAcceptor { app, endpoint, threads, within: limits.header_read, listeners: served.end.clone() })
    }
}

/// The address of a listener with TLS, and its settings.
struct TerminatedListener {
    address: SocketAddr,
    tls: ListenerTls,
}

/// Adds the service of each listener.
fn add_listeners(
    server: &mut Server,
    settings: &Settings,
    served: ServedGateway<'_>,
    descriptors: FileDescriptorBudget,
    terminal: &mut TlsTerminal,
) -> Result<Vec<ServiceHandle>, StartError> {
    let ServedGateway { gateway, end, .. } = served;
    let limits = ConnectionLimits {
        all: settings.limits.connections,
        of_address: settings.limits.address_connections,
        descriptors: descriptors.for_clients(),
    };
    let mut services = Vec::new();
    for (place, listener) in settings.listeners.iter().enumerate() {
        let connections = ListenerConnections {
            limits,
            open: gateway.metrics().connections(&listener.address.to_string()),
            proxies: Some(listener.proxies.clone()).filter(|proxies| proxies.proxy_protocol),
            within: settings.limits.header_read,
        };
        let (address, socket, tls) =
            (listener.address, socket(listener, settings.limits.write_stall), listener.tls.clone());
        let limits = HttpLimits::new(&settings.limits, MAX_STREAMS, gateway.metrics().clone());
        let app = ListenerApp { gateway: gateway.clone(), listener: place, limits };
        let Some(tls) = tls else {
            let app = HttpVersionDetector { app: Arc::new(app), listeners: end.clone() };
            services.push(server.add_service(listening(app, served, connections, socket)));
            continue;
        };
        let listener = TerminatedListener { address, tls };
        let app = terminal.accept(app, listener, served, server, &settings.limits)?;
        services.push(server.add_service(listening(app, served, connections, socket)));
    }
    Ok(services)
}

/// Adds the services of the admin listener and of the health listener, as far as they are
/// configured.
fn add_admin(
    server: &mut Server,
    settings: &Settings,
    served: ServedGateway<'_>,
    terminal: &mut TlsTerminal,
) -> Result<Vec<ServiceHandle>, StartError> {
    let (gateway, limits) = (served.gateway, &settings.limits);
    let mut services = Vec::new();
    if let Some(admin) = &settings.admin {
        warn_if_exposed(admin);
        let app = AdminApp::new(gateway, admin, settings, served.reloader.cloned());
        services.push(match admin.tls.clone() {
            None => server.add_service(admin_service("admin", plain(app, served), served, admin.address)),
            Some(tls) => {
                let listener = TerminatedListener { address: admin.address, tls };
                let app = terminal.accept(app, listener, served, server, limits)?;
                server.add_service(admin_service("admin", app, served, admin.address))
            }
        });
    }
    if let Some(health) = &settings.health {
        let app = AdminApp::probes(gateway, health, settings);
        services.push(server.add_service(admin_service(
            "health",
            plain(app, served),
            served,
            health.address,
        )));
    }
    Ok(services)
}

/// Warns of an admin listener beyond this machine that every client may read, or that receives its
/// token without TLS.
fn warn_if_exposed(admin: &Admin) {
    let address = admin.address;
    if address.ip().is_loopback() {
        return;
    }
    if !admin.has_authentication() {
        tracing::warn!(
            %address,
            "admin listener shows metrics and agents without authentication: set admin.token, or admin.tls with client_auth"
        );
    } else if admin.tls.is_none() {
        tracing::warn!(%address, "admin listener receives its token without encryption: set admin.tls");
    }
}

/// Returns the threads of handshakes, and starts them for the first listener with TLS: as many as
/// those that serve requests, so that a gateway under nothing but handshakes uses every core.
fn handshake_threads(
    started: &mut Option<Arc<HandshakeThreads>>,
    server: &Server,
) -> Result<Arc<HandshakeThreads>, StartError> {
    if let Some(threads) = started {
        return Ok(Arc::clone(threads));
    }
    let threads = HandshakeThreads::start(server.configuration.threads).map_err(StartError::Threads)?;
    Ok(Arc::clone(started.insert(Arc::new(threads))))
}

/// Returns an application of operators as one that serves connections without TLS.
fn plain(app: AdminApp, served: ServedGateway<'_>) -> HttpVersionDetector<AdminApp> {
    HttpVersionDetector { app: Arc::new(app), listeners: served.end.clone() }
}

fn listening<A>(
    app: A,
    served: ServedGateway<'_>,
    connections: ListenerConnections,
    socket: ListenerConfig,
) -> YieldingService<ConnectionLimit<A>> {
    let (metrics, end) = (served.gateway.metrics().clone(), served.end);
    let mut service =
        Service::new("gateway".to_owned(), ConnectionLimit::new(app, connections, metrics, end.quiet()));
    service.add_listener(socket);
    YieldingService { service, ending: end.clone() }
}

/// Creates the service of a listener for operators, which has descriptors when clients and agents
/// have taken all others.
fn admin_service<A>(
    name: &str,
    app: A,
    served: ServedGateway<'_>,
    address: SocketAddr,
) -> YieldingService<ConnectionLimit<A>> {
    let ServedGateway { gateway, end, .. } = served;
    let limits = ConnectionLimits { all: ADMIN_CONNECTIONS, of_address: 0, descriptors: RawFd::MAX };
    let open = gateway.metrics().connections(&address.to_string());
    let connections = ListenerConnections { limits, open, proxies: None, within: Duration::ZERO };
    let mut service = Service::new(
        name.to_owned(),
        ConnectionLimit::new(app, connections, gateway.metrics().clone(), end.quiet()),
    );
    service.threads = Some(1);
    service.add_tcp(&address.to_string());
    YieldingService { service, ending: end.clone() }
}

impl PreparedServer {
    /// Runs until a signal ends the process, and then until requests under way are done.
    pub(crate) fn run(self) -> ! {
        let Self { server, gateway, shutdown, upgrade, listeners, signals, .. } = self;
        let signals = Mutex::new(signals);
        server.run(RunArgs {
            shutdown_signal: Box::new(DrainSignal { gateway, shutdown, upgrade, listeners, signals }),
        });
        end_process(0)
    }
}

/// Ends the process; the log is written first.
pub(crate) fn end_process(code: i32) -> ! {
    log::flush();
    std::process::exit(code)
}

fn conf(settings: &Settings, upgrade: &UpgradeCoordinator) -> ServerConf {
    let threads = match settings.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    // Pingora waits its grace out; `shutdown` ends the process before, in time or as soon as
    // nothing runs.
    let grace = settings.shutdown.grace.saturating_add(settings.shutdown.drain).as_secs();
    ServerConf {
        threads,
        upgrade_sock: upgrade.sockets().to_string_lossy().into_owned(),
        grace_period_seconds: Some(grace.saturating_add(1)),
        graceful_shutdown_timeout_seconds: Some(1),
        // Timers of tokio for all timeouts of a second and more: Pingora's own start a thread that wakes 100 times a second.
        fast_timeout_to_tokio_threshold_seconds: Some(0),
        ..ServerConf::default()
    }
}

/// Warns if the limit of open files is below `limits.connections`: connections beyond it are
/// closed.
fn warn_if_few(descriptors: FileDescriptorBudget, settings: &Settings) {
    let wanted = settings.limits.connections.saturating_mul(settings.listeners.len());
    let room = usize::try_from(descriptors.for_clients()).unwrap_or_default();
    if wanted > room {
        tracing::warn!(
            open_files = descriptors.limit,
            connections = wanted,
            room,
            "the limit of open files leaves less room than limits.connections allows on all listeners (a part is kept for agents and the \
             admin listener); raise the limit (ulimit -n, LimitNOFILE) or lower limits.connections"
        );
    }
}

/// Warns of a listener beyond this machine at which every client may call: that is seldom meant.
fn warn_if_unauthenticated(listener: &Listener) {
    let shuts_out = listener.tls.iter().flat_map(|tls| &tls.client_auth).any(|clients| clients.required);
    let has_agents = listener.serve.mcp || listener.serve.a2a;
    let is_open = has_agents && listener.require.rule == RequireRule::None && !shuts_out;
    if is_open && !listener.address.ip().is_loopback() {
        tracing::warn!(
            address = %listener.address,
            "listener serves every agent without authentication: configure auth, and require it"
        );
    }
}

/// Returns an error for an address in use: Pingora would end the process with a panic.
fn probe(address: SocketAddr) -> Result<(), StartError> {
    std::net::TcpListener::bind(address).map(drop).map_err(|error| StartError::Address(address, error))
}

/// Returns the socket of a listener. TLS is not Pingora's matter (see `tls`).
fn socket(listener: &Listener, write_stall: Duration) -> ListenerConfig {
    let keepalive = TcpKeepalive {
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(15),
        count: 4,
        #[cfg(target_os = "linux")]
        // The system ends the connection of a client that reads nothing for this time, with all
        // unsent bytes: a plain close would leave them to the system for as long as its own limits
        // allow.
        user_timeout: write_stall.min(MAX_USER_TIMEOUT),
    };
    let mut socket = TcpSocketOptions::default();
    socket.tcp_keepalive = Some(keepalive);
    ListenerConfig::tcp(listener.address.to_string())
        .l4_buffer(L4BufferSettings::new(SOCKET_BUFFERS, SOCKET_BUFFERS))
        .tcp_socket_options(socket)
}

/// The application of one listener: the gateway serves every request, or it is not found.
///
/// Without Pingora's proxy, which would hold a future of 14 KiB for each connection, and move it for
/// each request.
struct ListenerApp {
    gateway: Gateway,
    /// The place of the listener in the settings.
    listener: usize,
    limits: HttpLimits,
}

impl HttpApp for ListenerApp {
    fn limits(&self) -> &HttpLimits {
        &self.limits
    }

    fn serve<'a>(&'a self, request: &'a mut HttpConnection<'_>) -> ServedRequest<'a> {
        Box::pin(self.gateway.handle_at(request, self.listener))
    }
}
