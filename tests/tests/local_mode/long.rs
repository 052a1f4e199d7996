//! What a cycle costs does not depend on how many there were: as a ratio, because nobody knows the machine.

use serde_json::json;

use crate::process::{Dormouse, text};
use crate::{approval, expense, folder};

/// Stretches that are compared.
const STRETCHES: usize = 8;
/// From how many cycles on the ratio means something.
const MANY: usize = 4_000;
/// By how much the last stretches may cost more than the first ones, behind the start.
const MORE: f64 = 1.25;

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_costs_what_it_did_before() {
    let cycles = std::env::var("CYCLES").ok().and_then(|cycles| cycles.parse().ok()).unwrap_or(160_usize);
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let mut costs = Vec::new();
    for stretch in 1..=STRETCHES {
        let before = cpu(dormouse.id());
        for _ in 0..cycles / STRETCHES {
            let begun = dormouse.turn("expense-approval", &expense()).await;
            let (status, done) = dormouse.answer(text(&begun, "callback_url"), &approval("Grace")).await;
            assert_eq!((status, &done["status"]), (200, &json!("completed")), "{done}");
        }
        #[expect(clippy::cast_precision_loss, reason = "ticks of a process are few")]
        costs.push((cpu(dormouse.id()) - before) as f64 / (cycles / STRETCHES) as f64);
        println!("stretch {stretch}: {:.3} ticks of the CPU for each cycle", costs[costs.len() - 1]);
    }
    if cycles < MANY || !cfg!(target_os = "linux") {
        return;
    }
    let first = (costs[1] + costs[2]) / 2.0;
    let last = (costs[STRETCHES - 2] + costs[STRETCHES - 1]) / 2.0;
    assert!(last <= first * MORE, "a cycle cost {first:.3} ticks and then {last:.3}");
}

/// Ticks of the CPU that a process has used so far.
fn cpu(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or_default();
    ticks(11) + ticks(12)
}
