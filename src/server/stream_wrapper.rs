//! The traits of a connection that a wrapper of one passes on unchanged.

/// Implements for `$wrapper` the traits that Pingora asks of a connection, by its field `$stream`;
/// reading, writing and shutting down are left to the wrapper.
macro_rules! forward_stream_traits {
    ($wrapper:ty, $stream:ident) => {
        const _: () = {
            use std::fmt;
            use std::sync::Arc;
            use std::time::Duration;

            use pingora::protocols::raw_connect::ProxyDigest;
            use pingora::protocols::tls::{SslDigest, TlsRef};
            use pingora::protocols::{
                ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, SocketDigest, Ssl,
                TimingDigest, UniqueID, UniqueIDType,
            };

            impl UniqueID for $wrapper {
                fn id(&self) -> UniqueIDType {
                    self.$stream.id()
                }
            }

            impl Ssl for $wrapper {
                fn get_ssl(&self) -> Option<&TlsRef> {
                    self.$stream.get_ssl()
                }

                fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
                    self.$stream.get_ssl_digest()
                }

                fn selected_alpn_proto(&self) -> Option<ALPN> {
                    self.$stream.selected_alpn_proto()
                }
            }

            impl GetTimingDigest for $wrapper {
                fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
                    self.$stream.get_timing_digest()
                }

                fn get_read_pending_time(&self) -> Duration {
                    self.$stream.get_read_pending_time()
                }

                fn get_write_pending_time(&self) -> Duration {
                    self.$stream.get_write_pending_time()
                }
            }

            impl GetProxyDigest for $wrapper {
                fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
                    self.$stream.get_proxy_digest()
                }
            }

            impl GetSocketDigest for $wrapper {
                fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
                    self.$stream.get_socket_digest()
                }

                fn set_socket_digest(&mut self, digest: SocketDigest) {
                    self.$stream.set_socket_digest(digest);
                }
            }

            impl Peek for $wrapper {}

            impl fmt::Debug for $wrapper {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_struct(stringify!($wrapper)).finish_non_exhaustive()
                }
            }
        };
    };
}
pub(crate) use forward_stream_traits;
