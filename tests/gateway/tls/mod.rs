//! TLS: certificates of listeners and clients, handshakes, and files that change.

mod https;
mod tls_certificates;
mod tls_clients;
mod tls_cost;
mod tls_page;
mod tls_reload;
mod tls_weak;
