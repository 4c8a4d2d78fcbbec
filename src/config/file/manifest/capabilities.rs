//! `capabilities` of a manifest: overrides for single methods.
//!
//! Reads only values that match the schema.

use std::collections::BTreeMap;

use http::Uri;
use serde::Deserialize;

use super::sheet::ManifestReader;
use crate::config::file::headers;
use crate::config::{MethodSettings, PerMethod};

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct CapabilitiesFile {
    message: MessageFile,
    tasks: TasksFile,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MessageFile {
    send: CapabilityFile,
    stream: CapabilityFile,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TasksFile {
    get: CapabilityFile,
    cancel: CapabilityFile,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CapabilityFile {
    endpoint: Option<String>,
    headers: BTreeMap<String, String>,
    mtls: Option<bool>,
    sse: Option<bool>,
}

impl CapabilitiesFile {
    /// Returns true if messages are answered by a stream; `None` if the manifest has no value.
    pub(super) fn streaming(&self) -> Option<bool> {
        self.message.stream.sse
    }

    /// Returns the overrides for each method.
    pub(super) fn resolve(
        self,
        has_identity: bool,
        sheet: &mut ManifestReader<'_>,
    ) -> PerMethod<MethodSettings> {
        let mut read = |at, file: CapabilityFile| file.resolve(at, has_identity, sheet);
        PerMethod {
            send: read("/capabilities/message/send", self.message.send),
            stream: read("/capabilities/message/stream", self.message.stream),
            get: read("/capabilities/tasks/get", self.tasks.get),
            cancel: read("/capabilities/tasks/cancel", self.tasks.cancel),
        }
    }
}

impl CapabilityFile {
    fn resolve(self, at: &str, has_identity: bool, sheet: &mut ManifestReader<'_>) -> MethodSettings {
        if self.mtls == Some(true) && !has_identity {
            sheet.problem(&format!("{at}/mtls"), "security.mtls is not enabled");
        }
        if self.sse == Some(true) && at != "/capabilities/message/stream" {
            sheet.problem(&format!("{at}/sse"), "only message.stream is answered by an event stream");
        }
        let endpoint = self.endpoint.and_then(|endpoint| url(&format!("{at}/endpoint"), endpoint, sheet));
        let mut own = Vec::new();
        for (name, text) in self.headers {
            let pointer = format!("{at}/headers/{}", name.replace('~', "~0").replace('/', "~1"));
            let value = sheet.written(&pointer, text);
            headers::take(&name, value, &mut own, &mut sheet.reading);
        }
        MethodSettings { endpoint, headers: own, mtls: self.mtls }
    }
}

fn url(pointer: &str, written: String, sheet: &mut ManifestReader<'_>) -> Option<String> {
    let (place, url) = sheet.one_line(pointer, written)?;
    let is_url = url
        .expose()
        .parse::<Uri>()
        .is_ok_and(|uri| uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https")));
    match is_url && !url.expose().contains('@') {
        true => Some(url.expose().to_owned()),
        false => sheet
            .reading
            .report_conflict(&place, "is not a URL (write https://HOST/PATH, without credentials)"),
    }
}
