//! An embedded A2A 1.0 agent, so that the gateway can be tried without one.
//!
//! Real: an HTTP server on its own socket, tasks that outlive their client, timers that take their
//! time. It is a peer, not a part of the gateway, and shares no code with it, so that a mistake in
//! the gateway's A2A cannot hide here. Reads and writes A2A 1.0 over JSON-RPC. Skills: `echo`,
//! `countdown`, `ask`.
//!
//! Out of scope: authentication, push notifications, `ListTasks`, TLS.

mod card;
mod http;
mod id_and_time;
mod message;
mod methods;
mod rpc;
mod skills;
mod stream;
mod task;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use task::Tasks;

/// Connections served at once; others wait in the listener's queue.
const MAX_CONNECTIONS: usize = 256;
/// Longest wait for a request's headers, which is also how long an idle connection is kept.
const HEADER_PATIENCE: Duration = Duration::from_secs(60);
/// Pause after an accept that failed for want of file descriptors: trying at once would spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The demonstration agent, bound and ready to run.
#[derive(Debug)]
pub struct DemoAgent {
    listener: TcpListener,
    address: SocketAddr,
}

impl DemoAgent {
    /// Binds `address`; port 0 takes any free port. Clients can connect from now on and are served
    /// by [`Self::run`].
    ///
    /// # Errors
    ///
    /// Any error of the system about binding.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Binds like [`Self::bind`]; returns the address that was bound and the future that serves it,
    /// to be spawned.
    ///
    /// # Errors
    ///
    /// Any error of the system about binding.
    pub async fn start(
        address: SocketAddr,
    ) -> io::Result<(SocketAddr, impl Future<Output = ()> + Send + 'static)> {
        let agent = Self::bind(address).await?;
        Ok((agent.address, agent.run()))
    }

    /// Returns the address at which the agent listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the agent's card.
    pub fn card_url(&self) -> String {
        format!("{}.well-known/agent-card.json", card::base_url(self.address))
    }

    /// Serves until dropped; dropping closes every connection. Tasks that are running end on their own.
    pub async fn run(self) {
        let agent =
            Arc::new(SharedAgent { card: card::DemoCard::new(self.address), tasks: Tasks::default() });
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((socket, _)) => {
                    let agent = Arc::clone(&agent);
                    connections.spawn(async move {
                        serve(socket, agent).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "demo agent failed to accept a connection");
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
    }
}

/// State that all connections share.
struct SharedAgent {
    card: card::DemoCard,
    tasks: Tasks,
}

async fn serve(socket: TcpStream, agent: Arc<SharedAgent>) {
    // The chunks of a stream are small and the client shows them as they arrive.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "demo agent failed to set TCP_NODELAY");
    }
    let service = service_fn(move |request| http::answer(Arc::clone(&agent), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(socket), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "demo agent lost a connection");
    }
}
