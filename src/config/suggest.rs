//! "Did you mean …?"

/// Returns ` (did you mean X?)` when a known name is similar enough, otherwise an empty text.
pub(super) fn did_you_mean<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> String {
    // A name is similar when at most a third of it differs.
    let patience = (written.chars().count() / 3).max(1);
    known
        .map(|name| (distance(written, name), name))
        .filter(|(distance, _)| *distance <= patience)
        .min()
        .map(|(_, name)| format!(" (did you mean {name}?)"))
        .unwrap_or_default()
}

/// Returns the number of letters to insert, remove or replace; upper case, `-` and `_` do not
/// count.
fn distance(one: &str, other: &str) -> usize {
    let plain = |text: &str| -> Vec<char> {
        text.chars().take(64).filter(|each| !matches!(each, '-' | '_')).flat_map(char::to_lowercase).collect()
    };
    let (one, other) = (plain(one), plain(other));
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, letter) in one.iter().enumerate() {
        let mut diagonal = above;
        let mut left = above + 1;
        let mut next = Vec::with_capacity(row.len());
        next.push(left);
        for (against, up) in other.iter().zip(row.iter().skip(1)) {
            left = (diagonal + usize::from(letter != against)).min(up + 1).min(left + 1);
            diagonal = *up;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        for (written, expected) in [
            ("listener", " (did you mean listeners?)"),
            ("publicUrl", " (did you mean public_url?)"),
            ("seal-key", " (did you mean seal_key?)"),
            ("agnets", " (did you mean agents?)"),
            ("zebra", ""),
            ("", ""),
        ] {
            let known = ["listeners", "public_url", "seal_key", "agents"];
            assert_eq!(did_you_mean(written, known.into_iter()), expected, "{written}");
        }
    }
}
