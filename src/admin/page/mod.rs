//! The page for people: files that are part of the binary, and the headers that they need.
//!
//! The page loads nothing from elsewhere, and runs no script but its own modules. It has no data: the
//! routes under `/api` give that to operators alone.

use http::StatusCode;
use http::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_FRAME_OPTIONS};

use super::AdminResponse;

/// The sources that the page may use.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'",
);

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageFile {
    media_type: &'static str,
    content: &'static [u8],
}

/// The document.
pub(super) static INDEX: PageFile =
    PageFile { media_type: "text/html; charset=utf-8", content: include_bytes!("index.html") };
/// Its style.
pub(super) static STYLE: PageFile =
    PageFile { media_type: "text/css; charset=utf-8", content: include_bytes!("style.css") };
/// The views of the page.
pub(super) static APP: PageFile = PageFile { media_type: SCRIPT, content: include_bytes!("app.js") };
/// Elements that the views are made of.
pub(super) static ELEMENTS: PageFile =
    PageFile { media_type: SCRIPT, content: include_bytes!("elements.js") };
/// Requests to the routes under `/api`.
pub(super) static CLIENT: PageFile = PageFile { media_type: SCRIPT, content: include_bytes!("client.js") };
/// Plots.
pub(super) static PLOTS: PageFile = PageFile { media_type: SCRIPT, content: include_bytes!("plots.js") };
/// The form that calls a tool.
pub(super) static CALLER: PageFile = PageFile { media_type: SCRIPT, content: include_bytes!("caller.js") };

impl PageFile {
    /// Returns the answer with the file.
    pub(super) fn response(&self) -> AdminResponse {
        let mut response = AdminResponse::new(StatusCode::OK, self.media_type, self.content);
        response.headers = vec![
            (CONTENT_SECURITY_POLICY, POLICY),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
            (
                HeaderName::from_static("cross-origin-resource-policy"),
                HeaderValue::from_static("same-origin"),
            ),
            (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
        ];
        response
    }
}
