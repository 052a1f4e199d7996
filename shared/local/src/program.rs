use std::path::Path;

/// The name under which this program is called in commands that are shown to be pasted: `dormouse`, or the path of a
/// program of other agents as it was started.
pub fn program() -> String {
    called(&std::env::args().next().unwrap_or_default())
}

fn called(path: &str) -> String {
    match Path::new(path).file_stem().and_then(|name| name.to_str()) {
        None | Some("dormouse") => "dormouse".to_owned(),
        Some(_) if path.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter)) => {
            path.to_owned()
        }
        Some(_) => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_called_as_it_was_started() {
        for (path, name) in [
            ("", "dormouse"),
            ("target/debug/dormouse", "dormouse"),
            ("dormouse", "dormouse"),
            ("target/debug/leave", "target/debug/leave"),
            ("my agents/leave", "'my agents/leave'"),
        ] {
            assert_eq!(called(path), name);
        }
    }
}
