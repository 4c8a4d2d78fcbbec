//! `manifests`: a folder in which every `*.json` is an agent, named by its `id`.

use std::path::{Path, PathBuf};

use super::load;
use crate::config::Agent;
use crate::config::agent::{AgentKeys, name_problem};
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, Spanned};

/// Most manifests in one folder.
const MAX_MANIFESTS: usize = 1000;

/// Returns the agents of the folder. Names that `taken` has, or that two manifests have, are
/// problems.
pub(in crate::config) fn agents(
    written: Spanned<String>,
    mut taken: Vec<String>,
    context: &mut ResolveContext<'_>,
) -> Vec<Agent> {
    let Some((place, folder)) = written.take() else { return Vec::new() };
    let folder = context.path(&folder);
    let files = match files(&folder) {
        Ok(files) => files,
        Err(problem) => {
            context.problem(&place, problem);
            return Vec::new();
        }
    };
    let mut agents = Vec::new();
    for file in files {
        let Some(agent) = agent(file, &taken, &place, context) else { continue };
        taken.push(agent.name.clone());
        agents.push(agent);
    }
    agents
}

fn agent(
    file: PathBuf,
    taken: &[String],
    place: &Location,
    context: &mut ResolveContext<'_>,
) -> Option<Agent> {
    let shown = file.display().to_string();
    let described = load(file, place, context)?;
    let name = name(&described.manifest.id);
    if let Some(problem) = name_problem(&name) {
        return context.report_conflict(place, format!("{shown}: /id: {problem}"));
    }
    if taken.contains(&name) {
        return context.report_conflict(place, format!("{shown}: /id: there is an agent {name} already"));
    }
    let keys = AgentKeys { section: place.clone(), ..AgentKeys::default() };
    keys.with(name, Some(described), context)
}

/// Converts an id to a name: lower case, other characters as `-`, at most 32.
fn name(id: &str) -> String {
    let fits = |each: char| each.is_ascii_alphanumeric() || matches!(each, '-' | '_');
    let name = id.chars().map(|each| if fits(each) { each.to_ascii_lowercase() } else { '-' });
    name.skip_while(|each| !each.is_ascii_alphanumeric()).take(32).collect()
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error| format!("cannot read {}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "json") && !path.is_dir() {
            files.push(path);
        }
        if files.len() > MAX_MANIFESTS {
            return Err(format!("{} holds more than {MAX_MANIFESTS} manifests", folder.display()));
        }
    }
    if files.is_empty() {
        return Err(format!("{} holds no manifest (a file *.json)", folder.display()));
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_becomes_a_name_of_an_agent() {
        for (id, expected) in [
            ("ventas-core", "ventas-core"),
            ("Ventas Core", "ventas-core"),
            ("urn:acme:Ventas_1", "urn-acme-ventas_1"),
            ("--ñandú", "and-"),
            ("a234567890123456789012345678901234567890", "a2345678901234567890123456789012"),
            ("…", ""),
        ] {
            assert_eq!(name(id), expected, "{id}");
        }
    }
}
