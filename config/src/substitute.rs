//! `${NAME}`, `${NAME:-default}` and `${file:/path}` inside text values.
//!
//! Works on the parsed tree, never on the file's text: what a variable holds can change a value, not the structure. The result is not looked at again,
//! so a password may contain `${`. `$${` in the file stands for a literal `${`.

use std::fs;

use serde_yaml_ng::Value as Yaml;

use crate::{environment::Environment, error::Problem};

pub(crate) fn substitute(tree: &mut Yaml, environment: &Environment) -> Vec<Problem> {
    let mut problems = Vec::new();
    walk(tree, &mut Vec::new(), environment, &mut problems);
    problems
}

fn walk(node: &mut Yaml, path: &mut Vec<String>, environment: &Environment, problems: &mut Vec<Problem>) {
    match node {
        Yaml::String(text) if text.contains("${") => match expand(text, environment) {
            Ok(expanded) => *text = expanded,
            Err(message) => problems.push(Problem::new(path.join("."), message)),
        },
        Yaml::Mapping(mapping) => {
            for (key, value) in mapping.iter_mut() {
                path.push(key.as_str().unwrap_or("?").to_owned());
                walk(value, path, environment, problems);
                path.pop();
            }
        }
        Yaml::Sequence(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                path.push(index.to_string());
                walk(item, path, environment, problems);
                path.pop();
            }
        }
        Yaml::Tagged(tagged) => walk(&mut tagged.value, path, environment, problems),
        Yaml::Null | Yaml::Bool(_) | Yaml::Number(_) | Yaml::String(_) => {}
    }
}

fn expand(text: &str, environment: &Environment) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, reference) = rest.split_at(start);
        let reference = &reference[2..];
        if let Some(literal) = before.strip_suffix('$') {
            out.push_str(literal);
            out.push_str("${");
            rest = reference;
            continue;
        }
        out.push_str(before);
        let end = reference.find('}').ok_or("has `${` without `}`; write `$${` for a literal `${`")?;
        out.push_str(&resolve(&reference[..end], environment)?);
        rest = &reference[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn resolve(reference: &str, environment: &Environment) -> Result<String, String> {
    if let Some(path) = reference.strip_prefix("file:") {
        let content = fs::read_to_string(path)
            .map_err(|error| format!("refers to the file {path}, which cannot be read: {error}"))?;
        // Editors and `kubectl create secret` end files with a line break that is not part of the secret.
        return Ok(content.trim_end_matches(['\n', '\r']).to_owned());
    }
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("has `${{{reference}}}`, which is none of ${{NAME}}, ${{NAME:-default}}, ${{file:/path}}"));
    }
    match (environment.get(name), default) {
        // As in a shell: `:-` also replaces an empty value.
        (Some(""), Some(default)) => Ok(default.to_owned()),
        (Some(value), _) => Ok(value.to_owned()),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!(
            "needs the environment variable {name}, which is not set; set it or write ${{{name}:-default}}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_once_and_escapes_stay() {
        let environment = Environment::empty().with("USER", "ann").with("ODD", "${USER}").with("EMPTY", "");
        for (text, expected) in [
            ("${USER}", "ann"),
            ("a-${USER}-${USER}", "a-ann-ann"),
            ("${ODD}", "${USER}"),
            ("${NONE:-x y}", "x y"),
            ("${EMPTY:-x}", "x"),
            ("${EMPTY}", ""),
            ("$${USER}", "${USER}"),
            ("5$ and ${USER}", "5$ and ann"),
        ] {
            assert_eq!(expand(text, &environment).as_deref(), Ok(expected), "{text}");
        }
        for text in ["${NONE}", "${USER", "${}", "${a b}", "${file:/nowhere/at/all}"] {
            assert!(expand(text, &environment).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_is_read_without_its_last_line_break() {
        let file = tempfile::NamedTempFile::new().expect("temp file");
        fs::write(file.path(), "two\nlines\n").expect("write");
        let text = format!("${{file:{}}}", file.path().display());
        assert_eq!(expand(&text, &Environment::empty()).as_deref(), Ok("two\nlines"));
    }
}
