//! The sealed file of vaults, as an operator fills it and a connector of `/v1` uses it.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use tempfile::TempDir;

use crate::access::post;
use crate::folder;
use crate::process::{Dormouse, program, text};

const SECRET: &str = "hush, says the mouse";

/// A folder with a key and, once something is sealed, a vault file.
struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new() -> Self {
        let desk = Self { folder: folder() };
        desk.keep_key("key", '7');
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn keep_key(&self, name: &str, digit: char) {
        std::fs::write(self.path(name), format!("{}\n", digit.to_string().repeat(64))).expect("a file");
        allow(&self.path(name), 0o600);
    }

    /// `dormouse vault` with `arguments` and the key in the file `key`, told `input`.
    fn vault(&self, key: &str, arguments: &[&str], input: &str) -> Output {
        let mut command = program();
        command.arg("vault").args(arguments);
        command.env("DORMOUSE_VAULT_FILE", self.path("vaults.sealed")).env("DORMOUSE_VAULT_KEY_FILE", self.path(key));
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        // A command that refuses does not read it.
        let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
        child.wait_with_output().expect("it ends")
    }

    /// `dormouse dev`, which may read the vault file.
    fn serve(&self) -> Dormouse {
        let leaked = |name: &str| -> &'static str { self.path(name).display().to_string().leak() };
        let environment =
            [("DORMOUSE_VAULT_FILE", leaked("vaults.sealed")), ("DORMOUSE_VAULT_KEY_FILE", leaked("key"))];
        Dormouse::start_in(self.folder.path(), &[], &environment)
    }
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is our file");
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].concat().iter().map(|byte| char::from(*byte)).collect()
}

/// Where a connector takes deliveries that are signed with the secret `HOOK` of the vault file.
async fn connector(dormouse: &Dormouse) -> String {
    let key = dormouse.api_key();
    let made = async |path: &str, body: Value| {
        let (status, made) = post(dormouse, path, &key, body).await;
        assert_eq!(status, 201, "{path}: {made}");
        made
    };
    let workspace = made("/v1/workspaces", json!({ "name": "desk", "root": "/" })).await["id"].clone();
    let session = made("/v1/sessions", json!({ "workspace_id": workspace })).await["id"].clone();
    let vault = json!({ "provider": "file", "capabilities": ["webhooks:verify"], "workspace_id": workspace });
    let vault = made("/v1/vaults", vault).await;
    assert!(!vault.to_string().contains(SECRET), "{vault}");
    let connector = json!({ "provider": "github", "workspace_id": workspace, "target_session_id": session,
        "auth": { "scheme": "github", "vault_id": vault["id"], "secrets": ["HOOK"] }, "mapping": { "kind": "message" } });
    let connector = made("/v1/connectors", connector).await;
    dormouse.url(text(&connector["webhook"], "path"))
}

/// The status of a delivery to `url` that is signed with `secret`.
pub(crate) async fn deliver(url: &str, id: &str, secret: &str) -> u16 {
    let body = json!({ "text": "hello" }).to_string();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
    mac.update(body.as_bytes());
    let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
    let request = dormouse_tests::client().post(url).header("content-type", "application/json");
    let request = request.header("x-github-delivery", id).header("x-github-event", "push");
    request.header("x-hub-signature-256", signature).body(body).send().await.expect("an answer").status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_secret_is_used_by_its_name_and_shown_to_nobody() {
    let desk = Desk::new();
    let set = desk.vault("key", &["set", "default.HOOK"], &format!("{SECRET}\n"));
    assert!(set.status.success(), "{}", said(&set));
    let listed = desk.vault("key", &["list", "--json"], "");
    let names: Value = serde_json::from_slice(&listed.stdout).expect("one JSON document");
    assert_eq!(names, json!({ "names": ["default.HOOK"] }));
    let sealed = std::fs::read_to_string(desk.path("vaults.sealed")).expect("a file");
    for told in [said(&set), said(&listed), sealed] {
        assert!(!told.contains(SECRET), "{told}");
    }
    let dormouse = desk.serve();
    let url = connector(&dormouse).await;
    assert_eq!(deliver(&url, "d1", SECRET).await, 200);
    assert_eq!(deliver(&url, "d2", "somebody else's").await, 401);
    // It is read when it is used: another value is good at once, and none is.
    assert!(desk.vault("key", &["set", "default.HOOK"], "another").status.success());
    assert_eq!((deliver(&url, "d3", SECRET).await, deliver(&url, "d4", "another").await), (401, 200));
    assert!(desk.vault("key", &["remove", "default.HOOK"], "").status.success());
    assert_ne!(deliver(&url, "d5", "another").await, 200);
    let again = desk.vault("key", &["remove", "default.HOOK"], "");
    assert_eq!(again.status.code(), Some(4), "{}", said(&again));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_changed_opens_to_nobody() {
    let desk = Desk::new();
    assert!(desk.vault("key", &["set", "default.HOOK"], SECRET).status.success());
    let dormouse = desk.serve();
    let url = connector(&dormouse).await;
    assert_eq!(deliver(&url, "d1", SECRET).await, 200);
    let file = desk.path("vaults.sealed");
    let mut sealed: Value = serde_json::from_slice(&std::fs::read(&file).expect("a file")).expect("JSON");
    let content = text(&sealed["secrets"], "default.HOOK").to_owned();
    let other = if content.starts_with('A') { 'B' } else { 'A' };
    sealed["secrets"]["default.HOOK"] = format!("{other}{}", &content[1..]).into();
    std::fs::write(&file, sealed.to_string()).expect("a file");
    assert_ne!(deliver(&url, "d2", SECRET).await, 200);
    let refused = desk.vault("key", &["set", "default.OTHER"], "more");
    assert!(!refused.status.success() && said(&refused).contains("`default.HOOK`"), "{}", said(&refused));
    assert!(said(&refused).contains("or was changed"), "{}", said(&refused));
}

#[test]
fn another_key_and_one_that_others_can_read_are_refused() {
    let desk = Desk::new();
    assert!(desk.vault("key", &["set", "default.HOOK"], SECRET).status.success());
    let before = std::fs::read(desk.path("vaults.sealed")).expect("a file");
    desk.keep_key("other", '8');
    let refused = desk.vault("other", &["set", "default.MORE"], "more");
    assert!(!refused.status.success() && said(&refused).contains("another key"), "{}", said(&refused));
    std::fs::write(desk.path("short"), "abc").expect("a file");
    allow(&desk.path("short"), 0o600);
    let refused = desk.vault("short", &["list"], "");
    assert!(!refused.status.success() && said(&refused).contains("64 hexadecimal digits"), "{}", said(&refused));
    allow(&desk.path("key"), 0o644);
    let remedy = format!("chmod 600 {}", desk.path("key").display());
    let refused = desk.vault("key", &["set", "default.MORE"], "more");
    assert!(!refused.status.success() && said(&refused).contains(&remedy), "{}", said(&refused));
    let mut serves = program();
    serves.args(["dev", "--port", "0", "--no-tour", "--data"]).arg(desk.path("data"));
    serves.env("DORMOUSE_VAULT_FILE", desk.path("vaults.sealed")).env("DORMOUSE_VAULT_KEY_FILE", desk.path("key"));
    let refused = serves.output().expect("it ends");
    assert!(!refused.status.success() && said(&refused).contains(&remedy), "{}", said(&refused));
    assert_eq!(std::fs::read(desk.path("vaults.sealed")).expect("a file"), before);
}
