//! The members of an Agent Card of every version, and their conversion to an [`AgentCard`].
//!
//! See also `interface`, which chooses the interface of an agent.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::super::lenient::{LenientBool, LenientList, LenientObject, LenientString, VersionText};
use super::super::sanitize::{clean, clean_line};
use super::interface::{InterfaceCandidate, VersionMarkers};
use super::security::{OldRequirementsIn, RequirementsIn, SchemesIn, requirements, schemes};
use super::{AgentCard, AgentExtension, AgentSkill, CardError, MAX_SKILLS};

/// Maximum number of interfaces that are read.
const MAX_OFFERS: usize = 64;
/// Maximum length of the name of a binding or version, in bytes.
const MAX_VERSION: usize = 64;
const MAX_NAME: usize = 128;
const MAX_DESCRIPTION: usize = 4096;
const MAX_EXAMPLE: usize = 1024;
const MAX_WORD: usize = 128;
const MAX_URL: usize = 2048;
/// Maximum number of tags, examples, media types or extensions in one list.
const MAX_LIST: usize = 64;
const MAX_PROBLEMS: usize = 32;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct CardIn {
    name: LenientString,
    description: LenientString,
    version: VersionText,
    provider: LenientObject<ProviderIn>,
    documentation_url: LenientString,
    icon_url: LenientString,
    capabilities: LenientObject<CapabilitiesIn>,
    default_input_modes: LenientList<LenientString>,
    default_output_modes: LenientList<LenientString>,
    skills: LenientList<LenientObject<SkillIn>>,
    signatures: LenientList<IgnoredAny>,
    security_schemes: Option<SchemesIn>,
    security: Option<OldRequirementsIn>,
    security_requirements: RequirementsIn,
    /// A2A 1.0.
    pub(super) supported_interfaces: LenientList<LenientObject<InterfaceIn>>,
    /// Before 1.0: this member and those below.
    pub(super) url: LenientString,
    pub(super) protocol_version: VersionText,
    pub(super) preferred_transport: LenientString,
    pub(super) additional_interfaces: LenientList<LenientObject<OldInterfaceIn>>,
    supports_authenticated_extended_card: LenientBool,
    /// A2A 0.1.
    authentication: LenientObject<IgnoredMembers>,
}

#[derive(Deserialize)]
struct IgnoredMembers {}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProviderIn {
    organization: LenientString,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CapabilitiesIn {
    streaming: LenientBool,
    push_notifications: LenientBool,
    extended_agent_card: LenientBool,
    extensions: LenientList<LenientObject<ExtensionIn>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ExtensionIn {
    uri: LenientString,
    description: LenientString,
    required: LenientBool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct InterfaceIn {
    pub(super) url: LenientString,
    pub(super) protocol_binding: LenientString,
    pub(super) tenant: LenientString,
    pub(super) protocol_version: VersionText,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct OldInterfaceIn {
    pub(super) url: LenientString,
    pub(super) transport: LenientString,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SkillIn {
    id: LenientString,
    name: LenientString,
    description: LenientString,
    tags: LenientList<LenientString>,
    examples: LenientList<LenientString>,
    input_modes: LenientList<LenientString>,
    output_modes: LenientList<LenientString>,
    security: OldRequirementsIn,
    security_requirements: RequirementsIn,
}

impl CardIn {
    /// Returns true if the card has a member that came with 0.2 and that 0.1 does not have.
    pub(super) fn has_slash_members(&self) -> bool {
        self.security_schemes.is_some()
            || self.security.is_some()
            || self.supports_authenticated_extended_card.0.is_some()
            || self.preferred_transport.is_filled()
            || self.additional_interfaces.0.is_some()
            || self.capabilities.0.as_ref().is_some_and(|can| can.extensions.0.is_some())
            || self.icon_url.is_filled()
    }

    /// Returns true if the card has a member that only 0.1 has, or lacks one that every later
    /// version requires.
    pub(super) fn has_or_lacks_like_v0_1(&self) -> bool {
        let skills = self.skills.0.iter().flatten().filter_map(|skill| skill.0.as_ref());
        let mut bare = skills.filter(|skill| skill.description.0.is_none() || skill.tags.0.is_none());
        self.authentication.0.is_some() || bare.next().is_some()
    }

    /// Converts the parsed members to a card.
    pub(super) fn into_card(mut self, raw: Box<RawValue>) -> Result<AgentCard, CardError> {
        let (interfaces, signs) = offers(&mut self);
        if interfaces.is_empty() {
            return Err(CardError::NotACard("it has neither supportedInterfaces nor url".to_owned()));
        }
        let mut problems = CardProblems::default();
        let name = line(self.name, MAX_NAME);
        if name.is_empty() {
            problems.note("the card has no name".to_owned());
        }
        let can = self.capabilities.0.unwrap_or_default();
        Ok(AgentCard {
            name,
            description: block(self.description, MAX_DESCRIPTION),
            version: clean_line(&self.version.0.unwrap_or_default(), MAX_WORD),
            provider: self
                .provider
                .0
                .map(|provider| line(provider.organization, MAX_NAME))
                .filter(|it| !it.is_empty()),
            documentation_url: address(self.documentation_url),
            icon_url: address(self.icon_url),
            streaming: can.streaming.is_set(),
            push_notifications: can.push_notifications.is_set(),
            extended_card: can.extended_agent_card.is_set()
                || self.supports_authenticated_extended_card.is_set(),
            signed: self.signatures.is_filled(),
            proof: None,
            default_input_modes: lines(self.default_input_modes, MAX_WORD),
            default_output_modes: lines(self.default_output_modes, MAX_WORD),
            skills: skills(self.skills, &mut problems),
            extensions: extensions(can.extensions, &mut problems),
            security_schemes: schemes(self.security_schemes.unwrap_or_default()),
            security: requirements(self.security_requirements, self.security.unwrap_or_default()),
            interfaces,
            raw,
            problems: problems.0,
            signs,
        })
    }
}

#[derive(Default)]
struct CardProblems(Vec<String>);

impl CardProblems {
    fn note(&mut self, problem: String) {
        if self.0.len() < MAX_PROBLEMS {
            self.0.push(problem);
        }
    }
}

fn skills(list: LenientList<LenientObject<SkillIn>>, problems: &mut CardProblems) -> Vec<AgentSkill> {
    let mut skills: Vec<AgentSkill> = Vec::new();
    for (at, skill) in list.items().enumerate() {
        if skills.len() == MAX_SKILLS {
            problems.note(format!("more than {MAX_SKILLS} skills; those after skills[{at}] were left out"));
            break;
        }
        let Some(skill) = skill.0.map(AgentSkill::from).filter(|skill| !skill.id.is_empty()) else {
            problems.note(format!("skills[{at}] has no id and was left out"));
            continue;
        };
        if skills.iter().any(|known| known.id == skill.id) {
            problems.note(format!("skills[{at}] has the id {:?} of another and was left out", skill.id));
            continue;
        }
        skills.push(skill);
    }
    skills
}

/// Returns the gateway's form of a skill id: one line without control characters, of at most 128
/// bytes.
pub(crate) fn skill_id(written: &str) -> String {
    clean_line(written, MAX_NAME)
}

impl From<SkillIn> for AgentSkill {
    fn from(skill: SkillIn) -> Self {
        let id = skill_id(&skill.id.0.unwrap_or_default());
        let name = Some(line(skill.name, MAX_NAME)).filter(|name| !name.is_empty());
        Self {
            name: name.unwrap_or_else(|| id.clone()),
            id,
            description: block(skill.description, MAX_DESCRIPTION),
            tags: lines(skill.tags, MAX_WORD),
            examples: lines(skill.examples, MAX_EXAMPLE),
            input_modes: lines(skill.input_modes, MAX_WORD),
            output_modes: lines(skill.output_modes, MAX_WORD),
            security: requirements(skill.security_requirements, skill.security),
        }
    }
}

fn extensions(
    list: LenientList<LenientObject<ExtensionIn>>,
    problems: &mut CardProblems,
) -> Vec<AgentExtension> {
    let mut extensions = Vec::new();
    for (at, extension) in list.items().take(MAX_LIST).enumerate() {
        let Some(extension) = extension.0.filter(|extension| extension.uri.is_filled()) else {
            problems.note(format!("capabilities.extensions[{at}] has no uri and was left out"));
            continue;
        };
        extensions.push(AgentExtension {
            uri: line(extension.uri, MAX_URL),
            description: block(extension.description, MAX_DESCRIPTION),
            required: extension.required.is_set(),
        });
    }
    extensions
}

fn line(text: LenientString, max_bytes: usize) -> String {
    clean_line(&text.0.unwrap_or_default(), max_bytes)
}

fn block(text: LenientString, max_bytes: usize) -> String {
    clean(&text.0.unwrap_or_default(), max_bytes)
}

fn lines(list: LenientList<LenientString>, max_bytes: usize) -> Vec<String> {
    let lines = list.items().map(|text| line(text, max_bytes)).filter(|text| !text.is_empty());
    lines.take(MAX_LIST).collect()
}

/// Returns a URL unchanged or not at all.
fn address(text: LenientString) -> Option<String> {
    text.filled().filter(|url| url.len() <= MAX_URL && url.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Takes the interfaces out of a card, and the members that reveal its version.
fn offers(card: &mut CardIn) -> (Vec<InterfaceCandidate>, VersionMarkers) {
    let slash = card.has_slash_members();
    let v0_1 = card.has_or_lacks_like_v0_1();
    let offers = std::mem::take(&mut card.supported_interfaces).items().take(MAX_OFFERS);
    let modern: Vec<InterfaceCandidate> = offers
        .filter_map(|offer| offer.0)
        .map(|offer| InterfaceCandidate {
            url: cut(offer.url.filled()).unwrap_or_default(),
            binding: version_word(offer.protocol_binding.filled()).unwrap_or_default(),
            tenant: cut(offer.tenant.filled()),
            version: version_word(offer.protocol_version.0),
        })
        .collect();
    let old = old_offers(card);
    let signs = VersionMarkers { modern: !modern.is_empty(), old: old.clone(), slash, v0_1 };
    (if modern.is_empty() { old } else { modern }, signs)
}

/// Returns the interfaces in the members from before 1.0: first the URL itself, then the others.
fn old_offers(card: &mut CardIn) -> Vec<InterfaceCandidate> {
    let Some(url) = cut(std::mem::take(&mut card.url).filled()) else { return Vec::new() };
    let version = version_word(std::mem::take(&mut card.protocol_version).0);
    let binding = version_word(std::mem::take(&mut card.preferred_transport).filled());
    let first = InterfaceCandidate {
        url,
        binding: binding.unwrap_or_else(|| "JSONRPC".to_owned()),
        tenant: None,
        version: version.clone(),
    };
    let others = std::mem::take(&mut card.additional_interfaces).items().take(MAX_OFFERS);
    let others = others.filter_map(|offer| offer.0).map(|offer| InterfaceCandidate {
        url: cut(offer.url.filled()).unwrap_or_default(),
        binding: version_word(offer.transport.filled()).unwrap_or_default(),
        tenant: None,
        version: version.clone(),
    });
    std::iter::once(first).chain(others).collect()
}

fn version_word(text: Option<String>) -> Option<String> {
    text.map(|text| clean_line(&text, MAX_VERSION)).filter(|text| !text.is_empty())
}

/// Returns a URL unchanged or not at all: a truncated one would be another URL.
fn cut(text: Option<String>) -> Option<String> {
    text.filter(|text| text.len() <= MAX_URL)
}
