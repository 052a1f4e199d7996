//! A file with secrets of vaults, each sealed on its own: who has the file and not the key has their names.
//!
//! A secret is called `TENANT.NAME`, and sealed under that name: what stands under another one does not open.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use aes_siv::siv::Aes256Siv;
use aes_siv::{Key, KeyInit};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dormouse_ports::{Secret, SecretError, Secrets};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha512};

use crate::locks::alone_with;

/// The variable that names the file.
const FILE: &str = "DORMOUSE_VAULT_FILE";
/// The variable with its key, and the one that names a file with it.
const KEY: &str = "DORMOUSE_VAULT_KEY";
const KEY_FILE: &str = "DORMOUSE_VAULT_KEY_FILE";

/// Separates this key from everything else that is made of the same digits.
const DOMAIN: &[u8] = b"dormouse vault file 1\0";
/// Number of hexadecimal digits of a key.
const DIGITS: usize = 64;
/// The rights of others than the owner of a file.
#[cfg(unix)]
const OTHERS: u32 = 0o077;
/// The form of the file.
const FORM: u32 = 1;

/// A file of sealed secrets, and the key that opens it.
#[derive(Clone)]
pub struct SealedVault {
    path: PathBuf,
    key: Key<Aes256Siv>,
}

/// The file as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedFile {
    form: u32,
    /// What is sealed, in Base64, by the names of the secrets.
    secrets: BTreeMap<String, String>,
}

/// Error of a file of sealed secrets. None of them shows a value or a key.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The key is none.
    #[error("the key of the vault file has to be {DIGITS} hexadecimal digits: `openssl rand -hex 32` makes one")]
    Key,
    /// The file is named without a key, or with two.
    #[error(
        "{FILE} names a file of sealed secrets: give its key as {KEY}, or a file with it as {KEY_FILE}, and not both"
    )]
    KeyMissing,
    /// Others than its owner can read the file with the key.
    #[error("{0} holds the key of the vault file, and others than its owner can read it: chmod 600 {0}")]
    KeyIsOpen(String),
    /// No file is named.
    #[error("name the file of sealed secrets: {FILE}=vaults.sealed")]
    FileMissing,
    /// Something does not open.
    #[error("`{name}` in {path} does not open: it was sealed with another key or under another name, or was changed")]
    Shut {
        /// The file.
        path: String,
        /// Name of the secret.
        name: String,
    },
    /// The file is damaged.
    #[error("{0} is no file of sealed secrets, or is damaged")]
    Damaged(String),
    /// A name that no vault asks for.
    #[error("`{0}` is no name of a secret: expected TENANT.NAME, and letters, digits and _ for the name")]
    Name(String),
    /// The operating system refuses.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// Its reason.
        error: io::Error,
    },
}

impl fmt::Debug for SealedVault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedVault").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SealedVault {
    /// The file at `path`, opened with `key`. The file may not be there yet.
    ///
    /// # Errors
    /// [`VaultError::Key`].
    pub fn new(path: impl Into<PathBuf>, key: &Secret) -> Result<Self, VaultError> {
        let digits = key.expose().trim();
        let bytes = hex::decode(digits).ok().filter(|_| digits.len() == DIGITS).ok_or(VaultError::Key)?;
        let key = Sha512::new().chain_update(DOMAIN).chain_update(bytes).finalize();
        Ok(Self { path: path.into(), key })
    }

    /// The file that variables name, read through `look_up`; `None` where they name none. An empty variable is a missing one.
    ///
    /// # Errors
    /// [`VaultError`] when it is named without a key, or its key cannot be had or is no secret.
    pub fn from_variables(look_up: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, VaultError> {
        let look_up = |name: &str| look_up(name).filter(|value| !value.trim().is_empty());
        let Some(file) = look_up(FILE) else { return Ok(None) };
        let key = match (look_up(KEY), look_up(KEY_FILE)) {
            (Some(key), None) => key,
            (None, Some(path)) => key_in(Path::new(&path))?,
            (Some(_), Some(_)) | (None, None) => return Err(VaultError::KeyMissing),
        };
        Self::new(file, &Secret::new(key)).map(Some)
    }

    /// The same, for who needs it.
    ///
    /// # Errors
    /// As [`from_variables`](Self::from_variables), and where they name none.
    pub fn of_environment() -> Result<Self, VaultError> {
        Self::from_variables(|name| std::env::var(name).ok())?.ok_or(VaultError::FileMissing)
    }

    /// Names of the secrets.
    ///
    /// # Errors
    /// [`VaultError`] when the file cannot be read.
    pub fn names(&self) -> Result<Vec<String>, VaultError> {
        Ok(self.sealed()?.secrets.into_keys().collect())
    }

    /// Keeps `value` as `name`, in place of what stood there.
    ///
    /// # Errors
    /// [`VaultError`]; also when the others in the file do not open with this key. It is as it was then.
    pub fn put(&self, name: &str, value: &Secret) -> Result<(), VaultError> {
        if !is_name(name) {
            return Err(VaultError::Name(name.to_owned()));
        }
        let _alone = self.alone()?;
        let mut sealed = self.sealed()?;
        for (other, content) in &sealed.secrets {
            self.opened(other, content)?;
        }
        let content = Aes256Siv::new(&self.key).encrypt([DOMAIN, name.as_bytes()], value.expose().as_bytes());
        let content = content.map_err(|_| VaultError::Damaged(self.told()))?;
        sealed.secrets.insert(name.to_owned(), URL_SAFE_NO_PAD.encode(content));
        self.write(&sealed)
    }

    /// Removes `name`; false if it was not there.
    ///
    /// # Errors
    /// [`VaultError`] when the file cannot be read or written.
    pub fn remove(&self, name: &str) -> Result<bool, VaultError> {
        let _alone = self.alone()?;
        let mut sealed = self.sealed()?;
        if sealed.secrets.remove(name).is_none() {
            return Ok(false);
        }
        self.write(&sealed).map(|()| true)
    }

    fn opened(&self, name: &str, content: &str) -> Result<Secret, VaultError> {
        let shut = || VaultError::Shut { path: self.told(), name: name.to_owned() };
        let bytes = URL_SAFE_NO_PAD.decode(content).map_err(|_| shut())?;
        let opened = Aes256Siv::new(&self.key).decrypt([DOMAIN, name.as_bytes()], &bytes).map_err(|_| shut())?;
        String::from_utf8(opened.to_vec()).map(Secret::new).map_err(|_| shut())
    }

    fn sealed(&self) -> Result<SealedFile, VaultError> {
        let Some(text) = read(&self.path)? else { return Ok(SealedFile { form: FORM, secrets: BTreeMap::new() }) };
        let sealed: SealedFile = serde_json::from_str(&text).map_err(|_| VaultError::Damaged(self.told()))?;
        if sealed.form == FORM { Ok(sealed) } else { Err(VaultError::Damaged(self.told())) }
    }

    /// The right to change the file: of two who change it at once, neither loses what the other wrote.
    fn alone(&self) -> Result<File, VaultError> {
        alone_with(&self.path).map_err(|error| VaultError::Io { path: self.told(), error })
    }

    /// In place of the file that is there, whole or not at all, and for this user alone.
    fn write(&self, sealed: &SealedFile) -> Result<(), VaultError> {
        let failed = |error| VaultError::Io { path: self.told(), error };
        let text = serde_json::to_vec_pretty(sealed).map_err(|error| failed(error.into()))?;
        let beside = self.path.with_extension("new");
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&beside).map_err(failed)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
        std::fs::rename(&beside, &self.path).map_err(failed)
    }

    fn told(&self) -> String {
        self.path.display().to_string()
    }
}

#[async_trait]
impl Secrets for SealedVault {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        let missing = || SecretError::Missing(name.to_owned());
        let away = |error: VaultError| SecretError::Unavailable(error.to_string());
        let sealed = self.sealed().map_err(away)?;
        let content = sealed.secrets.get(name).ok_or_else(missing)?;
        self.opened(name, content).map_err(away)
    }
}

/// True if a vault asks for a secret by such a name.
fn is_name(name: &str) -> bool {
    let is_secret = |name: &str| {
        (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    name.rsplit_once('.').is_some_and(|(tenant, name)| dormouse_api::keys::is_name(tenant) && is_secret(name))
}

/// The key in the file at `path`, which has to be its owner's alone.
fn key_in(path: &Path) -> Result<String, VaultError> {
    let missing = || VaultError::Io { path: path.display().to_string(), error: io::ErrorKind::NotFound.into() };
    let key = read(path)?.ok_or_else(missing)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let told = || path.display().to_string();
        let mode =
            std::fs::metadata(path).map_err(|error| VaultError::Io { path: told(), error })?.permissions().mode();
        if mode & OTHERS != 0 {
            return Err(VaultError::KeyIsOpen(told()));
        }
    }
    Ok(key)
}

/// The text of the file at `path`, if it is there.
fn read(path: &Path) -> Result<Option<String>, VaultError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(VaultError::Damaged(path.display().to_string()))
        }
        Err(error) => Err(VaultError::Io { path: path.display().to_string(), error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(digit: char) -> Secret {
        Secret::new(digit.to_string().repeat(DIGITS))
    }

    fn vault(folder: &tempfile::TempDir) -> SealedVault {
        SealedVault::new(folder.path().join("vaults.sealed"), &key('1')).expect("a key")
    }

    #[tokio::test]
    async fn a_secret_comes_back_and_its_value_is_not_in_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let vault = vault(&folder);
        assert_eq!(vault.resolve("acme.HOOK").await, Err(SecretError::Missing("acme.HOOK".to_owned())));
        vault.put("acme.HOOK", &Secret::new("hush, hush")).expect("it is kept");
        vault.put("acme.HOOK", &Secret::new("hush, again")).expect("it is kept");
        vault.put("a.b.OTHER", &Secret::new("mouse")).expect("it is kept");
        assert_eq!(vault.resolve("acme.HOOK").await.expect("it opens").expose(), "hush, again");
        assert_eq!(vault.names().expect("it is read"), ["a.b.OTHER", "acme.HOOK"]);
        let text = std::fs::read_to_string(folder.path().join("vaults.sealed")).expect("a file");
        assert!(!text.contains("hush") && !text.contains("mouse") && !text.contains("111"), "{text}");
        assert!(!format!("{vault:?}").contains("111"));
        assert!(vault.remove("acme.HOOK").expect("it is written") && !vault.remove("acme.HOOK").expect("it is read"));
        assert_eq!(vault.resolve("acme.HOOK").await, Err(SecretError::Missing("acme.HOOK".to_owned())));
        for name in ["acme", "acme.", ".HOOK", "acme.A-B", "ac me.HOOK", "acme.HOOK\n"] {
            assert!(matches!(vault.put(name, &Secret::new("x")), Err(VaultError::Name(_))), "{name:?}");
        }
    }

    #[tokio::test]
    async fn what_many_seal_at_once_is_all_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let vault = vault(&folder);
        std::thread::scope(|scope| {
            for number in 0..16 {
                let vault = &vault;
                scope.spawn(move || vault.put(&format!("acme.S{number}"), &Secret::new(format!("hush {number}"))));
            }
        });
        assert_eq!(vault.names().expect("it is read").len(), 16);
        assert_eq!(vault.resolve("acme.S7").await.expect("it opens").expose(), "hush 7");
    }

    #[cfg(unix)]
    #[test]
    fn the_file_is_for_one_user() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        vault(&folder).put("acme.HOOK", &Secret::new("hush")).expect("it is kept");
        let mode = std::fs::metadata(folder.path().join("vaults.sealed")).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test]
    async fn another_key_opens_nothing_and_adds_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        vault(&folder).put("acme.HOOK", &Secret::new("hush")).expect("it is kept");
        let other = SealedVault::new(folder.path().join("vaults.sealed"), &key('2')).expect("a key");
        let refused = other.resolve("acme.HOOK").await.expect_err("another key");
        assert!(matches!(&refused, SecretError::Unavailable(why) if why.contains("another key")), "{refused}");
        let before = std::fs::read(folder.path().join("vaults.sealed")).expect("a file");
        assert!(matches!(other.put("acme.NEW", &Secret::new("x")), Err(VaultError::Shut { .. })));
        assert_eq!(std::fs::read(folder.path().join("vaults.sealed")).expect("a file"), before);
    }

    #[tokio::test]
    async fn what_was_changed_or_moved_to_another_tenant_does_not_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let vault = vault(&folder);
        vault.put("acme.HOOK", &Secret::new("hush")).expect("it is kept");
        let path = folder.path().join("vaults.sealed");
        let whole = std::fs::read_to_string(&path).expect("a file");
        std::fs::write(&path, whole.replace("acme.HOOK", "evil.HOOK")).expect("a file");
        let refused = vault.resolve("evil.HOOK").await.expect_err("it is another tenant's");
        assert!(matches!(&refused, SecretError::Unavailable(why) if !why.contains("hush")), "{refused}");
        assert_eq!(vault.resolve("acme.HOOK").await, Err(SecretError::Missing("acme.HOOK".to_owned())));
        let sealed: SealedFile = serde_json::from_str(&whole).expect("its form");
        let content = URL_SAFE_NO_PAD.decode(&sealed.secrets["acme.HOOK"]).expect("Base64");
        for place in 0..content.len() {
            let mut changed = content.clone();
            changed[place] ^= 1;
            let secrets = BTreeMap::from([("acme.HOOK".to_owned(), URL_SAFE_NO_PAD.encode(&changed))]);
            std::fs::write(&path, serde_json::to_string(&SealedFile { form: FORM, secrets }).expect("JSON"))
                .expect("a file");
            assert!(matches!(vault.resolve("acme.HOOK").await, Err(SecretError::Unavailable(_))), "byte {place}");
        }
        for spoilt in ["", "{}", "[]", &whole[..whole.len() / 2], &whole.replace("\"form\": 1", "\"form\": 2")] {
            std::fs::write(&path, spoilt).expect("a file");
            assert!(matches!(vault.resolve("acme.HOOK").await, Err(SecretError::Unavailable(_))), "{spoilt:?}");
            assert!(vault.put("acme.NEW", &Secret::new("x")).is_err(), "what is there is not lost: {spoilt:?}");
        }
    }

    #[test]
    fn variables_name_the_file_and_one_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let key_file = folder.path().join("key");
        std::fs::write(&key_file, format!("{}\n", key('3').expose())).expect("a file");
        allow(&key_file, 0o600);
        let key_file = key_file.to_str().expect("a path");
        let read = |variables: &[(&str, &str)]| {
            let of =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            SealedVault::from_variables(of)
        };
        let digits = key('3');
        let digits = digits.expose();
        assert!(read(&[]).expect("nothing is asked for").is_none());
        assert!(read(&[(FILE, ""), (KEY, digits)]).expect("nothing is asked for").is_none());
        assert!(read(&[(FILE, "f"), (KEY, digits), (KEY_FILE, " ")]).expect("a key").is_some());
        let nowhere = read(&[(FILE, "f"), (KEY_FILE, "no/such/key")]).expect_err("there is none").to_string();
        assert!(nowhere.starts_with("no/such/key: "), "{nowhere}");
        let of_file = read(&[(FILE, "f"), (KEY_FILE, key_file)]).expect("a key").expect("a vault");
        assert_eq!(of_file.key, read(&[(FILE, "f"), (KEY, digits)]).expect("a key").expect("a vault").key);
        for wrong in
            [&[(FILE, "f")][..], &[(FILE, "f"), (KEY, digits), (KEY_FILE, key_file)], &[(FILE, "f"), (KEY, "abc")]]
        {
            let refused = read(wrong).expect_err("it is refused");
            assert!(matches!(refused, VaultError::Key | VaultError::KeyMissing), "{refused}");
        }
    }

    #[cfg(unix)]
    fn allow(path: &Path, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is our file");
    }

    #[cfg(not(unix))]
    fn allow(_: &Path, _: u32) {}

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let key_file = folder.path().join("key");
        std::fs::write(&key_file, key('3').expose()).expect("a file");
        let read = || {
            let path = key_file.display().to_string();
            SealedVault::from_variables(|name| match name {
                FILE => Some("f".to_owned()),
                KEY_FILE => Some(path.clone()),
                _ => None,
            })
        };
        for open in [0o640, 0o604, 0o622, 0o611] {
            allow(&key_file, open);
            let refused = read().expect_err("it is no secret").to_string();
            assert!(refused.ends_with(&format!("chmod 600 {}", key_file.display())), "{open:o}: {refused}");
            assert!(!refused.contains("333"), "{refused}");
        }
        for closed in [0o600, 0o400] {
            allow(&key_file, closed);
            assert!(read().expect("a key").is_some(), "{closed:o}");
        }
    }
}
