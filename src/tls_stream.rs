//! One TLS connection over a byte stream, for either side, without buffers while nothing is on its way.
//!
//! rustls has the state of a connection and the cryptography. Its unbuffered interface leaves the buffers to its user: here bytes
//! are received, and records are made, in a buffer of the thread. A connection keeps only the bytes of a record that is not
//! complete, plaintext for which the reader had no room, and records that the socket did not take. The buffered
//! interface, and so `tokio-rustls`, keeps 4 KiB for as long as a connection is open, which is a tenth of an idle stream.
//!
//! Out of scope: settings, certificates and the choice of a version (see `tls` for clients, `transport` for agents).

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread::LocalKey;

use bytes::{Buf as _, BufMut as _, BytesMut};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};
use rustls::{CommonState, Error};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are received at once: a record of the maximum size (RFC 8446 §5.2, RFC 5246 §6.2.3), and its header.
const RECEIVED_BYTES: usize = 5 + (1 << 14) + 2048;

/// The maximum size of bytes that wait for the rest of a record or of a handshake message: rustls accepts messages of up to
/// 64 KiB.
const MAX_INCOMPLETE_BYTES: usize = (1 << 16) + RECEIVED_BYTES;

/// The maximum size of plaintext that is encrypted at once: four records of the maximum size.
const SENT_BYTES: usize = 1 << 16;

/// Room for the headers, paddings and tags of that many bytes in records of the maximum size.
const SENT_OVERHEAD: usize = 512;

thread_local! {
    /// The buffer for received bytes.
    static RECEIVED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// The buffer for records that are made.
    static SENT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// The buffer in which slices of plaintext are joined.
    static JOINED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `work` with a buffer of the thread, of at least this size.
fn with_buffer<T>(
    key: &'static LocalKey<Cell<Vec<u8>>>,
    size: usize,
    work: impl FnOnce(&mut Vec<u8>) -> T,
) -> T {
    // Taken, so that a stream within a stream finds an empty one. A thread that ends has none.
    let mut buffer = key.try_with(Cell::take).unwrap_or_default();
    if buffer.len() < size {
        buffer.resize(size, 0);
    }
    let done = work(&mut buffer);
    key.try_with(|key| key.set(buffer)).unwrap_or_default();
    done
}

/// The state of one side of a TLS connection.
pub(crate) trait TlsSession: Unpin {
    /// The part that differs between clients and servers.
    type Data;

    /// Processes received bytes.
    fn process<'c, 'i>(&'c mut self, received: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// Returns the part that clients and servers have in common.
    fn common(&self) -> &CommonState;
}

impl TlsSession for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, received: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(received)
    }

    fn common(&self) -> &CommonState {
        self
    }
}

/// A TLS connection after its handshake.
pub(crate) struct TlsStream<S, C> {
    socket: S,
    /// Bytes of a record or of a handshake message that is not complete.
    incomplete: BytesMut,
    records: Records<C>,
    /// The failure behind bytes that a reader got.
    failure: Option<io::Error>,
    /// True if the last message of this side is on its way.
    is_shut_down: bool,
}

/// The records of a connection.
struct Records<C> {
    session: C,
    /// Plaintext for which the reader had no room.
    plaintext: BytesMut,
    /// Records that the socket did not take yet.
    outgoing: BytesMut,
    reading: Reading,
}

/// The state of the receiving direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Open,
    /// The peer has sent its last record.
    Ended,
    /// The peer has sent no more bytes, and no last record: some may be missing.
    Truncated,
    /// A record of the peer was wrong. The state of rustls belongs to bytes that are gone, so it is not used any more.
    Failed,
}

impl<C: TlsSession> Records<C> {
    /// Processes received bytes, and returns how many of them are used up. Plaintext goes to the reader; the rest of it is kept.
    /// `send` is called once the session can send plaintext; it gets the queue of records.
    fn process(
        &mut self,
        received: &mut [u8],
        reader: &mut ReadBuf<'_>,
        send: impl FnOnce(&mut WriteTraffic<'_, C::Data>, &mut BytesMut) -> Result<(), Error>,
    ) -> Result<usize, Error> {
        let mut used = 0;
        loop {
            let rest = received.get_mut(used..).unwrap_or_default();
            let UnbufferedStatus { mut discard, state, .. } = self.session.process(rest);
            match state {
                Err(error) => {
                    used += discard;
                    self.reading = Reading::Failed;
                    self.queue_alert(received.get_mut(used..).unwrap_or_default());
                    return Err(error);
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        let (now, later) =
                            record.payload.split_at(record.payload.len().min(reader.remaining()));
                        reader.put_slice(now);
                        self.plaintext.extend_from_slice(later);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, &mut self.outgoing)?,
                // It is in the queue, which is sent before anything else.
                Ok(ConnectionState::TransmitTlsData(queued)) => queued.done(),
                Ok(ConnectionState::PeerClosed) => self.reading = Reading::Ended,
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    send(&mut traffic, &mut self.outgoing)?;
                    return Ok(used + discard);
                }
                // More bytes are needed, or none will come.
                Ok(_) => return Ok(used + discard),
            }
            used += discard;
        }
    }

    /// Queues the alert about a failure. These bytes begin with those that have failed.
    fn queue_alert(&mut self, failed: &mut [u8]) {
        // As long as there are messages, no bytes are processed.
        while self.session.common().wants_write() {
            let Ok(ConnectionState::EncodeTlsData(mut data)) = self.session.process(failed).state else {
                break;
            };
            if encode(&mut data, &mut self.outgoing).is_err() {
                // Without it the peer sees the connection end.
                break;
            }
        }
    }

    /// Gives a reader plaintext that is left of earlier records. Returns true if there was some.
    fn read_plaintext(&mut self, reader: &mut ReadBuf<'_>) -> bool {
        let given = self.plaintext.len().min(reader.remaining());
        reader.put_slice(self.plaintext.get(..given).unwrap_or_default());
        self.plaintext.advance(given);
        free_empty(&mut self.plaintext);
        given > 0
    }
}

/// Queues a message of rustls.
fn encode<D>(data: &mut EncodeTlsData<'_, D>, outgoing: &mut BytesMut) -> Result<(), Error> {
    let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) = data.encode(&mut [])
    else {
        return Ok(());
    };
    let queued = outgoing.len();
    outgoing.put_bytes(0, required_size);
    let encoded = data.encode(outgoing.get_mut(queued..).unwrap_or_default());
    encoded.map(drop).map_err(|error| Error::General(error.to_string()))
}

/// Frees a buffer that has become empty.
fn free_empty(buffer: &mut BytesMut) {
    if buffer.is_empty() {
        *buffer = BytesMut::new();
    }
}

fn failed(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn truncated() -> io::Error {
    let why = "the peer closed the connection without the last record of TLS";
    io::Error::new(io::ErrorKind::UnexpectedEof, why)
}

impl<S, C: TlsSession> TlsStream<S, C> {
    /// Returns the socket.
    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    /// Returns the socket, for its settings. To read or write it would break the connection.
    pub(crate) fn socket_mut(&mut self) -> &mut S {
        &mut self.socket
    }

    /// Returns the state of the session.
    pub(crate) fn session(&self) -> &C {
        &self.records.session
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, C: TlsSession> TlsStream<S, C> {
    /// Performs the handshake of a new session. `received`: bytes of it that were received before.
    ///
    /// # Errors
    ///
    /// Those of the socket, and the [`Error`] of a failed handshake, after the attempt to send the alert about it.
    pub(crate) async fn handshake(socket: S, session: C, received: &[u8]) -> io::Result<Self> {
        let records = Records {
            session,
            plaintext: BytesMut::new(),
            outgoing: BytesMut::new(),
            reading: Reading::Open,
        };
        let mut stream = Self {
            socket,
            incomplete: BytesMut::from(received),
            records,
            failure: None,
            is_shut_down: false,
        };
        let mut is_begun = false;
        poll_fn(|cx| {
            if !is_begun {
                is_begun = true;
                stream.process_incomplete(cx, &mut ReadBuf::new(&mut []))?;
            }
            stream.poll_handshake(cx)
        })
        .await?;
        Ok(stream)
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(cx))?;
            ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
            if !self.records.session.common().is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if self.records.reading != Reading::Open {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the peer ended the handshake",
                )));
            }
            ready!(self.poll_receive(cx, &mut ReadBuf::new(&mut [])))?;
        }
    }

    /// Reads the socket once and processes the bytes. The end of the stream without the last record of the peer is an error.
    fn poll_receive(&mut self, cx: &mut Context<'_>, reader: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        with_buffer(&RECEIVED, RECEIVED_BYTES, |buffer| {
            let mut room = ReadBuf::new(buffer);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut room))?;
            let received = room.filled_mut();
            if received.is_empty() {
                self.records.reading = Reading::Truncated;
                return Poll::Ready(Err(truncated()));
            }
            if !self.incomplete.is_empty() {
                if self.incomplete.len() + received.len() > MAX_INCOMPLETE_BYTES {
                    return Poll::Ready(Err(self.give_up(cx, Error::PeerSentOversizedRecord)));
                }
                self.incomplete.extend_from_slice(received);
                return Poll::Ready(self.process_incomplete(cx, reader));
            }
            let used = self.records.process(received, reader, |_, _| Ok(()));
            let used = used.map_err(|error| self.give_up(cx, error))?;
            // Nothing follows the last record.
            if self.records.reading != Reading::Ended {
                self.incomplete.extend_from_slice(received.get(used..).unwrap_or_default());
            }
            Poll::Ready(Ok(()))
        })
    }

    /// Processes the bytes that were not complete.
    fn process_incomplete(&mut self, cx: &mut Context<'_>, reader: &mut ReadBuf<'_>) -> io::Result<()> {
        let used = self.records.process(&mut self.incomplete, reader, |_, _| Ok(()));
        let used = used.map_err(|error| self.give_up(cx, error))?;
        self.incomplete.advance(used);
        if self.records.reading == Reading::Ended {
            self.incomplete.clear();
        }
        free_empty(&mut self.incomplete);
        Ok(())
    }

    /// Sends the alert about a failure, as far as the socket takes it at once.
    fn give_up(&mut self, cx: &mut Context<'_>, error: Error) -> io::Error {
        self.records.reading = Reading::Failed;
        self.incomplete = BytesMut::new();
        if let Poll::Ready(Ok(())) = self.poll_send(cx) {
            // The failure counts, not that of its alert.
            _ = Pin::new(&mut self.socket).poll_flush(cx);
        }
        failed(error)
    }

    /// Sends the records that are queued.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { socket, records: Records { outgoing, .. }, .. } = self;
        while outgoing.has_remaining() {
            let sent = ready!(Pin::new(&mut *socket).poll_write(cx, outgoing))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            outgoing.advance(sent);
        }
        free_empty(outgoing);
        Poll::Ready(Ok(()))
    }

    /// Encrypts plaintext, and sends as much of it as the socket takes. The rest is queued.
    fn poll_encrypt(&mut self, cx: &mut Context<'_>, plaintext: &[u8]) -> Poll<io::Result<usize>> {
        // One write is queued at a time, and no more.
        ready!(self.poll_send(cx))?;
        if self.records.reading == Reading::Failed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let plaintext = plaintext.get(..SENT_BYTES).unwrap_or(plaintext);
        if plaintext.is_empty() {
            return Poll::Ready(Ok(0));
        }
        with_buffer(&SENT, SENT_BYTES + SENT_OVERHEAD, |buffer| {
            let mut sealed = None;
            let used =
                self.records.process(&mut self.incomplete, &mut ReadBuf::new(&mut []), |traffic, _| {
                    sealed = Some(encrypt(traffic, plaintext, buffer)?);
                    Ok(())
                });
            let used = used.map_err(|error| self.give_up(cx, error))?;
            self.incomplete.advance(used);
            free_empty(&mut self.incomplete);
            let Some(sealed) = sealed else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
            let mut records = buffer.get(..sealed).unwrap_or_default();
            // Messages of rustls come first.
            if self.records.outgoing.is_empty()
                && let Poll::Ready(sent) = Pin::new(&mut self.socket).poll_write(cx, records)
            {
                records.advance(sent?);
            }
            self.records.outgoing.extend_from_slice(records);
            Poll::Ready(Ok(plaintext.len()))
        })
    }
}

/// Encrypts plaintext into a buffer, which grows if its records need more room. Returns their size.
fn encrypt<D>(
    traffic: &mut WriteTraffic<'_, D>,
    plaintext: &[u8],
    buffer: &mut Vec<u8>,
) -> Result<usize, Error> {
    loop {
        match traffic.encrypt(plaintext, buffer) {
            Ok(sealed) => return Ok(sealed),
            Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size }))
                if required_size > buffer.len() =>
            {
                buffer.resize(required_size, 0);
            }
            Err(_) => return Err(Error::EncryptError),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, C: TlsSession> AsyncRead for TlsStream<S, C> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        reader: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if reader.remaining() == 0 || this.records.read_plaintext(reader) {
            return Poll::Ready(Ok(()));
        }
        if let Some(failure) = this.failure.take() {
            return Poll::Ready(Err(failure));
        }
        let before = reader.filled().len();
        loop {
            let is_sent = this.records.outgoing.is_empty();
            let received = match this.records.reading {
                Reading::Open => ready!(this.poll_receive(cx, reader)),
                Reading::Ended => return Poll::Ready(Ok(())),
                Reading::Truncated => Err(truncated()),
                Reading::Failed => Err(io::ErrorKind::ConnectionAborted.into()),
            };
            if let Err(failure) = received {
                // First the bytes before it.
                if reader.filled().len() == before {
                    return Poll::Ready(Err(failure));
                }
                this.failure = Some(failure);
                return Poll::Ready(Ok(()));
            }
            // Messages of rustls itself, as far as the socket takes them. The waker of a task that writes stays where it is.
            if is_sent
                && this.records.outgoing.has_remaining()
                && let Poll::Ready(Ok(())) = this.poll_send(cx)
            {
                _ = Pin::new(&mut this.socket).poll_flush(cx);
            }
            if reader.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, C: TlsSession> AsyncWrite for TlsStream<S, C> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_encrypt(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Writes slices as one, since each write is a record of its own.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let mut filled = slices.iter().filter(|slice| !slice.is_empty());
        match (filled.next(), filled.next()) {
            (Some(first), Some(_)) if first.len() < SENT_BYTES => with_buffer(&JOINED, 0, |joined| {
                joined.clear();
                for slice in slices {
                    let room = SENT_BYTES.saturating_sub(joined.len());
                    joined.extend_from_slice(slice.get(..room).unwrap_or(slice));
                }
                this.poll_encrypt(cx, joined)
            }),
            (first, _) => this.poll_encrypt(cx, first.map(|first| &**first).unwrap_or_default()),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_shut_down {
            this.is_shut_down = true;
            // A connection that has failed has no last record.
            if this.records.reading != Reading::Failed {
                this.queue_last_record();
            }
        }
        ready!(this.poll_send(cx))?;
        match ready!(Pin::new(&mut this.socket).poll_shutdown(cx)) {
            // The peer has reset it.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            done => Poll::Ready(done),
        }
    }
}

impl<S, C: TlsSession> TlsStream<S, C> {
    /// Queues the last record (RFC 8446 §6.1, `close_notify`).
    fn queue_last_record(&mut self) {
        let used =
            self.records.process(&mut self.incomplete, &mut ReadBuf::new(&mut []), |traffic, outgoing| {
                let mut record = vec![0; SENT_OVERHEAD];
                let size = traffic.queue_close_notify(&mut record).map_err(|_| Error::EncryptError)?;
                outgoing.extend_from_slice(record.get(..size).unwrap_or_default());
                Ok(())
            });
        self.incomplete.advance(used.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
    use rustls::version::{TLS12, TLS13};
    use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex, split};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    type Client = TlsStream<DuplexStream, UnbufferedClientConnection>;
    type Server = TlsStream<DuplexStream, UnbufferedServerConnection>;

    /// The gateway's own server session, of `tls::listener`, adds the certificates of listeners to this.
    impl TlsSession for UnbufferedServerConnection {
        type Data = ServerConnectionData;

        fn process<'c, 'i>(&'c mut self, received: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
            self.process_tls_records(received)
        }

        fn common(&self) -> &CommonState {
            self
        }
    }

    fn configs(version: &'static SupportedProtocolVersion) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        (Arc::new(client), Arc::new(server))
    }

    fn name() -> ServerName<'static> {
        ServerName::try_from("localhost").unwrap()
    }

    async fn client(config: Arc<ClientConfig>, socket: DuplexStream) -> io::Result<Client> {
        TlsStream::handshake(socket, UnbufferedClientConnection::new(config, name()).unwrap(), &[]).await
    }

    async fn server(config: Arc<ServerConfig>, socket: DuplexStream) -> io::Result<Server> {
        TlsStream::handshake(socket, UnbufferedServerConnection::new(config).unwrap(), &[]).await
    }

    /// Sends bytes in both directions at once after both handshakes, ends both, and compares the bytes that arrive. A handshake
    /// may end at one side while the other still sends.
    async fn exchange<A: AsyncRead + AsyncWrite, B: AsyncRead + AsyncWrite>(
        one: impl Future<Output = io::Result<A>>,
        other: impl Future<Output = io::Result<B>>,
    ) {
        tokio::join!(async { exchange_at(one.await.unwrap()).await }, async {
            exchange_at(other.await.unwrap()).await;
        });
    }

    async fn exchange_at(stream: impl AsyncRead + AsyncWrite) {
        let sent: Vec<u8> =
            (0..40_000_u32).map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1]).collect();
        let (mut reader, mut writer) = split(stream);
        let mut received = Vec::new();
        let write = async {
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let ((), read) = tokio::join!(write, reader.read_to_end(&mut received));
        read.unwrap();
        assert!(received == sent);
    }

    #[tokio::test]
    async fn both_sides_speak_with_another_implementation_and_each_other() {
        for version in [&TLS13, &TLS12] {
            // Little room, so that every record comes in pieces. With less than 6 bytes both sides of a handshake would wait for each
            // other: a client sends one record of that size before it has read all of a server.
            for room in [7, 100_000] {
                let (client_config, server_config) = configs(version);
                let (near, far) = duplex(room);
                let other = TlsAcceptor::from(Arc::clone(&server_config)).accept(far);
                exchange(client(Arc::clone(&client_config), near), other).await;

                let (near, far) = duplex(room);
                let other = TlsConnector::from(Arc::clone(&client_config)).connect(name(), near);
                exchange(other, server(Arc::clone(&server_config), far)).await;

                let (near, far) = duplex(room);
                exchange(client(client_config, near), server(server_config, far)).await;
            }
        }
    }

    async fn pair() -> (Client, Server) {
        let (client_config, server_config) = configs(&TLS13);
        let (near, far) = duplex(1 << 20);
        let (one, two) = tokio::join!(client(client_config, near), server(server_config, far));
        (one.unwrap(), two.unwrap())
    }

    #[tokio::test]
    async fn a_connection_without_traffic_has_no_buffers() {
        let (mut client, mut server) = pair().await;
        for size in [1, 5_000, 100_000] {
            let sent = vec![7; size];
            client.write_all(&sent).await.unwrap();
            client.flush().await.unwrap();
            let mut received = vec![0; size];
            server.read_exact(&mut received).await.unwrap();
            server.write_all(b"ok").await.unwrap();
            server.flush().await.unwrap();
            // Byte by byte, so that there is a rest for which the reader has no room.
            assert_eq!((client.read_u8().await.unwrap(), client.read_u8().await.unwrap()), (b'o', b'k'));
        }
        for [incomplete, plaintext, outgoing] in [
            [&client.incomplete, &client.records.plaintext, &client.records.outgoing],
            [&server.incomplete, &server.records.plaintext, &server.records.outgoing],
        ] {
            assert_eq!((incomplete.capacity(), plaintext.capacity(), outgoing.capacity()), (0, 0, 0));
        }
    }

    #[tokio::test]
    async fn slices_become_one_record() {
        let (mut client, mut server) = pair().await;
        let slices = [IoSlice::new(b"head"), IoSlice::new(b""), IoSlice::new(b"body")];
        let written = poll_fn(|cx| Pin::new(&mut client).poll_write_vectored(cx, &slices)).await;
        assert_eq!(written.unwrap(), 8);
        client.flush().await.unwrap();
        let mut record = [0; 100];
        let taken = server.socket.read(&mut record).await.unwrap();
        // A header of 5 bytes, the type of the content, and a tag of 16.
        assert_eq!(taken, 5 + 8 + 1 + 16);
    }

    #[tokio::test]
    async fn a_stream_that_ends_without_the_last_record_is_an_error() {
        let (client, mut server) = pair().await;
        drop(client);
        for _ in 0..2 {
            let error = server.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }

        let (mut client, mut server) = pair().await;
        let last = poll_fn(|cx| {
            client.queue_last_record();
            client.records.outgoing.extend_from_slice(b"more");
            client.poll_send(cx)
        });
        last.await.unwrap();
        let mut rest = Vec::new();
        assert_eq!(server.read_to_end(&mut rest).await.unwrap(), 0);
        assert_eq!(server.incomplete.capacity(), 0);
        // The other direction is still open (RFC 8446 §6.1).
        server.write_all(b"late").await.unwrap();
        server.flush().await.unwrap();
        let mut late = [0; 4];
        client.read_exact(&mut late).await.unwrap();
        assert_eq!(&late, b"late");
    }

    #[tokio::test]
    async fn a_wrong_record_is_answered_by_an_alert() {
        let (client_config, server_config) = configs(&TLS13);
        let (near, far) = duplex(1 << 16);
        let connecting = TlsConnector::from(client_config).connect(name(), near);
        let (theirs, ours) = tokio::join!(connecting, server(server_config, far));
        let (mut theirs, mut ours) = (theirs.unwrap(), ours.unwrap());
        theirs.write_u8(1).await.unwrap();
        theirs.flush().await.unwrap();
        // A record of application data that was not encrypted with the keys of the connection.
        theirs.get_mut().0.write_all(&[&[23, 3, 3, 0, 32][..], &[0; 32]].concat()).await.unwrap();
        assert_eq!(ours.read_u8().await.unwrap(), 1);
        let error = ours.read_u8().await.unwrap_err();
        assert_eq!(error.get_ref().unwrap().downcast_ref(), Some(&Error::DecryptError));
        assert_eq!(ours.read_u8().await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(ours.write_u8(1).await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let error = theirs.read_u8().await.unwrap_err();
        assert_eq!(
            error.get_ref().unwrap().downcast_ref(),
            Some(&Error::AlertReceived(rustls::AlertDescription::BadRecordMac))
        );
    }

    #[tokio::test]
    async fn a_failed_handshake_has_the_error_of_rustls_and_sends_its_alert() {
        let (_, server_config) = configs(&TLS13);
        let (other_client, _) = configs(&TLS13);
        let (near, far) = duplex(1 << 16);
        let other = TlsAcceptor::from(server_config).accept(far);
        let (ours, theirs) = tokio::join!(client(other_client, near), other);
        let error = ours.err().unwrap();
        assert!(
            matches!(error.get_ref().unwrap().downcast_ref(), Some(Error::InvalidCertificate(_))),
            "{error}"
        );
        let error = theirs.unwrap_err();
        assert!(matches!(error.get_ref().unwrap().downcast_ref(), Some(Error::AlertReceived(_))), "{error}");
    }

    #[tokio::test]
    async fn keys_can_be_updated() {
        let (client_config, server_config) = configs(&TLS13);
        let (near, far) = duplex(1 << 16);
        let connecting = TlsConnector::from(client_config).connect(name(), near);
        let (theirs, ours) = tokio::join!(connecting, server(server_config, far));
        let (mut theirs, mut ours) = (theirs.unwrap(), ours.unwrap());
        for round in 0..5_u8 {
            theirs.get_mut().1.refresh_traffic_keys().unwrap();
            theirs.write_u8(round).await.unwrap();
            theirs.flush().await.unwrap();
            assert_eq!(ours.read_u8().await.unwrap(), round);
            ours.write_u8(round).await.unwrap();
            ours.flush().await.unwrap();
            assert_eq!(theirs.read_u8().await.unwrap(), round);
        }
    }

    #[tokio::test]
    async fn bytes_that_were_received_before_the_handshake_belong_to_it() {
        let (client_config, server_config) = configs(&TLS13);
        let (near, mut far) = duplex(1 << 16);
        let session = UnbufferedServerConnection::new(server_config).unwrap();
        let ours = async {
            let mut first = vec![0; 100];
            far.read_exact(&mut first).await.unwrap();
            TlsStream::handshake(far, session, &first).await
        };
        exchange(TlsConnector::from(client_config).connect(name(), near), ours).await;
    }
}
