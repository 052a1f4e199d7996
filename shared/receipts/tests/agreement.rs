//! A verifier in another language, with other libraries, finds the same: canonical bytes, hashes, signatures, links. And
//! the published schema allows what ours does. What is not at hand here is reported as ignored.

#![expect(clippy::disallowed_methods, reason = "fixtures are files, and the other verifier is a process")]
#![expect(clippy::disallowed_types, reason = "the other verifier is a process")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use dormouse_receipts::{Export, Keys, Map, PublicKey, Receipt, ReceiptDraft, SigningKey, canonical, example};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::{Value, json};

/// Receipts with random content.
const RANDOM: usize = 300;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn main() -> ExitCode {
    let python = python();
    let published = root().join("../shared/harn");
    let has = published.join("receipts").is_dir();
    let of_python = python.clone();
    let of_schema = published.clone();
    let trials = vec![
        Trial::test("chains_of_ours_in_python", move || compare(&python.ok_or("no Python")?, &chains()))
            .with_ignored_flag(of_python.is_none()),
        Trial::test("published_receipts_in_python", move || {
            compare(&of_python.ok_or("no Python")?, &fixtures(&published)?)
        })
        .with_ignored_flag(!has || self::python().is_none()),
        Trial::test("published_schema", move || schema(&of_schema)).with_ignored_flag(!has),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A Python with the packages that the verifier needs, if it can be had here.
fn python() -> Option<PathBuf> {
    let made = Command::new(root().join("infra/venv.sh")).arg(root().join("conformance/receipts.txt")).output().ok()?;
    let folder = String::from_utf8(made.stdout).ok()?;
    made.status.success().then(|| Path::new(folder.trim()).join("python"))
}

fn key() -> SigningKey {
    SigningKey::from_seed([7; 32])
}

/// Instant at which keys are to be believed.
const AT: &str = "2026-11-24T12:00:00Z";

/// Receipts, and the key that is published with them.
struct File {
    key: PublicKey,
    lines: Vec<String>,
}

impl File {
    fn new(lines: Vec<String>) -> Self {
        Self { key: key().public(), lines }
    }

    /// One receipt, whose key has its times from `edit`.
    fn dated(line: &str, edit: impl FnOnce(&mut PublicKey)) -> Self {
        let mut file = Self::new(vec![line.to_owned()]);
        edit(&mut file.key);
        file
    }
}

/// Files of receipts: sound, random, changed, moved, signed by others, by keys that are not to be believed.
fn chains() -> Vec<File> {
    let mut chance = fastrand::Rng::with_seed(19);
    let sealed = |draft: Map, previous: Option<&str>, key: &SigningKey| {
        ReceiptDraft::new(draft).seal(previous, key).expect("a receipt")
    };
    let mut random = Vec::new();
    let mut previous: Option<String> = None;
    for number in 0..RANDOM {
        let mut body = example(&format!("receipt_{number}"));
        body.insert("metadata".to_owned(), Value::Object(object(&mut chance, 3)));
        let one = sealed(body, previous.as_deref(), &key());
        previous = Some(one.hash);
        random.push(one.text);
    }
    let few = random[..4].to_vec();
    let changed: Vec<String> = few.iter().map(|text| text.replace("no model", "a model")).collect();
    let moved = vec![few[0].clone(), few[2].clone(), few[1].clone(), few[3].clone()];
    let foreign = sealed(example("receipt_x"), None, &SigningKey::from_seed([8; 32])).text;
    let renamed = foreign.replace("no model", "a model");
    let mut forged: Value = serde_json::from_str(&few[0]).expect("JSON");
    forged["signatures"][0]["signature"] = json!(key().sign(b"something else"));
    let mut unsigned = forged.clone();
    unsigned["signatures"] = json!([]);
    let twice = few[0].replace(r#""total":0"#, r#""total":0,"total":0"#);
    let otherwise = few[0].replace("==\"", "=\"");
    // The last of 86 letters has four bits that no byte has.
    let bits = few[0].find("==\"").map_or_else(String::new, |end| {
        let next = char::from(few[0].as_bytes()[end - 1] + 1);
        format!("{}{next}{}", &few[0][..end - 1], &few[0][end..])
    });
    let signature = |edit: &dyn Fn(&mut Value)| {
        let mut edited: Value = serde_json::from_str(&few[0]).expect("JSON");
        edit(&mut edited["signatures"][0]);
        vec![edited.to_string()]
    };
    let mut renamed_key: Value = serde_json::from_str(&few[0]).expect("JSON");
    renamed_key["issuer"]["public_key_id"] = json!("key_other");
    let body = renamed_key.as_object().expect("an object");
    let hash = canonical::hash(body).expect("a hash");
    renamed_key["signatures"][0]["signature"] = json!(key().sign(hash.as_bytes()));
    renamed_key["chain"]["receipt_hash"] = json!(hash);
    let mut late = example("receipt_late");
    late.insert("issued_at".to_owned(), json!("2026-11-24T12:05:01Z"));
    let late = sealed(late, None, &key()).text;
    let time = |text: &str| text.parse().ok();
    let mut files = vec![
        File::dated(&few[0], |key| key.revoked_at = time(AT)),
        File::dated(&few[0], |key| key.revoked_at = time("2026-11-24T12:00:01Z")),
        File::dated(&few[0], |key| key.retired_at = time("2026-04-24T12:00:00Z")),
        File::dated(&few[0], |key| key.retired_at = time("2026-04-24T11:59:59Z")),
        File::dated(&few[0], |key| key.created_at = time("2026-04-25T12:00:00Z")),
        File::dated(&few[0], |key| key.created_at = time("2026-04-25T12:00:01Z")),
    ];
    let others = vec![
        vec![otherwise],
        vec![bits],
        signature(&|one| one["note"] = json!("believe me")),
        signature(&|one| one["signed_at"] = json!("yesterday")),
        signature(&|one| one["signed_at"] = json!("2026-04-25T12:00:00.123456789Z")),
        vec![renamed_key.to_string()],
        vec![late],
        random,
        changed,
        moved,
        few[..2].to_vec(),
        vec![foreign],
        vec![renamed],
        vec![forged.to_string()],
        vec![unsigned.to_string()],
        vec![twice],
    ];
    files.extend(others.into_iter().map(File::new));
    files
}

fn object(chance: &mut fastrand::Rng, depth: usize) -> Map {
    (0..chance.usize(0..6)).map(|_| (text(chance), value(chance, depth))).collect()
}

fn text(chance: &mut fastrand::Rng) -> String {
    (0..chance.usize(0..8)).map(|_| if chance.bool() { chance.char('\0'..='~') } else { chance.char(..) }).collect()
}

fn value(chance: &mut fastrand::Rng, depth: usize) -> Value {
    match chance.usize(0..if depth == 0 { 5 } else { 7 }) {
        0 => Value::Null,
        1 => chance.bool().into(),
        2 => text(chance).into(),
        3 => chance.i64(-9_007_199_254_740_991..=9_007_199_254_740_991).into(),
        4 => number(chance),
        5 => (0..chance.usize(0..4)).map(|_| value(chance, depth - 1)).collect(),
        _ => Value::Object(object(chance, depth - 1)),
    }
}

/// A double of any size.
fn number(chance: &mut fastrand::Rng) -> Value {
    let any = f64::from_bits(chance.u64(..));
    if any.is_finite() { any.into() } else { 1e21.into() }
}

/// The receipts that the protocol publishes: their hashes are placeholders.
fn fixtures(folder: &Path) -> Result<Vec<File>, Failed> {
    let mut files = Vec::new();
    for name in ["receipts/task-receipt.json", "replay/task-replay-receipt.json"] {
        let value: Value = serde_json::from_str(&std::fs::read_to_string(folder.join(name))?)?;
        files.push(File::new(vec![value.to_string()]));
    }
    Ok(files)
}

/// What Python calls a flaw.
fn in_python(code: &str) -> &str {
    match code {
        "previous_missing" | "out_of_order" | "fork" | "repeated" => "broken_link",
        // Of the form it knows that of signatures: the hash is over the rest.
        "unknown_field" | "wrong_field" => "malformed",
        other => other,
    }
}

fn compare(python: &Path, files: &[File]) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    for (at, File { key, lines }) in files.iter().enumerate() {
        let file = folder.path().join(format!("{at}.jsonl"));
        let content = format!("{}\n{}\n", Export::line_of_keys(&Keys::from([key.clone()])), lines.join("\n"));
        std::fs::write(&file, &content)?;
        let mut verifier = Command::new(python);
        verifier.arg(root().join("conformance/receipts.py")).arg(&file).args(["--at", AT]);
        let output = verifier.output()?;
        let theirs: Vec<Value> =
            String::from_utf8(output.stdout)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        if theirs.len() != lines.len() {
            return Err(
                format!("{} of {}: {}", theirs.len(), lines.len(), String::from_utf8_lossy(&output.stderr)).into()
            );
        }
        let export = Export::parse(content.as_bytes())?;
        let report = export.verify(&export.keys, AT.parse()?);
        assert_eq!(output.status.success(), report.is_sound(), "file {at}");
        for (place, (ours, theirs)) in export.receipts.iter().zip(&theirs).enumerate() {
            if let Ok(ours) = ours {
                assert_eq!(theirs["canonical"], String::from_utf8(canonical::hashed(ours.body())?)?, "file {at}");
                assert_eq!(theirs["hash"], ours.hash()?);
            }
            let flaw = report.findings.iter().find(|finding| finding.position == place);
            let flaw = flaw.map(|finding| in_python(finding.flaw.code()));
            assert_eq!(theirs["fault"].as_str(), flaw, "file {at}, receipt {place}: {theirs}");
        }
    }
    Ok(())
}

/// What the schema refuses ours refuses, and the other way round.
fn schema(folder: &Path) -> Result<(), Failed> {
    let read = |name: &str| -> Result<Value, Failed> {
        Ok(serde_json::from_str(&std::fs::read_to_string(folder.join(name))?)?)
    };
    let schema =
        jsonschema::options().should_validate_formats(true).build(&read("receipts/receipt-2026-04-25.schema.json")?)?;
    for name in ["receipts/task-receipt.json", "replay/task-replay-receipt.json"] {
        let whole = read(name)?;
        assert!(schema.is_valid(&whole) && is_read(&whole), "{name}");
        for changed in changes(&whole) {
            assert_eq!(is_read(&changed), schema.is_valid(&changed), "{name}: {changed}");
        }
    }
    Ok(())
}

fn is_read(value: &Value) -> bool {
    Receipt::parse(value.to_string().as_bytes()).is_ok()
}

/// `value` with each of its parts removed, replaced by something else, and with a field more.
fn changes(value: &Value) -> Vec<Value> {
    let replaced = [json!(null), json!(""), json!("x"), json!(-1), json!(1.5), json!({}), json!([]), json!([1])];
    let mut made = Vec::new();
    match value {
        Value::Object(fields) => {
            made.push(fields.clone().into_iter().chain([("unknown".to_owned(), json!(1))]).collect());
            for (name, part) in fields {
                let with = |part: Option<Value>| {
                    let mut changed = fields.clone();
                    match part {
                        Some(part) => changed.insert(name.clone(), part),
                        None => changed.shift_remove(name),
                    };
                    Value::Object(changed)
                };
                made.push(with(None));
                made.extend(replaced.iter().cloned().chain(changes(part)).map(|part| with(Some(part))));
            }
        }
        Value::Array(parts) => {
            for (at, part) in parts.iter().enumerate() {
                made.extend(replaced.iter().cloned().chain(changes(part)).map(|part| {
                    let mut changed = parts.clone();
                    changed[at] = part;
                    Value::Array(changed)
                }));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    made
}
