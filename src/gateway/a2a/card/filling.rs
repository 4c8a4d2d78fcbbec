//! Members that one version of A2A requires in a card and another does not, so that the SDKs of
//! every version accept the card.
//!
//! Existing members stay as they are; `null` counts as absent, as those SDKs reject it for a
//! required member. See also `card` for URLs and security, which the gateway sets.

use crate::a2a::Dialect;
use crate::gateway::json_object::RawObject;

/// Members of 1.0 and 0.3 for the existence of an extended card, which requires authentication.
const EXTENDED: &str = "extendedAgentCard";
const OLD_EXTENDED: &str = "supportsAuthenticatedExtendedCard";

/// Adds missing members, except those of skills.
pub(super) fn complete(card: &mut RawObject) {
    for name in ["name", "description", "version"] {
        set_default(card, name, "\"\"");
    }
    // The defaults that 0.1 defines for absent members.
    for name in ["defaultInputModes", "defaultOutputModes"] {
        set_default(card, name, r#"["text/plain"]"#);
    }
    set_default(card, "capabilities", "{}");
    set_default(card, "skills", "[]");
    if let Some(mut provider) = inner(card, "provider") {
        set_default(&mut provider, "organization", "\"\"");
        set_default(&mut provider, "url", "\"\"");
        card.set("provider", provider.written());
    }
}

/// Adds missing members of one skill; `None` if it has no id, which every version requires.
pub(super) fn complete_skill(skill: &mut RawObject) -> Option<()> {
    let id = skill.text("id").filter(|id| !id.is_empty())?;
    if is_absent(skill, "name") {
        skill.insert_or_replace("name", &id);
    }
    set_default(skill, "description", "\"\"");
    set_default(skill, "tags", "[]");
    Some(())
}

/// Adapts the capabilities to the clients: the flag for an extended card gets the value from the
/// agent's own version in the forms of 0.3 and 1.0, and a member of older versions is hidden from
/// clients of 1.0 alone.
pub(super) fn fit_capabilities(card: &mut RawObject, agent: Dialect, clients: &[Dialect]) {
    let Some(mut can) = inner(card, "capabilities") else { return };
    let (new, old) = (flag(&can, EXTENDED), flag(card, OLD_EXTENDED));
    let has = match agent {
        Dialect::V1 => new.or(old),
        Dialect::V0_3 => old.or(new),
        // 0.1 has no extended card.
        Dialect::V0_1 => None,
    };
    can.remove(EXTENDED);
    card.remove(OLD_EXTENDED);
    if let Some(has) = has {
        if clients.contains(&Dialect::V1) {
            can.insert_or_replace(EXTENDED, &has);
        }
        if clients.contains(&Dialect::V0_3) {
            card.insert_or_replace(OLD_EXTENDED, &has);
        }
    }
    if clients.iter().all(|client| *client == Dialect::V1) {
        can.remove("stateTransitionHistory");
    }
    card.set("capabilities", can.written());
}

fn inner(members: &RawObject, name: &str) -> Option<RawObject> {
    members.find(name).and_then(|value| RawObject::read(value.get()))
}

fn flag(members: &RawObject, name: &str) -> Option<bool> {
    serde_json::from_str(members.find(name)?.get()).ok()
}

fn is_absent(members: &RawObject, name: &str) -> bool {
    members.find(name).is_none_or(|value| value.get() == "null")
}

/// Sets a member to this JSON if it is absent.
fn set_default(members: &mut RawObject, name: &str, json: &str) {
    if is_absent(members, name)
        && let Ok(json) = serde_json::from_str(json)
    {
        members.set(name, json);
    }
}
