//! Suggests the name that was probably meant.

/// "; did you mean `limit`?" when a known name is similar, otherwise the list of known names.
pub fn suggestion(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None if known.is_empty() => "; nothing can be given here".to_string(),
        None => format!("; use one of {}", known.join(", ")),
    }
}

/// The name that was probably meant, if one is similar.
pub fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // Input may be long, and comparing takes time proportional to the product of both lengths.
    let name: String = name.chars().take(60).collect();
    let by_distance = known.iter().map(|other| (strsim::damerau_levenshtein(&name, other), *other)).min();
    by_distance.filter(|(distance, other)| *distance <= 1 + other.len() / 4).map(|(_, nearest)| nearest)
}

/// The message about an unknown name, with the one that was probably meant.
pub fn unknown(name: &str, known: &[&str]) -> String {
    format!("is not known{}", suggestion(name, known))
}
