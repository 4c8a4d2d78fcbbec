//! The configuration as an operator meets it: files in, settings or the whole list of problems out.

#[cfg(test)]
#[path = "config/auth_problems.rs"]
mod auth_problems;
#[cfg(test)]
#[path = "config/credentials.rs"]
mod credentials;
#[cfg(test)]
#[path = "config/defaults.rs"]
mod defaults;
#[cfg(test)]
#[path = "config/desk.rs"]
mod desk;
#[cfg(test)]
#[path = "config/manifest_problems.rs"]
mod manifest_problems;
#[cfg(test)]
#[path = "config/manifests.rs"]
mod manifests;
#[cfg(test)]
#[path = "config/problems.rs"]
mod problems;
#[cfg(test)]
#[path = "config/secrets.rs"]
mod secrets;
#[cfg(test)]
#[path = "config/settings.rs"]
mod settings;
#[cfg(test)]
#[path = "config/stand_in.rs"]
mod stand_in;
#[cfg(test)]
#[path = "config/tls.rs"]
mod tls;
#[cfg(test)]
#[path = "config/yaml.rs"]
mod yaml;
