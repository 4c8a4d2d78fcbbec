//! The names of the tools.
//!
//! Hosts prepend a prefix to names, limit them to about sixty characters and often allow only
//! `[A-Za-z0-9_-]`; so names here have at most 50 of these. A name that is invalid, too long,
//! reserved or requested twice gets a suffix made from the agent and the skill, so that no card can
//! take the name of another agent's tool.

use std::borrow::Cow;
use std::collections::HashMap;

use sha2::{Digest, Sha256};

/// Maximum length of a tool name.
pub(crate) const MAX_TOOL_NAME_CHARS: usize = 50;

/// A tool's request for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameRequest<'a> {
    /// The agent's name in the configuration.
    pub(crate) agent: &'a str,
    /// The skill's id on the card; `None` for the one tool of an agent.
    pub(crate) skill: Option<&'a str>,
    /// The preferred name: `{agent}_{skill}` or `{skill}`.
    pub(crate) natural: String,
    /// The name that the operator assigned.
    pub(crate) given: Option<&'a str>,
}

/// Assigns a different name to each request, in the order of the requests.
///
/// Names of the operator are used as they are (the configuration ensures that they differ). The
/// result does not depend on the order of the requests.
pub(crate) fn assign(wishes: &[NameRequest<'_>]) -> Vec<String> {
    let mut names: Vec<String> = wishes.iter().map(first_choice).collect();
    // A name with a suffix can equal a natural one that imitates it; then that one gets a suffix
    // too.
    for _ in 0..3 {
        let mut wanted: HashMap<&str, usize> = HashMap::new();
        for name in &names {
            *wanted.entry(name).or_default() += 1;
        }
        let clashes: Vec<bool> = names.iter().map(|name| wanted.get(name.as_str()) > Some(&1)).collect();
        if !clashes.contains(&true) {
            return names;
        }
        for ((name, wish), clash) in names.iter_mut().zip(wishes).zip(clashes) {
            if clash && wish.given.is_none() {
                *name = suffixed(wish);
            }
        }
    }
    names
}

fn first_choice(wish: &NameRequest<'_>) -> String {
    match wish.given {
        Some(given) => given.to_owned(),
        None if is_plain(&wish.natural) && !is_reserved(&wish.natural) => wish.natural.clone(),
        None => suffixed(wish),
    }
}

/// Maximum length of a name made from a skill's title.
const MAX_TITLE: usize = 32;

/// Returns the id of a skill, or a name made from its title if the id was generated (a UUID, a
/// hash): such an id means nothing to a model.
pub(crate) fn readable_name<'a>(id: &'a str, title: &str) -> Cow<'a, str> {
    if !is_generated(id) {
        return Cow::Borrowed(id);
    }
    let mut name = String::with_capacity(MAX_TITLE);
    for letter in title.chars() {
        if letter.is_ascii_alphanumeric() {
            name.push(letter.to_ascii_lowercase());
        } else if !name.is_empty() && !name.ends_with('_') {
            name.push('_');
        }
        if name.len() >= MAX_TITLE {
            break;
        }
    }
    let name = name.trim_end_matches('_');
    if name.is_empty() { Cow::Borrowed(id) } else { Cow::Owned(name.to_owned()) }
}

/// Returns true for a UUID, a hexadecimal number of 16 digits or more, and a ULID.
fn is_generated(id: &str) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_uuid = id.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && id.split('-').all(is_hex);
    let has_digit = id.bytes().any(|byte| byte.is_ascii_digit());
    let is_number = id.len() >= 16 && is_hex(id) && has_digit;
    let is_ulid = id.len() == 26
        && has_digit
        && id.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    is_uuid || is_number || is_ulid
}

/// Returns true if a name can be used as it is.
pub(crate) fn is_plain(name: &str) -> bool {
    (1..=MAX_TOOL_NAME_CHARS).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// Returns true if the name is reserved for built-in tools.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with("subagent_") || name == "find_agent"
}

fn suffixed(wish: &NameRequest<'_>) -> String {
    let mut hash = Sha256::new();
    hash.update(wish.agent);
    hash.update([0]);
    hash.update(wish.skill.unwrap_or_default());
    let tail: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let clean = wish.natural.chars().map(|letter| match letter {
        'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' => letter,
        _ => '_',
    });
    let head: String = clean.take(MAX_TOOL_NAME_CHARS - tail.len() - 1).collect();
    let head = if is_reserved(&head) {
        format!("x_{head}").chars().take(MAX_TOOL_NAME_CHARS - tail.len() - 1).collect()
    } else {
        head
    };
    format!("{head}_{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish<'a>(agent: &'a str, skill: &'a str) -> NameRequest<'a> {
        NameRequest { agent, skill: Some(skill), natural: format!("{agent}_{skill}"), given: None }
    }

    #[test]
    fn a_good_name_stays() {
        assert_eq!(assign(&[wish("weather", "forecast")]), ["weather_forecast"]);
    }

    #[test]
    fn bad_long_and_reserved_names_get_a_suffix() {
        let long = "x".repeat(80);
        for skill in ["a b", "é", "a.b/c", long.as_str(), ""] {
            let name = assign(&[NameRequest { natural: skill.into(), ..wish("w", skill) }]).remove(0);
            assert!(is_plain(&name) && name.len() <= MAX_TOOL_NAME_CHARS, "{skill} → {name}");
            assert_ne!(name, skill);
        }
        for reserved in ["subagent_start", "find_agent"] {
            let name = assign(&[NameRequest { natural: reserved.into(), ..wish("w", reserved) }]).remove(0);
            assert!(is_plain(&name) && !is_reserved(&name), "{name}");
        }
    }

    #[test]
    fn generated_ids_give_way_to_titles() {
        for (id, title, expected) in [
            ("123e4567-e89b-12d3-a456-426614174000", "Weather (daily)", "weather_daily"),
            ("d41d8cd98f00b204e9800998ecf8427e", "Wetter für heute", "wetter_f_r_heute"),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "x", "x"),
            ("123e4567-e89b-12d3-a456-426614174000", "天気", "123e4567-e89b-12d3-a456-426614174000"),
            ("forecast", "Weather", "forecast"),
            ("deadbeef", "Weather", "deadbeef"),
            ("daily-forecast-2026-for-all", "Weather", "daily-forecast-2026-for-all"),
        ] {
            assert_eq!(readable_name(id, title), expected, "{id}");
        }
    }

    #[test]
    fn no_card_can_take_the_name_of_another_agents_tool() {
        let names = assign(&[wish("a", "b_c"), wish("a_b", "c")]);
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name != "a_b_c"));
        let imitation = names[0].strip_prefix("a_").unwrap().to_owned();
        let names = assign(&[wish("a", "b_c"), wish("a_b", "c"), wish("a", &imitation)]);
        assert_eq!(names.iter().collect::<std::collections::HashSet<_>>().len(), 3, "{names:?}");
    }

    #[test]
    fn names_do_not_depend_on_the_order() {
        let one = assign(&[wish("a", "b_c"), wish("a_b", "c"), wish("z", "q")]);
        let mut other = assign(&[wish("z", "q"), wish("a_b", "c"), wish("a", "b_c")]);
        other.reverse();
        assert_eq!(one, other);
    }

    #[test]
    fn the_operator_is_obeyed() {
        let given = NameRequest { given: Some("mine"), ..wish("a", "b") };
        let other = NameRequest { natural: "mine".into(), ..wish("c", "d") };
        let names = assign(&[given, other]);
        assert_eq!(names[0], "mine");
        assert_ne!(names[1], "mine");
    }
}
