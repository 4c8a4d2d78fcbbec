//! What one version of A2A requires of a card and another does without, so that the readers of every version's SDKs take it.
//!
//! What is there stays as it is; `null` counts as absent, as those readers refuse it where a member is required. Not here: addresses and
//! security, which are the gateway's (see `card`).

use crate::a2a::Dialect;
use crate::gateway::json_object::RawObject;

/// Where 1.0 and 0.3 say whether there is another card for those who prove who they are.
const EXTENDED: &str = "extendedAgentCard";
const OLD_EXTENDED: &str = "supportsAuthenticatedExtendedCard";

/// Puts in what is missing, skills apart.
pub(super) fn complete(card: &mut RawObject) {
    for name in ["name", "description", "version"] {
        set_default(card, name, "\"\"");
    }
    // What 0.1 says that their absence means.
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

/// The same for one skill; `None` if it has no id, without which no version has skills.
pub(super) fn complete_skill(skill: &mut RawObject) -> Option<()> {
    let id = skill.text("id").filter(|id| !id.is_empty())?;
    if is_absent(skill, "name") {
        skill.insert_or_replace("name", &id);
    }
    set_default(skill, "description", "\"\"");
    set_default(skill, "tags", "[]");
    Some(())
}

/// Makes what an agent can fit those who read of it: 0.3 and 1.0 say the same of another card for those who prove who they are, which is
/// what the agent's own version says, and what only older versions have is not shown to 1.0 alone.
pub(super) fn fit_capabilities(card: &mut RawObject, agent: Dialect, clients: &[Dialect]) {
    let Some(mut can) = inner(card, "capabilities") else { return };
    let (new, old) = (flag(&can, EXTENDED), flag(card, OLD_EXTENDED));
    let has = match agent {
        Dialect::V1 => new.or(old),
        Dialect::V0_3 => old.or(new),
        // There is no way to ask for it.
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

/// Puts in JSON where there is none.
fn set_default(members: &mut RawObject, name: &str, json: &str) {
    if is_absent(members, name)
        && let Ok(json) = serde_json::from_str(json)
    {
        members.set(name, json);
    }
}
