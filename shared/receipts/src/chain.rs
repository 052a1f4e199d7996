//! Verifies many receipts, and that none is missing between them, moved or in the place of another.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{Flaw, Keys, Receipt};

/// Outcome of the verification of receipts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Everything that is wrong, in the order of the receipts.
    pub findings: Vec<ChainFinding>,
    /// The chains of sessions, in the order of their first receipts.
    pub chains: Vec<Chain>,
}

/// A flaw of one receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainFinding {
    /// Position of the receipt among those that were given, from 0.
    pub position: usize,
    /// Id of the receipt; empty where it cannot be read.
    pub receipt_id: String,
    /// Flaw of the receipt.
    pub flaw: Flaw,
}

/// Chain of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The session.
    pub session_id: String,
    /// Number of its receipts.
    pub receipts: usize,
    /// The hash of its last receipt. A reader who keeps it can tell later that none is missing at the end.
    pub head: String,
}

impl Report {
    /// True if nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// The same, with a finding for each chain that should end with another hash: `heads` has them by session.
    #[must_use]
    pub fn expecting(mut self, heads: &BTreeMap<String, String>) -> Self {
        for chain in &self.chains {
            if let Some(expected) = heads.get(&chain.session_id).filter(|expected| **expected != chain.head) {
                let flaw = Flaw::OtherHead { found: chain.head.clone(), expected: expected.clone() };
                self.findings.push(ChainFinding { position: 0, receipt_id: String::new(), flaw });
            }
        }
        self
    }
}

/// Verifies `receipts`, which are those of whole sessions, each session's in the order of their issue, by the keys that
/// are to be believed at `at`.
pub fn verify(receipts: &[Receipt], keys: &Keys, at: Timestamp) -> Report {
    let mut report = Report::default();
    let mut sessions: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (position, receipt) in receipts.iter().enumerate() {
        let chain = sessions.entry(receipt.session_id()).or_default();
        chain.push(position);
        if let Err(flaw) = receipt.verify(keys, at) {
            report.findings.push(finding(receipts, position, flaw));
        }
    }
    let mut chains: Vec<_> = sessions.into_iter().collect();
    chains.sort_by_key(|(_, places)| places.first().copied());
    for (session_id, places) in chains {
        report.findings.extend(links(receipts, &places));
        let head = places.last().map(|last| receipts[*last].claimed_hash().to_owned()).unwrap_or_default();
        report.chains.push(Chain { session_id: session_id.to_owned(), receipts: places.len(), head });
    }
    report.findings.sort_by_key(|finding| finding.position);
    report
}

fn finding(receipts: &[Receipt], position: usize, flaw: Flaw) -> ChainFinding {
    ChainFinding { position, receipt_id: receipts[position].id().to_owned(), flaw }
}

/// Flaws of the links between the receipts at `places`, which are those of one session.
fn links(receipts: &[Receipt], places: &[usize]) -> Vec<ChainFinding> {
    let mut by_hash: BTreeMap<&str, usize> = BTreeMap::new();
    let mut followers: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    let mut findings = Vec::new();
    let mut before: Option<&str> = None;
    for &place in places {
        by_hash.entry(receipts[place].claimed_hash()).or_insert(place);
    }
    for &place in places {
        let receipt = &receipts[place];
        let hash = receipt.claimed_hash();
        let previous = receipt.previous_hash();
        if by_hash.get(hash).is_some_and(|first| *first != place) {
            findings.push(finding(receipts, place, Flaw::Repeated));
            continue;
        }
        let other = *followers.entry(previous).or_insert(place);
        if other != place {
            let flaw = Flaw::Fork { other_id: receipts[other].id().to_owned() };
            findings.push(finding(receipts, place, flaw));
        } else if previous != before {
            let found = previous.map(|previous| (previous, by_hash.get(previous)));
            let flaw = match found {
                Some((_, Some(at))) => Flaw::OutOfOrder { previous_id: receipts[*at].id().to_owned() },
                Some((previous, None)) => Flaw::PreviousMissing { previous: previous.to_owned() },
                None => Flaw::OutOfOrder { previous_id: String::new() },
            };
            findings.push(finding(receipts, place, flaw));
        }
        before = Some(hash);
    }
    findings
}
