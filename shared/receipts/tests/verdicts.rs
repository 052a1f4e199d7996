//! What was done to a receipt or to a chain, and the verdict on it.

use dormouse_receipts::{
    Export, ExportError, Flaw, KeyRing, Keys, KmsRing, Map, PublicKey, Receipt, ReceiptDraft, Ring, Sealed, SigningKey,
    example,
};
use jiff::Timestamp;
use serde_json::{Value, json};

fn ours() -> SigningKey {
    SigningKey::from_seed([7; 32])
}

fn keys() -> Keys {
    Keys::from([ours().public()])
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn now() -> Timestamp {
    at("2026-11-24T12:00:00Z")
}

fn chain_by(key: &SigningKey, count: usize) -> Vec<Sealed> {
    let mut chain: Vec<Sealed> = Vec::new();
    for number in 1..=count {
        let draft = ReceiptDraft::new(example(&format!("receipt_{number}")));
        chain.push(draft.seal(chain.last().map(|last| last.hash.as_str()), key).expect("a receipt"));
    }
    chain
}

fn texts(count: usize) -> Vec<String> {
    chain_by(&ours(), count).into_iter().map(|sealed| sealed.text).collect()
}

/// The flaws of a file of these lines, as `place code`.
fn flaws(lines: &[String]) -> Vec<String> {
    flaws_by(lines, &keys(), now())
}

fn flaws_by(lines: &[String], keys: &Keys, at: Timestamp) -> Vec<String> {
    let report = Export::parse(lines.join("\n").as_bytes()).expect("a file of receipts").verify(keys, at);
    report.findings.iter().map(|finding| format!("{} {}", finding.position, finding.flaw.code())).collect()
}

fn edited(text: &str, edit: impl FnOnce(&mut Value)) -> String {
    let mut value: Value = serde_json::from_str(text).expect("JSON");
    edit(&mut value);
    value.to_string()
}

#[test]
fn a_chain_as_it_was_made_is_sound() {
    assert_eq!(flaws(&texts(5)), [""; 0]);
    let report = Export::parse(texts(5).join("\n").as_bytes()).expect("a file").verify(&keys(), now());
    assert_eq!((report.chains.len(), report.chains[0].receipts), (1, 5));
    assert_eq!(report.chains[0].head, chain_by(&ours(), 5)[4].hash);
}

#[test]
fn any_byte_that_is_changed_is_found() {
    let text = texts(1).remove(0);
    for place in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[place] = if bytes[place] == b'1' { b'2' } else { b'1' };
        let found = Receipt::parse(&bytes).and_then(|receipt| receipt.verify(&keys(), now()));
        let Ok(()) = found else { continue };
        panic!("{}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn the_order_of_fields_the_writing_of_numbers_and_of_texts_do_not_matter() {
    let text = texts(1).remove(0);
    let reordered = edited(&text, |value| {
        let fields = value.as_object().expect("an object").clone();
        *value = Value::Object(fields.into_iter().rev().collect::<Map>());
    });
    assert_ne!(reordered, text);
    for same in [
        reordered,
        text.replace(r#""total":0"#, r#""total":0.0e5"#),
        text.replace("dormouse", "d\\u006frmouse"),
        serde_json::to_string_pretty(&serde_json::from_str::<Value>(&text).expect("JSON")).expect("JSON"),
    ] {
        assert_eq!(Receipt::parse(same.as_bytes()).expect("a receipt").verify(&keys(), now()), Ok(()), "{same}");
    }
}

#[test]
fn a_text_in_another_normal_form_is_another_text() {
    let mut body = example("receipt_1");
    body.insert("metadata".to_owned(), json!({ "name": "caf\u{e9}" }));
    let sealed = ReceiptDraft::new(body).seal(None, &ours()).expect("a receipt");
    assert_eq!(flaws(&[sealed.text.replace("caf\u{e9}", "cafe\u{301}")]), ["0 hash_mismatch"]);
}

#[test]
fn fields_that_the_schema_does_not_know_and_forms_that_it_does_not_allow_are_named() {
    let text = texts(1).remove(0);
    let verdict = |edit: fn(&mut Value)| Receipt::parse(edited(&text, edit).as_bytes()).expect_err("a flaw");
    let unknown = verdict(|value| value["cost"]["a/b"] = 1.into());
    assert_eq!(unknown, Flaw::UnknownField { path: "/cost/a~1b".to_owned() });
    let missing = verdict(|value| {
        value["chain"].as_object_mut().expect("an object").shift_remove("receipt_hash");
    });
    assert_eq!(missing, Flaw::MissingField { path: "/chain/receipt_hash".to_owned() });
    let wrong = |path: &str, flaw: Flaw| {
        let Flaw::WrongField { path: found, .. } = flaw else { panic!("{flaw}") };
        assert_eq!(found, path);
    };
    wrong("/cost/total", verdict(|value| value["cost"]["total"] = json!(-1)));
    wrong("/signatures/0/signed_at", verdict(|value| value["signatures"][0]["signed_at"] = json!("yesterday")));
    wrong(
        "/replay_input/materials/0",
        verdict(|value| {
            value["replay_input"]["materials"] = json!([{ "kind": "artifact", "uri": "x" }]);
        }),
    );
    wrong("/identifiers/tenant_id", verdict(|value| value["identifiers"]["tenant_id"] = Value::Null));
    let other = verdict(|value| value["schema"] = json!("receipt-2027-01-01"));
    assert_eq!(other, Flaw::OtherSchema { found: "receipt-2027-01-01".to_owned() });
}

#[test]
fn what_readers_could_understand_differently_is_refused() {
    let text = texts(1).remove(0);
    for (found, made) in [
        (r#""total":0"#, r#""total":0,"total":5"#),
        (r#""total":0"#, r#""total":9007199254740993"#),
        (r#""total":0"#, r#""total":1e999"#),
        (r#""currency""#, r#""\ud800""#),
    ] {
        let flaw = Receipt::parse(text.replace(found, made).as_bytes()).expect_err("a flaw");
        assert_eq!(flaw.code(), "malformed", "{made}: {flaw}");
    }
}

#[test]
fn removed_moved_repeated_and_forked_receipts_are_found() {
    let [a, b, c, d] = texts(4).try_into().expect("four");
    assert_eq!(flaws(&[a.clone(), c.clone(), d.clone()]), ["1 previous_missing"], "the middle was removed");
    assert_eq!(flaws(&[b.clone(), c.clone()]), ["0 previous_missing"], "the beginning was removed");
    let swapped = [a.clone(), c.clone(), b.clone(), d.clone()];
    assert_eq!(flaws(&swapped), ["1 out_of_order", "2 out_of_order", "3 out_of_order"], "a pair was swapped");
    assert_eq!(flaws(&[a.clone(), b.clone(), b.clone(), c.clone()]), ["2 repeated"]);
    let mut other = example("receipt_2b");
    other.insert("metadata".to_owned(), json!({ "other": true }));
    let fork = ReceiptDraft::new(other).seal(Some(&chain_by(&ours(), 1)[0].hash), &ours()).expect("a receipt").text;
    assert_eq!(flaws(&[a, b, fork]), ["2 fork"]);
}

#[test]
fn a_shorter_chain_is_found_by_who_kept_its_end() {
    let chain = chain_by(&ours(), 3);
    let file = format!("{}\n{}", chain[0].text, chain[1].text);
    let heads = [("session_1".to_owned(), chain[2].hash.clone())].into();
    let report = Export::parse(file.as_bytes()).expect("a file").verify(&keys(), now()).expecting(&heads);
    assert_eq!(report.findings[0].flaw.code(), "other_head");
}

#[test]
fn a_wrong_previous_hash_is_no_longer_what_was_signed() {
    let [a, b] = texts(2).try_into().expect("two");
    let wrong =
        edited(&b, |value| value["chain"]["previous_receipt_hash"] = json!(format!("sha256:{}", "0".repeat(64))));
    assert_eq!(flaws(&[a.clone(), wrong]), ["1 hash_mismatch", "1 previous_missing"]);
    let rehashed = edited(&b, |value| {
        value["cost"]["total"] = json!(5);
        let body = value.as_object().expect("an object");
        value["chain"]["receipt_hash"] = json!(dormouse_receipts::canonical::hash(body).expect("a hash"));
    });
    assert_eq!(flaws(&[a, rehashed]), ["1 bad_signature"]);
}

#[test]
fn keys_of_others_are_not_believed_whatever_they_are_called() {
    let theirs = SigningKey::from_seed([8; 32]);
    let resigned: Vec<String> = chain_by(&theirs, 3).into_iter().map(|sealed| sealed.text).collect();
    assert_eq!(flaws(&resigned), ["0 unknown_key", "1 unknown_key", "2 unknown_key"]);
    assert_eq!(flaws_by(&resigned, &Keys::from([theirs.public()]), now()), [""; 0]);
    let named_as_ours: Vec<String> =
        resigned.iter().map(|text| text.replace(&theirs.public().id, &ours().public().id)).collect();
    assert_eq!(flaws(&named_as_ours[..1]), ["0 hash_mismatch"]);
    let forged = edited(&texts(1)[0], |value| {
        let hash = value["chain"]["receipt_hash"].as_str().expect("a hash").to_owned();
        value["signatures"][0]["signature"] = json!(theirs.sign(hash.as_bytes()));
    });
    assert_eq!(flaws(&[forged]), ["0 bad_signature"]);
    let unsigned = edited(&texts(1)[0], |value| value["signatures"] = json!([]));
    assert_eq!(flaws(&[unsigned]), ["0 unsigned"]);
    let other_algorithm = edited(&texts(1)[0], |value| value["signatures"][0]["algorithm"] = json!("none"));
    assert_eq!(flaws(&[other_algorithm]), ["0 unsigned"]);
    let both = edited(&texts(1)[0], |value| {
        let foreign = json!({ "key_id": "key_x", "algorithm": "ed25519", "signature": "base64:AAAA" });
        value["signatures"].as_array_mut().expect("a list").push(foreign);
    });
    assert_eq!(flaws(&[both]), [""; 0], "others may sign as well");
}

#[test]
fn a_revoked_key_is_believed_for_the_time_before_and_a_retired_one_for_what_it_signed() {
    let with = |edit: fn(&mut PublicKey)| {
        let mut key = ours().public();
        edit(&mut key);
        Keys::from([key])
    };
    let lines = texts(1);
    let late = now();
    let revoked = with(|key| key.revoked_at = Some(at("2026-06-01T00:00:00Z")));
    assert_eq!(flaws_by(&lines, &revoked, at("2026-05-31T00:00:00Z")), [""; 0]);
    assert_eq!(flaws_by(&lines, &revoked, at("2026-06-01T00:00:00Z")), ["0 key_revoked"]);
    assert_eq!(flaws_by(&lines, &revoked, late), ["0 key_revoked"]);
    assert_eq!(flaws_by(&lines, &with(|key| key.retired_at = Some(at("2026-06-01T00:00:00Z"))), late), [""; 0]);
    let retired = with(|key| key.retired_at = Some(at("2026-04-01T00:00:00Z")));
    assert_eq!(flaws_by(&lines, &retired, late), ["0 key_not_in_use"]);
    let too_new = with(|key| key.created_at = Some(at("2026-06-01T00:00:00Z")));
    assert_eq!(flaws_by(&lines, &too_new, late), ["0 key_not_in_use"]);
    assert_eq!(flaws_by(&lines, &keys(), at("2026-04-25T11:00:00Z")), ["0 not_yet_issued"]);
}

#[test]
fn a_chain_goes_on_with_the_next_key() {
    let next = SigningKey::from_seed([9; 32]);
    let first = chain_by(&ours(), 1).remove(0);
    let second = ReceiptDraft::new(example("receipt_2")).seal(Some(&first.hash), &next).expect("a receipt");
    let lines = [first.text, second.text];
    assert_eq!(flaws_by(&lines, &Keys::from([ours().public(), next.public()]), now()), [""; 0]);
    assert_eq!(flaws(&lines), ["1 unknown_key"]);
}

#[test]
fn an_anchor_is_the_id_of_a_key_or_a_key() {
    let keys = Keys::from([ours().public(), SigningKey::from_seed([9; 32]).public()]);
    let one = ours().public();
    for anchor in [one.id.clone(), one.text()] {
        assert_eq!(keys.anchored(&anchor), Ok(Keys::from([one.clone()])));
    }
    let foreign = SigningKey::from_seed([1; 32]).public();
    assert_eq!(keys.anchored(&foreign.text()), Ok(Keys::from([foreign])));
    for wrong in ["", "key_unknown", "base64:AAAA", &"0".repeat(64), &hex::encode([1; 31])] {
        assert!(keys.anchored(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn what_is_too_large_or_no_receipt_is_said_to_be() {
    let large = format!(r#"{{"schema":"receipt-2026-04-25","metadata":{{"x":"{}"}}}}"#, "x".repeat(20 << 20));
    assert_eq!(Receipt::parse(large.as_bytes()).expect_err("a flaw").code(), "too_large");
    assert_eq!(flaws(&[texts(1).remove(0), large]), ["1 too_large"]);
    assert_eq!(Export::parse(b" \n").expect_err("an error"), ExportError::Empty);
    assert_eq!(flaws(&["nonsense".to_owned()]), ["0 malformed"]);
    assert_eq!(flaws(&["[".repeat(100_000)]), ["0 malformed"]);
    let pretty = |text: &str| {
        let value: Value = serde_json::from_str(text).expect("JSON");
        serde_json::to_string_pretty(&value).expect("JSON").replacen('{', "{ \"schema\": 1,", 1)
    };
    assert_eq!(flaws(&[pretty(&texts(1)[0])]), ["0 malformed"], "one document, over several lines");
    let huge = vec![b' '; dormouse_receipts::limits::FILE + 1];
    assert!(matches!(Export::parse(&huge), Err(ExportError::TooLarge { .. })));
}

#[test]
fn files_hold_keys_lists_and_resources_of_servers_too() {
    let texts = texts(2);
    let lines = [Export::line_of_keys(&keys()), texts[0].clone(), texts[1].clone()];
    let export = Export::parse(lines.join("\n").as_bytes()).expect("a file");
    assert_eq!(export.keys, keys());
    assert!(export.verify(&export.keys, now()).is_sound());
    let resource = |text: &String| json!({ "object": "receipt", "wire": { "payload": serde_json::from_str::<Value>(text).expect("JSON") } });
    let list = json!({ "object": "list", "data": texts.iter().map(resource).collect::<Vec<_>>() });
    assert_eq!(flaws(&[list.to_string()]), [""; 0]);
    let bad = Export::parse(br#"{"object":"receipt.keys","data":[{"id":"x","public_key":"base64:AA=="}]}"#);
    assert!(matches!(bad, Err(ExportError::Keys { line: 1, .. })), "{bad:?}");
}

#[test]
fn a_private_key_does_not_show_itself() {
    let shown = format!("{:?}", ours());
    assert!(shown.contains(&ours().public().id) && !shown.contains("07"), "{shown}");
}

/// The ring that `ring` is, as text and back.
fn again(ring: &Ring) -> Ring {
    Ring::parse(&ring.text()).expect("a ring")
}

#[test]
fn a_ring_rotates_revokes_and_comes_back_from_its_text() {
    let t1 = at("2026-05-01T00:00:00Z");
    let t2 = at("2026-06-01T00:00:00Z");
    let first = Ring::parse(&hex::encode([7; 32])).expect("a ring");
    assert_eq!(first.keys(), keys());
    let next = KeyRing::new([8; 32], Some(t1));
    let second = again(&first.clone().replaced(Ring::Held(next.clone()), t1).expect("another key"));
    assert!(!second.text().contains(&hex::encode([7; 32])), "the former private key is gone");
    let old = ours().public().id;
    let new = next.active().public().id;
    assert_eq!(second.keys().get(&old).and_then(|key| key.retired_at), Some(t1));
    assert_eq!(second.keys().get(&new).and_then(|key| key.created_at), Some(t1));
    assert_eq!(flaws_by(&texts(2), &second.keys(), now()), [""; 0], "what the former key signed stays valid");
    assert!(second.clone().revoked(&new, t2).is_none(), "the active key is rotated first");
    let revoked = second.revoked(&old, t2).expect("a former key");
    assert_eq!(flaws_by(&texts(1), &revoked.keys(), t2), ["0 key_revoked"]);
    assert_eq!(flaws_by(&texts(1), &revoked.keys(), t1), [""; 0]);
    let shown = format!("{revoked:?}");
    assert!(!shown.contains(&hex::encode([8; 32])) && !shown.contains("8, 8"), "{shown}");
    let public = ours().public().text();
    let kms = json!({ "kms_key": KMS_KEY, "public_key": public });
    let both = json!({ "kms_key": KMS_KEY, "public_key": public, "seed": "0".repeat(64) });
    for wrong in ["", "x", "{}", r#"{"seed":"00"}"#, &"0".repeat(63), &both.to_string()] {
        assert!(Ring::parse(wrong).is_err(), "{wrong}");
    }
    assert!(KeyRing::parse(&kms.to_string()).is_err(), "the private key is not in it");
    for (name, wrong) in [("kms_key", "alias/receipts"), ("kms_key", "arn:aws:s3:::b"), ("public_key", "base64:AA==")] {
        let mut kms = kms.clone();
        kms[name] = wrong.into();
        assert!(Ring::parse(&kms.to_string()).is_err(), "{wrong}");
    }
}

#[test]
fn a_key_that_is_put_in_its_own_place_or_comes_back_has_signed_all_along() {
    let t1 = at("2026-05-01T00:00:00Z");
    let t2 = at("2026-06-01T00:00:00Z");
    let first = Ring::parse(&hex::encode([7; 32])).expect("a ring");
    let ours_again = |at| Ring::Held(KeyRing::new([7; 32], Some(at)));
    let same = again(&first.clone().replaced(ours_again(t1), t1).expect("the same key"));
    assert_eq!(same.keys(), first.keys(), "rotated to the key that signs, nothing changes");
    let (old, next) = (ours().public().id, KeyRing::new([8; 32], Some(t1)));
    let new = next.active().public().id;
    let second = first.replaced(Ring::Held(next), t1).expect("another key");
    let back = again(&second.clone().replaced(ours_again(t2), t2).expect("a former key"));
    assert_eq!((back.signs(), back.keys().iter().count()), (old.clone(), 2));
    assert_eq!(flaws_by(&texts(2), &back.keys(), now()), [""; 0], "what it signed before stays valid");
    assert_eq!(back.keys().get(&old), keys().get(&old), "it is not retired any more");
    assert_eq!(back.keys().get(&new).and_then(|key| key.retired_at), Some(t2));
    let revoked = second.revoked(&old, t2).expect("a former key");
    assert!(revoked.replaced(ours_again(t2), t2).is_none(), "nobody believes what it signs");
    let theirs = SigningKey::from_seed([8; 32]).public();
    let at_arn = |arn: &str, at| Ring::Kms(KmsRing::new(arn, theirs.clone(), Some(at)).expect("an ARN"));
    let elsewhere = KMS_KEY.replace("eu-central-1", "eu-west-1");
    let moved = again(&at_arn(KMS_KEY, t1).replaced(at_arn(&elsewhere, t2), t2).expect("a replica of the same key"));
    let Ring::Kms(ring) = &moved else { panic!("{moved:?}") };
    assert_eq!((ring.key(), ring.public().created_at), (elsewhere.as_str(), Some(t1)));
    assert_eq!(moved.keys().iter().count(), 1);
}

const KMS_KEY: &str = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";

#[test]
fn a_ring_goes_to_a_key_of_kms_and_back_with_all_keys_before() {
    let t1 = at("2026-05-01T00:00:00Z");
    let t2 = at("2026-06-01T00:00:00Z");
    let held = Ring::parse(&hex::encode([7; 32])).expect("a ring");
    let theirs = SigningKey::from_seed([8; 32]).public();
    let in_kms = KmsRing::new(KMS_KEY, theirs.clone(), Some(t1)).expect("an ARN");
    let moved = again(&held.replaced(Ring::Kms(in_kms), t1).expect("another key"));
    let Ring::Kms(ring) = &moved else { panic!("{moved:?}") };
    assert_eq!((ring.key(), &ring.public().id), (KMS_KEY, &theirs.id));
    assert!(!moved.text().contains("seed"), "nothing private is left in it");
    assert_eq!(flaws_by(&texts(2), &moved.keys(), now()), [""; 0], "what was signed before stays valid");
    let back = again(&moved.replaced(Ring::Held(KeyRing::new([9; 32], Some(t2))), t2).expect("another key"));
    assert_eq!(back.keys().iter().count(), 3);
    assert_eq!(back.keys().get(&theirs.id).and_then(|key| key.retired_at), Some(t2));
    assert!(back.revoked(&theirs.id, t2).is_some());
}
