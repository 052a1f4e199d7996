//! Verifies a chain of 10,000 receipts, and seals one.

use criterion::{Criterion, criterion_group, criterion_main};
use dormouse_receipts::{Draft, Export, Keys, SigningKey, example};

fn chain(count: usize, key: &SigningKey) -> String {
    let (mut text, mut previous) = (String::new(), None);
    for number in 0..count {
        let draft = Draft::new(example(&format!("receipt_{number}")));
        let sealed = draft.seal(previous.as_deref(), key).expect("a receipt");
        text.push_str(&sealed.text);
        text.push('\n');
        previous = Some(sealed.hash);
    }
    text
}

fn verify(criterion: &mut Criterion) {
    let key = SigningKey::from_seed([7; 32]);
    let keys = Keys::from([key.public()]);
    let now = "2026-11-24T12:00:00Z".parse().expect("a time");
    let file = chain(10_000, &key);
    let mut group = criterion.benchmark_group("receipts");
    group.sample_size(10);
    group.bench_function("10,000 read and verified", |bencher| {
        bencher.iter(|| {
            let report = Export::parse(file.as_bytes()).expect("a file").verify(&keys, now);
            assert!(report.is_sound());
        });
    });
    group.bench_function("one sealed", |bencher| {
        bencher.iter(|| Draft::new(example("receipt_1")).seal(None, &key).expect("a receipt"));
    });
}

criterion_group!(benches, verify);
criterion_main!(benches);
