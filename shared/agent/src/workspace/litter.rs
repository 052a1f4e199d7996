//! Files that stand in the folders of a workspace, and that nobody means as a part of it.

use dormouse_ports::KEPT_APART;

use super::load::FileContent;

/// What systems leave behind, in small letters.
const NAMES: [&str; 3] = [".ds_store", "desktop.ini", "thumbs.db"];
/// Beginnings of names: doubles of macOS, locks and copies of editors.
const BEGINNINGS: [&str; 2] = ["._", ".#"];
/// Endings of names: copies of editors and of merges, and what they write amid a change.
const ENDINGS: [&str; 6] = ["~", ".bak", ".orig", ".rej", ".swp", ".swo"];

/// Files in which programs look for passwords, tokens and keys, in small letters.
const SECRET_NAMES: [&str; 10] = [
    ".env",
    ".envrc",
    ".git-credentials",
    ".netrc",
    ".pgpass",
    ".pypirc",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
];
/// Endings of files with keys or variables.
const SECRET_ENDINGS: [&str; 6] = [".env", ".jks", ".keystore", ".p12", ".pfx", ".ppk"];
/// The ending of keys, also of presentations and of keys that anybody may know; what these two begin with.
const KEY_OR_NOT: &str = ".key";
const NO_SECRETS: [&[u8]; 8] = [
    b"PK\x03\x04",
    b"-----BEGIN PGP PUBLIC KEY BLOCK-----",
    b"-----BEGIN PUBLIC KEY-----",
    b"-----BEGIN RSA PUBLIC KEY-----",
    b"-----BEGIN CERTIFICATE-----",
    b"ssh-rsa ",
    b"ssh-ed25519 ",
    b"ecdsa-sha2-",
];
/// Endings of files in which a key may stand beside what anybody may know, and how the line above a key ends.
const KEY_ENDINGS: [&str; 3] = [".pem", ".crt", ".cer"];
const KEYS: [&[u8]; 2] = [b"PRIVATE KEY-----", b"PRIVATE KEY BLOCK-----"];
/// The last words of files that only show which variables there are.
const EXAMPLES: [&str; 5] = ["dist", "example", "sample", "schema", "template"];

/// True for a file that a system, an editor or a version control has left: it is not read, and not published.
pub(super) fn is_litter(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
    let is_kept_apart = path.split('/').any(|part| KEPT_APART.contains(&part));
    let begins = BEGINNINGS.iter().any(|beginning| name.starts_with(beginning));
    let ends = ENDINGS.iter().any(|ending| name.ends_with(ending));
    let is_unsaved = name.len() > 1 && name.starts_with('#') && name.ends_with('#');
    is_kept_apart || NAMES.contains(&name.as_str()) || begins || ends || is_unsaved
}

/// True for a file that looks as if it held passwords, tokens or keys, by its name or by a key in it.
pub fn looks_secret(path: &str, content: &FileContent) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
    let of_environment = |name: &str| {
        let kind = name.strip_prefix(".env.").map(|kind| kind.rsplit('.').next().unwrap_or(kind));
        kind.is_some_and(|kind| !EXAMPLES.contains(&kind))
    };
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    let holds = |is: fn(&[u8]) -> bool| match content {
        FileContent::Bytes(bytes) => is(bytes),
        // No key is as large, and nothing of it is published.
        FileContent::TooLarge(_) | FileContent::Unreadable(_) | FileContent::LeftOut(_) => false,
    };
    SECRET_NAMES.contains(&name.as_str())
        || of_environment(&name)
        || ends(&SECRET_ENDINGS)
        || (ends(&[KEY_OR_NOT]) && holds(may_be_key))
        || (ends(&KEY_ENDINGS) && holds(has_key))
}

/// True if a private key stands in a file that holds `bytes`.
fn has_key(bytes: &[u8]) -> bool {
    KEYS.iter().any(|key| bytes.windows(key.len()).any(|part| part == *key))
}

/// True unless a file that holds `bytes`, and is called a key, is known to be none that is secret: many are nothing but a word.
fn may_be_key(bytes: &[u8]) -> bool {
    let begins = |beginning: &&[u8]| bytes.trim_ascii_start().starts_with(beginning);
    !NO_SECRETS.iter().any(begins) || has_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_means_is_told_from_definitions_and_their_files() {
        for path in [
            ".openharness/.DS_Store",
            ".openharness/hooks/._guard.yaml",
            ".openharness/agents/assistant.md~",
            ".openharness/agents/assistant.md.orig",
            ".openharness/agents/.assistant.md.swp",
            ".openharness/agents/.#assistant.md",
            ".openharness/agents/#assistant.md#",
            ".openharness/skills/draw/.git/config",
            ".openharness/skills/draw/.git",
            "._AGENTS.md",
        ] {
            assert!(is_litter(path), "{path}");
        }
        for path in
            ["AGENTS.md", ".openharness/hooks/guard.yaml", ".openharness/actions/pay/.gitignore", "skills/a.b/c#"]
        {
            assert!(!is_litter(path), "{path}");
        }
    }

    #[test]
    fn what_holds_secrets_is_told_from_what_shows_how_they_are_called() {
        let bytes = |text: &str| FileContent::Bytes(text.as_bytes().to_vec());
        let folder = ".openharness/actions/pay";
        for name in [".env", ".ENV", ".env.local", "prod.env", "server.key", "id_rsa", ".netrc", "store.p12"] {
            assert!(looks_secret(&format!("{folder}/{name}"), &bytes("x")), "{name}");
        }
        for name in [".env.example", "env.py", "id_rsa.pub", "keys.md", "environment", "ca.pem", "pay.sh"] {
            assert!(!looks_secret(&format!("{folder}/{name}"), &bytes("-----BEGIN CERTIFICATE-----")), "{name}");
        }
        assert!(looks_secret("tls.pem", &bytes("-----BEGIN EC PRIVATE KEY-----\n")));
        let public = "\n-----BEGIN PGP PUBLIC KEY BLOCK-----\n";
        for content in [public, "PK\u{3}\u{4}slides", "ssh-ed25519 AAAA ada@desk\n", "-----BEGIN PUBLIC KEY-----\n"] {
            assert!(!looks_secret("skills/talk/a.key", &bytes(content)), "{content}");
        }
        for content in [
            "-----BEGIN OPENSSH PRIVATE KEY-----\n",
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\n",
            "# created: today\nAGE-SECRET-KEY-1",
            "0123456789abcdef",
            format!("{public}-----BEGIN PGP PRIVATE KEY BLOCK-----\n").as_str(),
        ] {
            assert!(looks_secret("skills/talk/a.key", &bytes(content)), "{content}");
        }
        assert!(!looks_secret("skills/talk/a.key", &FileContent::TooLarge(1 << 30)), "slides that are not published");
    }
}
