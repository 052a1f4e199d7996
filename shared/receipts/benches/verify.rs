//! Verifies a chain of 10,000 receipts, and seals one. Fails when a goal is missed.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark prints, and reads the clock of the machine"
)]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use dormouse_receipts::{Export, Keys, ReceiptDraft, SigningKey, canonical, example};

/// Rounds of which the median counts.
const ROUNDS: usize = 9;
const MANY: u32 = 1_000;

fn chain(count: usize, key: &SigningKey) -> String {
    let (mut text, mut previous) = (String::new(), None);
    for number in 0..count {
        let draft = ReceiptDraft::new(example(&format!("receipt_{number}")));
        let sealed = draft.seal(previous.as_deref(), key).expect("a receipt");
        text.push_str(&sealed.text);
        text.push('\n');
        previous = Some(sealed.hash);
    }
    text
}

/// Prints the median time of `work`, done `times` at once, beside its goal; true if it is met.
fn measured(name: &str, goal: Duration, times: u32, mut work: impl FnMut()) -> bool {
    let mut rounds: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            (0..times).for_each(|_| work());
            began.elapsed() / times
        })
        .collect();
    rounds.sort_unstable();
    let (least, median, most) = (rounds[0], rounds[ROUNDS / 2], rounds[ROUNDS - 1]);
    let is_met = median < goal;
    let verdict = if is_met { "met" } else { "MISSED" };
    println!("{name:<28} {median:>12.3?}   ({least:.3?} to {most:.3?}; goal {goal:?}: {verdict})");
    is_met
}

fn main() -> ExitCode {
    let key = SigningKey::from_seed([7; 32]);
    let keys = Keys::from([key.public()]);
    let now = "2026-11-24T12:00:00Z".parse().expect("a time");
    let file = chain(10_000, &key);
    println!("10,000 receipts in one chain, {} bytes; the median of {ROUNDS} rounds", file.len());
    let body = example("receipt_1");
    let seal = Duration::from_millis(1);
    let met = [
        measured("10,000 read and verified", Duration::from_secs(2), 1, || {
            let report = Export::parse(file.as_bytes()).expect("a file").verify(&keys, now);
            assert!(report.is_sound());
        }),
        measured("one made canonical, hashed", seal, MANY, || {
            black_box(canonical::hash(&body).expect("a hash"));
        }),
        measured("one sealed, with signature", seal, MANY, || {
            black_box(ReceiptDraft::new(body.clone()).seal(None, &key).expect("a receipt"));
        }),
    ];
    if met.iter().all(|is_met| *is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
