//! Errors a user meets: bad input ends with exit code 2, anything else with 1.

use std::fmt::Display;
use std::path::Path;

/// Input that cannot be used: what, where, what would be right, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadInput(pub String);

impl Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// Shorthand for an error of this kind.
pub fn bad(message: impl Into<String>) -> anyhow::Error {
    BadInput(message.into()).into()
}

/// A file that cannot be written: bad input if its place cannot be one, but not on a full disk.
pub fn unwritable(path: &Path, error: &std::io::Error) -> anyhow::Error {
    use std::io::ErrorKind as Kind;
    let message = format!("cannot write {}: {error}", path.display());
    match error.kind() {
        Kind::NotFound | Kind::NotADirectory | Kind::IsADirectory | Kind::PermissionDenied => {
            bad(message)
        }
        _ => anyhow::anyhow!(message),
    }
}

/// The known name nearest to a mistyped one, as ` (did you mean ...?)`, if one is near.
pub fn did_you_mean<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let nearest = known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(wrong, name), name))
        .min()
        .filter(|(distance, _)| *distance <= 1 + wrong.len() / 4);
    nearest.map(|(_, name)| format!(" (did you mean {name}?)")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let known = ["model.heads", "model.dim"];
        assert_eq!(did_you_mean("model.head", known), " (did you mean model.heads?)");
        assert_eq!(did_you_mean("train.rate", known), "");
    }
}
