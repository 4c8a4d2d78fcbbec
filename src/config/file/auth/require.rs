//! `require` of a listener as in the file: the credentials that clients must present there.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, Spanned};
use crate::config::{Mechanism, Require, RequireRule};

/// `none`, `any` or `all`, or one of the last two with the mechanisms that are meant.
#[derive(Deserialize, Default)]
#[serde(from = "RequireForm")]
pub(in crate::config::file) struct RequireFile {
    rule: RequireRule,
    of: Option<Vec<String>>,
    is_wrong: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RequireForm {
    Word(String),
    Listed(RequireList),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequireList {
    any: Option<Vec<String>>,
    all: Option<Vec<String>>,
}

impl From<RequireForm> for RequireFile {
    fn from(wire: RequireForm) -> Self {
        let (rule, of) = match wire {
            RequireForm::Word(word) => match word.as_str() {
                "none" => (RequireRule::None, None),
                "any" => (RequireRule::Any, None),
                "all" => (RequireRule::All, None),
                _ => return Self { is_wrong: true, ..Self::default() },
            },
            RequireForm::Listed(RequireList { any: Some(of), all: None }) => (RequireRule::Any, Some(of)),
            RequireForm::Listed(RequireList { any: None, all: Some(of) }) => (RequireRule::All, Some(of)),
            RequireForm::Listed(_) => return Self { is_wrong: true, ..Self::default() },
        };
        Self { rule, of, is_wrong: false }
    }
}

impl JsonSchema for RequireFile {
    fn schema_name() -> Cow<'static, str> {
        "Require".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mechanisms = json_schema!({
            "type": "array", "minItems": 1, "items": { "enum": ["certificate", "token", "api_key"] },
        });
        json_schema!({
            "anyOf": [
                { "enum": ["none", "any", "all"] },
                { "type": "object", "properties": { "any": mechanisms }, "required": ["any"], "additionalProperties": false },
                { "type": "object", "properties": { "all": mechanisms }, "required": ["all"], "additionalProperties": false },
            ],
        })
    }
}

const HINT: &str = "write none, any, all, or for example { any: [certificate, token] }; there are certificate, token and api_key";

/// Returns the requirement of one listener, given the mechanisms under `auth`, and whether clients
/// present certificates there. Without a value a listener requires any of them.
pub(in crate::config::file) fn resolve(
    written: Spanned<RequireFile>,
    (configured, shows_certificates): (&[Mechanism], bool),
    reading: &mut ResolveContext<'_>,
) -> Require {
    let can_be_shown = |mechanism: &Mechanism| shows_certificates || *mechanism != Mechanism::Certificate;
    let here: Vec<Mechanism> = configured.iter().copied().filter(can_be_shown).collect();
    let Some((place, file)) = written.take() else {
        let rule = if configured.is_empty() { RequireRule::None } else { RequireRule::Any };
        return Require { rule, of: here };
    };
    if file.is_wrong {
        reading.problem(&place, format!("is not understood ({HINT})"));
    }
    if configured.is_empty() && file.rule != RequireRule::None {
        reading.problem(&place, "there is nothing to require: configure it under auth");
        return Require::default();
    }
    let is_named = file.of.is_some();
    let of = match file.of {
        None if file.rule == RequireRule::All => configured.to_vec(),
        None => here,
        Some(names) => named(&names, configured, &place, reading),
    };
    if (is_named || file.rule == RequireRule::All) && !of.iter().all(can_be_shown) {
        reading.problem(&place, "certificate can be shown only where tls.client_auth asks for it (add it)");
    }
    Require { rule: file.rule, of }
}

fn named(
    names: &[String],
    configured: &[Mechanism],
    place: &Location,
    reading: &mut ResolveContext<'_>,
) -> Vec<Mechanism> {
    if names.is_empty() {
        reading.problem(place, format!("is empty ({HINT})"));
    }
    let mut of = Vec::new();
    for name in names {
        let mechanism = match name.as_str() {
            "certificate" => Mechanism::Certificate,
            "token" => Mechanism::Token,
            "api_key" => Mechanism::ApiKey,
            _ => {
                reading.problem(place, format!("{name:?} is no mechanism ({HINT})"));
                continue;
            }
        };
        if !configured.contains(&mechanism) {
            reading.problem(place, format!("{name} is not configured under auth"));
        } else if !of.contains(&mechanism) {
            of.push(mechanism);
        }
    }
    // In one order everywhere, so that a caller that uses several mechanisms has one name on every
    // listener.
    configured.iter().copied().filter(|mechanism| of.contains(mechanism)).collect()
}
