//! nginx and HAProxy as plain proxies before the agent: one worker, connections to the agent kept, nothing logged.

use std::fs;
use std::path::Path;

use super::options::{Listener, Options};
use super::process::{Process, free_port};

/// Starts nginx, if it is installed. The certificates are in this folder, and the configuration is written there.
pub(crate) fn nginx(folder: &Path, agent: u16, options: &Options) -> Option<Process> {
    let (port, place) = (free_port(), folder.display());
    let mut listen = format!("127.0.0.1:{port}");
    if options.listener != Listener::Plain {
        listen.push_str(" ssl");
    }
    if options.is_http2 {
        listen.push_str(" http2");
    }
    let pair = format!("ssl_certificate {place}/server.crt; ssl_certificate_key {place}/server.key;");
    let clients =
        format!("ssl_verify_client on; ssl_client_certificate {place}/ca.pem; ssl_crl {place}/crl.pem;");
    let tls = match options.listener {
        Listener::Plain => String::new(),
        Listener::Tls => pair,
        Listener::Mutual => format!("{pair} {clients}"),
    };
    let folders: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {place}/nginx-{name};\n"))
        .concat();
    let text = format!(
        "daemon off; master_process off; pid {place}/nginx.pid; error_log stderr crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; ssl_protocols TLSv1.3; {folders}\
         upstream agent {{ server 127.0.0.1:{agent}; keepalive 128; keepalive_requests 100000000; }}\n\
         server {{ listen {listen}; {tls} keepalive_requests 100000000;\n\
         client_max_body_size 8m; client_body_buffer_size 256k; proxy_buffers 16 32k;\n\
         location / {{ proxy_pass http://agent; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}\n"
    );
    let file = folder.join("nginx-calls.conf");
    fs::write(&file, text).unwrap();
    Process::nginx(&file, port)
}

/// Starts HAProxy, if it is installed. The certificates are in this folder, and the configuration is written there.
pub(crate) fn haproxy(folder: &Path, agent: u16, options: &Options) -> Option<Process> {
    let (port, place) = (free_port(), folder.display());
    let pair = ["server.crt", "server.key"].map(|file| fs::read_to_string(folder.join(file)).unwrap());
    fs::write(folder.join("haproxy.pem"), pair.concat()).unwrap();
    let clients = format!("ca-file {place}/ca.pem verify required crl-file {place}/crl.pem");
    let tls = match options.listener {
        Listener::Plain => String::new(),
        Listener::Tls => format!("ssl crt {place}/haproxy.pem"),
        Listener::Mutual => format!("ssl crt {place}/haproxy.pem {clients}"),
    };
    let protocol = match (options.is_http2, options.listener) {
        (false, _) => "",
        (true, Listener::Plain) => "proto h2",
        (true, Listener::Tls | Listener::Mutual) => "alpn h2",
    };
    let text = format!(
        "global\n  nbthread 1\n  maxconn 2000\n\
         defaults\n  mode http\n  http-reuse always\n\
         \x20 timeout connect 10s\n  timeout client 10m\n  timeout server 10m\n\
         frontend clients\n  bind 127.0.0.1:{port} {tls} {protocol}\n  default_backend agents\n\
         backend agents\n  server agent 127.0.0.1:{agent}\n"
    );
    let file = folder.join("haproxy.conf");
    fs::write(&file, text).unwrap();
    Process::haproxy(&file, port)
}
