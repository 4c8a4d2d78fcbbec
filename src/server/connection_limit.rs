//! Bounds the connections of a listener: those beyond are closed at once, before a handshake costs
//! anything.
//!
//! See `limits` for quotas of callers, which are known later.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use prometheus::IntGauge;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::preface;
use crate::auth::network;
use crate::config::TrustedProxies;
use crate::sync::lock;
use crate::telemetry::label::Refusal;
use crate::telemetry::metrics::Metrics;

/// The minimum time between two warnings of one kind: clients must not fill the log.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

/// The limits of the connections of one listener.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionLimits {
    /// The maximum number of all connections.
    pub(super) all: usize,
    /// The maximum number of connections of one address; 0: any number.
    pub(super) of_address: usize,
    /// The number of a descriptor from which on none is for connections.
    pub(super) descriptors: RawFd,
}

/// The connections of one listener: their limits, their gauge, and the proxies that they come from.
pub(super) struct ListenerConnections {
    pub(super) limits: ConnectionLimits,
    /// Counts open connections.
    pub(super) open: IntGauge,
    /// The proxies before the listener, if each connection begins with a header of the PROXY
    /// protocol.
    pub(super) proxies: Option<TrustedProxies>,
    /// The time limit of that header.
    pub(super) within: Duration,
}

/// An application with a limit on its connections.
pub(super) struct ConnectionLimit<A> {
    app: Arc<A>,
    room: Semaphore,
    addresses: AddressCounts,
    descriptors: RawFd,
    open: IntGauge,
    proxies: Option<TrustedProxies>,
    within: Duration,
    metrics: Arc<Metrics>,
    /// The signal for connections to end: later than their listener.
    quiet: ShutdownWatch,
    warned: Mutex<[Option<Instant>; 3]>,
}

/// Open connections by address. Holds addresses with open connections alone, so that the bound on
/// all bounds it too.
struct AddressCounts {
    most: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// The permit of an open connection.
struct ConnectionPermit<'a> {
    _place: SemaphorePermit<'a>,
    _address: Option<AddressPermit<'a>>,
    _open: OpenConnection<'a>,
}

/// Counts a connection as open until it is dropped.
struct OpenConnection<'a>(&'a IntGauge);

impl<'a> OpenConnection<'a> {
    fn new(open: &'a IntGauge) -> Self {
        open.inc();
        Self(open)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The permit of one open connection of an address.
struct AddressPermit<'a> {
    addresses: &'a AddressCounts,
    address: IpAddr,
}

/// The reason for which a connection is closed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionRefusal {
    Listener,
    Address,
    Descriptors,
}

impl<A> ConnectionLimit<A> {
    pub(super) fn new(
        app: A,
        connections: ListenerConnections,
        metrics: Arc<Metrics>,
        quiet: ShutdownWatch,
    ) -> Self {
        let ListenerConnections { limits, open, proxies, within } = connections;
        Self {
            app: Arc::new(app),
            room: Semaphore::new(limits.all.clamp(1, Semaphore::MAX_PERMITS)),
            addresses: AddressCounts { most: limits.of_address, open: Mutex::default() },
            descriptors: limits.descriptors,
            open,
            proxies,
            within,
            metrics,
            quiet,
            warned: Mutex::default(),
        }
    }

    fn admit(&self, stream: &Stream) -> Result<ConnectionPermit<'_>, ConnectionRefusal> {
        if stream.id() >= self.descriptors {
            return Err(ConnectionRefusal::Descriptors);
        }
        let place = self.room.try_acquire().map_err(|_| ConnectionRefusal::Listener)?;
        // Behind the PROXY protocol the address is known later.
        let address = if self.proxies.is_some() { None } else { self.admit_address(stream)? };
        Ok(ConnectionPermit { _place: place, _address: address, _open: OpenConnection::new(&self.open) })
    }

    fn admit_address(&self, stream: &Stream) -> Result<Option<AddressPermit<'_>>, ConnectionRefusal> {
        let digest = stream.get_socket_digest();
        let address = digest.as_ref().and_then(|digest| digest.peer_addr()?.as_inet());
        match address.filter(|_| self.addresses.most > 0) {
            Some(address) => {
                self.addresses.take(network(address.ip())).map(Some).ok_or(ConnectionRefusal::Address)
            }
            None => Ok(None),
        }
    }

    /// Reads the header of the PROXY protocol, and admits the address in it.
    async fn admit_behind_proxy(
        &self,
        stream: &mut Stream,
        proxies: &TrustedProxies,
    ) -> Option<Option<AddressPermit<'_>>> {
        if let Err(error) = preface::accept(stream, proxies, self.within).await {
            self.metrics.refused(Refusal::ProxyHeader);
            tracing::debug!(%error, "closed connection");
            return None;
        }
        match self.admit_address(stream) {
            Ok(permit) => Some(permit),
            Err(full) => {
                self.refuse(full);
                None
            }
        }
    }

    fn refuse(&self, full: ConnectionRefusal) {
        self.metrics.refused(if full == ConnectionRefusal::Address {
            Refusal::AddressConnections
        } else {
            Refusal::Overloaded
        });
        let now = Instant::now();
        let mut warned = lock(&self.warned);
        let Some(last) = warned.get_mut(full as usize) else { return };
        if last.is_some_and(|last| now.duration_since(last) < WARNING_PAUSE) {
            return;
        }
        *last = Some(now);
        drop(warned);
        match full {
            ConnectionRefusal::Listener => {
                tracing::info!("closed connection: listener is at limits.connections")
            }
            ConnectionRefusal::Address => tracing::info!(
                "closed connection: address is at limits.address_connections (set 0 behind a proxy)"
            ),
            ConnectionRefusal::Descriptors => {
                tracing::info!("closed connection: limit of open files is almost reached (raise it)")
            }
        }
    }
}

impl AddressCounts {
    /// Counts one more connection of an address, if the limit permits.
    fn take(&self, address: IpAddr) -> Option<AddressPermit<'_>> {
        let mut open = self.open();
        let count = open.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(AddressPermit { addresses: self, address })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        lock(&self.open)
    }
}

impl Drop for AddressPermit<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.addresses.open().entry(self.address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl<A: ServerApp + Send + Sync + 'static> ConnectionLimit<A> {
    /// Serves a connection to its end, or closes it if there is no room.
    async fn serve(self: Arc<Self>, mut stream: Stream) {
        let _permit = match self.admit(&stream) {
            Ok(permit) => permit,
            Err(full) => return self.refuse(full),
        };
        let mut _address = None;
        if let Some(proxies) = &self.proxies {
            // Boxed: its room is free once the address is known.
            let admitted = Box::pin(self.admit_behind_proxy(&mut stream, proxies)).await;
            let Some(admitted) = admitted else { return };
            _address = admitted;
        }
        drop(self.app.process_new(stream, &self.quiet).await);
    }
}

#[async_trait]
impl<A: ServerApp + Send + Sync + 'static> ServerApp for ConnectionLimit<A> {
    // A task of its own: that of Pingora, in which the connection was accepted, keeps room for a
    // handshake, 7 KiB, as long as it runs.
    async fn process_new(self: &Arc<Self>, stream: Stream, _: &ShutdownWatch) -> Option<Stream> {
        drop(tokio::spawn(Arc::clone(self).serve(stream)));
        None
    }

    async fn cleanup(&self) {
        self.app.cleanup().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_connections_are_forgotten() {
        let addresses = AddressCounts { most: 2, open: Mutex::default() };
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        let held = [addresses.take(one), addresses.take(one)];
        assert!(held.iter().all(Option::is_some) && addresses.take(one).is_none());
        let of_other = addresses.take(other);
        assert!(of_other.is_some());
        drop((held, of_other));
        assert!(addresses.open().is_empty() && addresses.take(one).is_some());
    }
}
