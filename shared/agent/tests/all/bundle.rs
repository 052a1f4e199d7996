//! Bundles: the same bytes of the same files, nothing that was changed afterwards, and one winner among publishers.

use std::sync::Arc;

use dormouse_agent::bundle::{Bundle, BundleError, BundleStore, BundleStoreError, FileChange, Publication};
use dormouse_agent::workspace::{FILE_LIMIT, FileContent, Files, Platform, ToolOrigin, WorkspaceKind, load, read};
use dormouse_testkit::MemoryObjects;
use futures::executor::block_on;

const AGENT: &str = ".openharness/agents/assistant.md";

fn files(list: &[(&str, &[u8])]) -> Files {
    list.iter().map(|(path, bytes)| ((*path).to_owned(), FileContent::Bytes(bytes.to_vec()))).collect()
}

fn sound() -> Files {
    files(&[
        ("AGENTS.md", b"Be kind.\n"),
        (AGENT, b"---\nmodel: workspace/small\n---\nHelp.\n"),
        (
            ".openharness/models/models.yaml",
            b"small: {provider: openai-compatible, name: tiny, url: 'http://127.0.0.1:9/v1'}\n",
        ),
        (".openharness/skills/logo.png", &[0x89, 0xff, 0x00]),
        (".openharness/data/history.db", b"not a definition"),
    ])
}

fn bundle(files: &Files) -> Bundle {
    Bundle::of(files).expect("a bundle")
}

fn with(path: &str, bytes: &[u8]) -> Files {
    let mut all = sound();
    all.insert(path.to_owned(), FileContent::Bytes(bytes.to_vec()));
    all
}

#[test]
fn the_same_files_make_the_same_bytes_and_the_name_is_that_of_the_workspace() {
    let made = bundle(&sound());
    let bytes = made.to_bytes().expect("bytes");
    assert_eq!(bytes, bundle(&sound()).to_bytes().expect("bytes"));
    assert_eq!(made.digest(), load(&sound(), &Platform::default()).digest);
    let again = Bundle::from_bytes(&bytes, made.digest()).expect("it is whole");
    assert_eq!(again, made);
    assert_eq!(load(&block_on(read(&again)).expect("files"), &Platform::default()).digest, made.digest());
    assert_ne!(bundle(&with("AGENTS.md", b"Be strict.\n")).digest(), made.digest());
    assert_eq!(bundle(&with(".openharness/state/x", b"1")).digest(), made.digest());
}

#[test]
fn what_was_changed_or_is_none_is_refused() {
    let made = bundle(&sound());
    let text = String::from_utf8(made.to_bytes().expect("bytes")).expect("text");
    let read = |text: &str| Bundle::from_bytes(text.as_bytes(), made.digest()).expect_err("refused");
    assert!(matches!(read(&text.replace("Be kind", "Be mean")), BundleError::Changed { .. }));
    for broken in [
        "",
        "[]",
        r#"{"format":2,"files":[]}"#,
        r#"{"format":1,"files":[{"path":"../AGENTS.md","text":"x"}]}"#,
        r#"{"format":1,"files":[{"path":".openharness/../x","text":"x"}]}"#,
        r#"{"format":1,"files":[{"path":"src/main.rs","text":"x"}]}"#,
        r#"{"format":1,"files":[{"path":"AGENTS.md"}]}"#,
        r#"{"format":1,"files":[{"path":"AGENTS.md","base64":"?"}]}"#,
        r#"{"format":1,"files":[{"path":"AGENTS.md","text":"a"},{"path":"AGENTS.md","text":"b"}]}"#,
    ] {
        assert!(matches!(read(broken), BundleError::Malformed(_)), "{broken}");
    }
    assert!(matches!(read(r#"{"format":1,"files":[]}"#), BundleError::Empty));
}

#[test]
fn what_is_too_large_or_cannot_be_read_is_named() {
    let refused = |content: FileContent| {
        let mut all = sound();
        all.insert(AGENT.to_owned(), content);
        Bundle::of(&all).expect_err("refused").to_string()
    };
    let large = refused(FileContent::TooLarge(FILE_LIMIT + 1));
    assert_eq!(large, format!("{AGENT}: the file has 262145 bytes, and may have 262144: shorten it"));
    assert!(refused(FileContent::Unreadable("it is locked".to_owned())).contains("it is locked"));
    let skill = ".openharness/skills/draw/SKILL.md";
    let mut all = sound();
    all.insert(skill.to_owned(), FileContent::Bytes(b"Draw.".to_vec()));
    let slim = bundle(&all);
    all.insert(".openharness/skills/draw/assets/a.png".to_owned(), FileContent::TooLarge(FILE_LIMIT + 1));
    assert_eq!(bundle(&all), slim, "a skill is kept without what is too large beside it");
    all.insert(AGENT.to_owned(), FileContent::TooLarge(FILE_LIMIT + 1));
    assert!(!Bundle::of_readable(&all).expect("the rest").files().contains_key(AGENT));
    let unreadable = FileContent::Unreadable("it is a pipe".to_owned());
    for content in [FileContent::TooLarge(5_000_000), unreadable] {
        let mut all = sound();
        all.insert("AGENTS.md".to_owned(), content.clone());
        assert!(Bundle::of(&all).is_err(), "it is not published without its instructions");
        let lost = Bundle::of_readable(&all).expect("the rest, and that they are lost");
        assert_eq!(lost.files()["AGENTS.md"], content);
        assert_ne!(lost.digest(), bundle(&with("AGENTS.md", b"")).digest(), "none are not lost ones");
        let again = Bundle::from_bytes(&lost.to_bytes().expect("bytes"), lost.digest()).expect("it is whole");
        assert_eq!(again, lost);
        for files in [again.files(), block_on(read(&again)).expect("files")] {
            let workspace = load(&files, &Platform::default());
            assert!(workspace.problems.iter().any(|problem| problem.file == "AGENTS.md"), "{:#?}", workspace.problems);
            assert!(workspace.settings.approval.asks(ToolOrigin::External, &["pay"], false), "every call waits");
        }
    }
    for guard in [".openharness/hooks/a.yaml", ".openharness/settings.yaml"] {
        let mut all = all.clone();
        all.insert(guard.to_owned(), FileContent::TooLarge(FILE_LIMIT + 1));
        let refused = Bundle::of_readable(&all).expect_err("it may forbid something").to_string();
        assert!(refused.starts_with(guard), "{refused}");
    }
    assert_eq!(Bundle::of(&files(&[("src/main.rs", b"x")])), Err(BundleError::Empty));
    let mut many = Files::new();
    for number in 0..17 {
        many.insert(format!(".openharness/agents/a{number}.md"), FileContent::Bytes(vec![b'x'; 256 * 1024]));
    }
    assert_eq!(Bundle::of(&many), Err(BundleError::TooLarge(17 * 256 * 1024)));
}

#[test]
fn folders_of_skills_that_the_settings_name_belong_to_it_and_nothing_else_does() {
    let mut all = with(".openharness/settings.yaml", b"skill_dirs: [team]\n");
    for path in ["team/draw/SKILL.md", "teams/x/SKILL.md"] {
        all.insert(path.to_owned(), FileContent::Bytes(b"Draw.".to_vec()));
    }
    let bundle = bundle(&all);
    let has = |path: &str| bundle.files().contains_key(path);
    assert!(has("team/draw/SKILL.md") && !has("teams/x/SKILL.md"));
    let bytes = bundle.to_bytes().expect("bytes");
    let again = Bundle::from_bytes(&bytes, bundle.digest()).expect("the same");
    assert_eq!(again, bundle);
    let text = String::from_utf8(bytes).expect("text").replace("team/draw", "else/draw");
    assert!(Bundle::from_bytes(text.as_bytes(), bundle.digest()).is_err());
}

#[test]
fn what_changed_is_listed() {
    let before = bundle(&sound());
    let mut all = with("AGENTS.md", b"Be strict.\n");
    all.remove(AGENT);
    all.insert(".openharness/agents/clerk.md".to_owned(), FileContent::Bytes(b"Clerk.".to_vec()));
    let changes = bundle(&all).changes_from(Some(&before));
    let removed = FileChange::Removed(AGENT.to_owned());
    let added = FileChange::Added(".openharness/agents/clerk.md".to_owned());
    assert_eq!(changes, [removed, added, FileChange::Changed("AGENTS.md".to_owned())]);
    assert_eq!(before.changes_from(None).len(), 4);
    assert_eq!(before.changes_from(Some(&before)), []);
}

#[test]
fn of_two_publishers_one_wins_and_what_was_published_stays() {
    block_on(async {
        let objects = Arc::new(MemoryObjects::new());
        let store = BundleStore::new(objects.clone(), "agents/");
        let first = bundle(&sound());
        let second = bundle(&with("AGENTS.md", b"Be strict.\n"));
        assert_eq!(store.current("support").await, Ok(None));
        assert_eq!(store.publish("support", &first, None).await, Ok(Publication::Published));
        let seen = store.current("support").await.expect("an answer").expect("a bundle");
        assert_eq!((seen.digest.as_str(), &seen.previous), (first.digest(), &None));
        objects.take_asked();
        assert_eq!(store.publish("support", &first, Some(&seen)).await, Ok(Publication::Unchanged));
        assert_eq!(objects.take_asked(), [] as [&str; 0]);
        assert_eq!(store.publish("support", &second, Some(&seen)).await, Ok(Publication::Published));
        // Its acknowledgement was lost, and it comes again.
        assert_eq!(store.publish("support", &second, Some(&seen)).await, Ok(Publication::Published));
        let third = bundle(&with("AGENTS.md", b"Be quick.\n"));
        let raced = store.publish("support", &third, Some(&seen)).await;
        assert_eq!(raced, Err(BundleStoreError::Raced("support".to_owned())));
        let now = store.current("support").await.expect("an answer").expect("a bundle");
        assert_eq!((now.digest.as_str(), now.previous.as_deref()), (second.digest(), Some(first.digest())));
        assert_eq!(store.load("support", first.digest()).await, Ok(Some(first.clone())));
        assert_eq!(store.load("other", first.digest()).await, Ok(None));
    });
}

#[test]
fn a_workspace_keeps_its_kind() {
    const SETTINGS: &str = ".openharness/settings.yaml";
    block_on(async {
        for (kind, other) in [("chat", "project"), ("project", "chat")] {
            let store = BundleStore::new(Arc::new(MemoryObjects::new()), "");
            let of = |text: String| bundle(&with(SETTINGS, text.as_bytes()));
            let first = of(format!("kind: {kind}\n"));
            assert_eq!(store.publish("support", &first, None).await, Ok(Publication::Published));
            let seen = store.current("support").await.expect("an answer").expect("a bundle");
            assert_eq!(seen.kind.map(WorkspaceKind::as_str), Some(kind));
            let turned = store.publish("support", &of(format!("kind: {other}\n")), Some(&seen)).await;
            let told = turned.expect_err("it is refused").to_string();
            assert!(told.contains(&format!("a `{kind}` workspace and stays one")), "{told}");
            // A mistake in the settings gives no tools; it may take them away until it is mended.
            let broken = store.publish("support", &of("kind: [\n".to_owned()), Some(&seen)).await;
            assert_eq!(broken, Ok(Publication::Published), "{kind}");
            let seen = store.current("support").await.expect("an answer").expect("a bundle");
            let sly = of("kind: project\ndefault_agent: nobody\n".to_owned());
            let turned = store.publish("support", &sly, Some(&seen)).await;
            assert_eq!(turned.is_err(), kind == "chat", "{turned:?}");
        }
    });
}

#[test]
fn names_and_pointers_that_are_none_are_refused() {
    block_on(async {
        let objects = Arc::new(MemoryObjects::new());
        let store = BundleStore::new(objects.clone(), "");
        for name in ["", "../x", "a/b", "Support", "1st", &"x".repeat(65)] {
            assert_eq!(store.current(name).await, Err(BundleStoreError::Name(name.to_owned())));
        }
        assert!(matches!(store.load("support", "../../secret").await, Err(BundleStoreError::Bundle(_))));
        for broken in ["", "{}", r#"{"format":1,"bundle":"../x"}"#] {
            objects.overwrite("support/current.json", broken.as_bytes());
            assert!(matches!(store.current("support").await, Err(BundleStoreError::Pointer(..))), "{broken}");
        }
        objects.set_away(true);
        assert!(matches!(store.current("support").await, Err(BundleStoreError::Objects(_))));
    });
}
