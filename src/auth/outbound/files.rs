//! Files that hold credentials, read again when they change.
//!
//! A broken or missing file is logged and counted, and the previous credentials stay in use. See
//! `agents` for the times.

use std::path::Path;
use std::sync::Arc;

use super::{ConfiguredCredentials, Credentials, ReloadOutcome, TlsIdentity, is_sendable, show_expiry};
use crate::config::{AgentTls, Authorization, ClientAuthMethod, Pem, ReloadableSecret};
use crate::telemetry::label::Reload;

/// The use of a secret, which determines its valid content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SecretUse {
    /// It is sent as it is.
    Header,
    /// It is encoded before it is sent.
    Encoded,
}

impl ConfiguredCredentials {
    /// Returns the files that may change.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let secrets = self.secrets().into_iter().flat_map(|(_, secret)| secret.files());
        self.pems().into_iter().filter_map(Pem::path).chain(secrets)
    }

    fn secrets(&self) -> Vec<(SecretUse, &ReloadableSecret)> {
        let mut all: Vec<(SecretUse, &ReloadableSecret)> = Vec::new();
        all.extend(self.headers.iter().map(|(_, secret)| (SecretUse::Header, secret)));
        all.extend(self.auth.api_keys.iter().map(|key| (SecretUse::Header, &key.value)));
        for method in self.methods.all() {
            all.extend(method.headers.iter().map(|(_, secret)| (SecretUse::Header, secret)));
        }
        match &self.auth.authorization {
            Some(Authorization::Basic { password, .. }) => all.push((SecretUse::Encoded, password)),
            Some(Authorization::Bearer(token)) => all.push((SecretUse::Header, token)),
            Some(Authorization::OAuth2(oauth2)) => match &oauth2.proof {
                ClientAuthMethod::SecretBasic(secret) | ClientAuthMethod::SecretPost(secret) => {
                    all.push((SecretUse::Encoded, secret));
                }
                ClientAuthMethod::PrivateKeyJwt { .. } | ClientAuthMethod::TlsClientAuth => {}
            },
            None => {}
        }
        all
    }

    fn secrets_mut(&mut self) -> Vec<(SecretUse, &mut ReloadableSecret)> {
        let mut all: Vec<(SecretUse, &mut ReloadableSecret)> = Vec::new();
        all.extend(self.headers.iter_mut().map(|(_, secret)| (SecretUse::Header, secret)));
        all.extend(self.auth.api_keys.iter_mut().map(|key| (SecretUse::Header, &mut key.value)));
        for method in self.methods.all_mut() {
            all.extend(method.headers.iter_mut().map(|(_, secret)| (SecretUse::Header, secret)));
        }
        match &mut self.auth.authorization {
            Some(Authorization::Basic { password, .. }) => all.push((SecretUse::Encoded, password)),
            Some(Authorization::Bearer(token)) => all.push((SecretUse::Header, token)),
            Some(Authorization::OAuth2(oauth2)) => match &mut oauth2.proof {
                ClientAuthMethod::SecretBasic(secret) | ClientAuthMethod::SecretPost(secret) => {
                    all.push((SecretUse::Encoded, secret));
                }
                ClientAuthMethod::PrivateKeyJwt { .. } | ClientAuthMethod::TlsClientAuth => {}
            },
            None => {}
        }
        all
    }

    fn pems(&self) -> Vec<&Pem> {
        let tls = [&self.tls.ca, &self.tls.certificate, &self.tls.key];
        let mut all: Vec<&Pem> = tls.into_iter().flatten().collect();
        if let Some(Authorization::OAuth2(oauth2)) = &self.auth.authorization {
            all.extend(&oauth2.ca);
            if let ClientAuthMethod::PrivateKeyJwt { key, .. } = &oauth2.proof {
                all.push(key);
            }
        }
        all
    }
}

impl Credentials {
    /// Checks the files, and applies changed ones from now on. Blocks. One at a time.
    pub(crate) fn reload_changed(&self) -> ReloadOutcome {
        // A copy: a card that places its keys meanwhile must not wait for a disk.
        let mut written = self.written().clone();
        let mut watcher = std::mem::take(&mut written.watcher);
        let has_changed = watcher.has_changed(written.files());
        if !has_changed && written.problems.is_empty() {
            return ReloadOutcome::Same;
        }
        written.watcher = watcher;
        let mut problems = Vec::new();
        let secrets = read_secrets(&mut written, &mut problems);
        let identity = self.read_identity(&mut written).unwrap_or_else(|problem| {
            problems.push(problem);
            false
        });
        written.proof_due |= secrets || identity;
        let proof = self.read_proof(&mut written).unwrap_or_else(|problem| {
            problems.push(problem);
            false
        });
        // Logged once, though the files are read again and again.
        let is_news = has_changed || problems != written.problems;
        for problem in problems.iter().filter(|_| is_news) {
            tracing::warn!(agent = self.agent, error = problem, "failed to reload credentials");
            self.metrics.reload(Reload::Refused);
        }
        written.problems = problems;
        self.apply(written, secrets);
        if secrets || identity || proof {
            tracing::info!(agent = self.agent, "credentials reloaded");
            self.metrics.reload(Reload::Used);
        }
        if identity { ReloadOutcome::NewIdentity } else { ReloadOutcome::Same }
    }

    /// Applies the credentials that were read, with the current card.
    fn apply(&self, mut read: ConfiguredCredentials, shows_more: bool) {
        let mut written = self.written();
        std::mem::swap(&mut read.card, &mut written.card);
        *written = read;
        if shows_more {
            self.rebuild(&written);
        }
    }

    /// Reads certificate, key and roots again; they are used only together. Returns true if any has
    /// changed.
    fn read_identity(&self, written: &mut ConfiguredCredentials) -> Result<bool, String> {
        let old = &written.tls;
        let again = |pem: &Option<Pem>| pem.as_ref().map(Pem::read_again).transpose();
        let new = AgentTls {
            ca: again(&old.ca)?,
            certificate: again(&old.certificate)?,
            key: again(&old.key)?,
            server_name: old.server_name.clone(),
        };
        let same = |one: &Option<Pem>, other: &Option<Pem>| {
            one.as_ref().map(Pem::expose) == other.as_ref().map(Pem::expose)
        };
        if same(&old.ca, &new.ca) && same(&old.certificate, &new.certificate) && same(&old.key, &new.key) {
            return Ok(false);
        }
        self.identity.store(Arc::new(TlsIdentity::new(&new, false)?));
        show_expiry(&new, &self.metrics);
        written.tls = new;
        Ok(true)
    }

    /// Reads the gateway's proof for the token endpoint again, and the authorities of that
    /// endpoint. Returns true if any has changed.
    fn read_proof(&self, written: &mut ConfiguredCredentials) -> Result<bool, String> {
        let (Some(tokens), Some(Authorization::OAuth2(old))) = (&self.tokens, &written.auth.authorization)
        else {
            return Ok(false);
        };
        let mut new = old.clone();
        new.ca = old.ca.as_ref().map(Pem::read_again).transpose()?;
        let mut differs = old.ca.as_ref().map(Pem::expose) != new.ca.as_ref().map(Pem::expose);
        if let ClientAuthMethod::PrivateKeyJwt { key, .. } = &mut new.proof {
            let again = key.read_again()?;
            if crate::config::signing_key(&again).is_none() {
                return Err("auth.oauth2.private_key: is no key that can sign".to_owned());
            }
            differs |= again.expose() != key.expose();
            *key = again;
        }
        if written.proof_due || differs {
            tokens.change(&new, &written.tls)?;
            written.auth.authorization = Some(Authorization::OAuth2(new));
            written.proof_due = false;
        }
        Ok(differs)
    }
}

/// Reads every secret from a file again. Returns true if any has changed.
fn read_secrets(written: &mut ConfiguredCredentials, problems: &mut Vec<String>) -> bool {
    let mut is_new = false;
    for (usage, secret) in written.secrets_mut() {
        match secret.read_again() {
            Ok(again) if again == *secret => {}
            Ok(again) if usage == SecretUse::Header && !is_sendable(&again) => {
                problems.push("a file has a character in it that no header may have".to_owned());
            }
            Ok(again) => {
                *secret = again;
                is_new = true;
            }
            Err(problem) => problems.push(problem),
        }
    }
    is_new
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::config::Agent;
    use crate::telemetry::metrics::Metrics;
    use crate::transport::{ClientLimits, HttpClient};

    /// The file is a pipe: its reader waits until the writer has ended it.
    #[test]
    fn a_card_is_placed_while_a_disk_keeps_the_reader_of_a_file_waiting() {
        let (end, mut pipe) = std::io::pipe().unwrap();
        let path = format!("/dev/fd/{}", end.as_raw_fd());
        let authority =
            || rcgen::generate_simple_self_signed(vec!["ca.example".to_owned()]).unwrap().cert.pem();
        let mut agent = Agent::new("bard", "http://bard.example/");
        agent.tls.ca = Some(Pem::from_file(&path, authority()));
        let metrics = Metrics::new().unwrap().agent("bard");
        let credentials =
            Credentials::new(&agent, HttpClient::new(ClientLimits::default()), metrics).unwrap();
        let credentials = Arc::new(credentials);
        let reader = credentials.clone();
        let looking = std::thread::spawn(move || reader.reload_changed());
        // More than a pipe holds: this much is written only with a reader.
        pipe.write_all(&vec![b'\n'; 1 << 20]).unwrap();
        let (told, placed) = mpsc::channel();
        std::thread::spawn(move || told.send(credentials.place(Vec::new())));
        assert!(placed.recv_timeout(Duration::from_secs(10)).is_ok());
        pipe.write_all(authority().as_bytes()).unwrap();
        drop(pipe);
        assert_eq!(looking.join().unwrap(), ReloadOutcome::NewIdentity);
    }
}
