use std::time::Duration;

use dormouse_api::{AccessPolicy, RateLimits};
use dormouse_harness::RulePolicy;
use dormouse_ports::{InvocationLimits, limits};
use jiff::SignedDuration;

use crate::{ConfigError, Limits, Variables};

/// Limits of [`dormouse_ports::limits`] that an operator may change, in the environment of a function or of local mode.
/// What is not set keeps its default.
///
/// | variable | limit | at most |
/// |---|---|---|
/// | `DORMOUSE_LIMIT_BODY` | bytes of the body of a turn or a message | 6 MiB, which Lambda takes |
/// | `DORMOUSE_LIMIT_SIGNAL_PAYLOAD` | bytes of JSON of the payload of a signal | 256 KiB, which EventBridge carries |
/// | `DORMOUSE_LIMIT_EARLY_SIGNALS` | seconds that a signal is kept which no invocation awaits; 0 refuses it | a year |
/// | `DORMOUSE_LIMIT_STATE` | bytes of JSON of a state that is written | 64 MiB |
/// | `DORMOUSE_LIMIT_PAUSES` | pauses of one invocation | 1,000,000 |
/// | `DORMOUSE_LIMIT_SELF_WAKES` | pauses in a row that wake by themselves at once | 10,000 |
/// | `DORMOUSE_LIMIT_NODES` | nodes in a row without a pause | 100,000,000 |
/// | `DORMOUSE_LIMIT_ATTEMPTS` | workers in a row that may die of one invocation before it is put aside | 1,000 |
/// | `DORMOUSE_LIMIT_ADDRESS` | seconds for which a given address with a token is good; at least a minute | ten years |
/// | `DORMOUSE_KEY_RATE` | requests that one key may send in a minute; 0, as it is without it, for any number | 1,000,000 |
/// | `DORMOUSE_TENANT_RATE` | the same of all keys of a tenant together | 1,000,000 |
/// | `DORMOUSE_STREAMS_OF_TENANT` | streams that a tenant may have open in all processes of a table together; 0, as it is without it: each process counts for itself | 10,000 |
/// | `DORMOUSE_SIGNALS_OF_TENANTS` | `enabled`: keys of tenants may send signals, and each wait of what a tenant began is one item more; `disabled` without it | |
/// | `DORMOUSE_AUDIT_DAYS` | days for which it is kept who did what; 0, as it is without it, keeps nothing | 3,660 |
/// | `DORMOUSE_LIMIT_PATTERN_RULES` | rules of ours on the event bus | 2,000; the account's quota: 300 unless raised |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Limits on input.
    pub limits: Limits,
    /// Limits on how often one invocation may sleep, and on how much.
    pub invocation: InvocationLimits,
    /// Access policy: what is asked of callers, and noted about them.
    pub access: AccessPolicy,
    /// Number of streams that a tenant may have open in all processes together, where that is counted.
    pub streams_of_tenant: Option<usize>,
}

impl Quotas {
    /// Reads variables through `look_up`.
    ///
    /// # Errors
    /// [`ConfigError`] names all variables that are malformed.
    pub fn from_variables(look_up: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut variables = Variables::new(look_up);
        let quotas = Self::read(&mut variables);
        variables.complete(quotas)
    }

    /// Reads them among other `variables`, which keep the faults.
    pub fn read<F: Fn(&str) -> Option<String>>(variables: &mut Variables<F>) -> Self {
        let usual = Limits::default();
        let invocation = InvocationLimits::default();
        let early = usual.early_signals.map_or(0, |kept| kept.as_secs());
        let early = variables.number("DORMOUSE_LIMIT_EARLY_SIGNALS", early, 0..=365 * 24 * 3600);
        let limits = Limits {
            body: variables.number("DORMOUSE_LIMIT_BODY", usual.body, 1..=6 * limits::BODY),
            signal_payload: variables.number(
                "DORMOUSE_LIMIT_SIGNAL_PAYLOAD",
                usual.signal_payload,
                1..=limits::SIGNAL_PAYLOAD,
            ),
            early_signals: (early > 0).then(|| Duration::from_secs(early)),
            rules: RulePolicy {
                most: variables.number("DORMOUSE_LIMIT_PATTERN_RULES", usual.rules.most, 1..=2_000),
                ..usual.rules
            },
            attempts: variables.number("DORMOUSE_LIMIT_ATTEMPTS", usual.attempts, 1..=1_000),
            address: Duration::from_secs(variables.number(
                "DORMOUSE_LIMIT_ADDRESS",
                usual.address.as_secs(),
                60..=10 * 366 * 24 * 3600,
            )),
            signals_of_tenants: variables.is_enabled("DORMOUSE_SIGNALS_OF_TENANTS"),
            ..usual
        };
        let invocation = InvocationLimits {
            state: variables.number("DORMOUSE_LIMIT_STATE", invocation.state, 1..=4 * limits::STATE_JSON),
            pauses: variables.number("DORMOUSE_LIMIT_PAUSES", invocation.pauses, 1..=1_000_000),
            self_wakes: variables.number("DORMOUSE_LIMIT_SELF_WAKES", invocation.self_wakes, 1..=10_000),
            nodes: variables.number("DORMOUSE_LIMIT_NODES", invocation.nodes, 1..=100_000_000),
        };
        let streams = variables.number("DORMOUSE_STREAMS_OF_TENANT", 0, 0..=10_000);
        Self {
            limits,
            invocation,
            access: access(variables),
            streams_of_tenant: Some(streams).filter(|most| *most > 0),
        }
    }
}

fn access<F: Fn(&str) -> Option<String>>(variables: &mut Variables<F>) -> AccessPolicy {
    let mut rate = |name: &str| Some(variables.number(name, 0, 0..=1_000_000)).filter(|rate| *rate > 0);
    let rates = RateLimits { key: rate("DORMOUSE_KEY_RATE"), tenant: rate("DORMOUSE_TENANT_RATE") };
    let days = variables.number("DORMOUSE_AUDIT_DAYS", 0_i64, 0..=3_660);
    AccessPolicy { rates, audit: (days > 0).then(|| SignedDuration::from_hours(24 * days)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Quotas {
        let given = |asked: &str| (asked == name).then(|| value.to_owned());
        Quotas::from_variables(given).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// What it makes of the usual limits is all that is different.
    #[test]
    fn each_variable_sets_its_own_limit_and_no_other() {
        type Change = fn(&mut Quotas);
        let changes: [(&str, &str, Change); 16] = [
            ("DORMOUSE_LIMIT_BODY", "7", |quotas| quotas.limits.body = 7),
            ("DORMOUSE_LIMIT_SIGNAL_PAYLOAD", "7", |quotas| quotas.limits.signal_payload = 7),
            ("DORMOUSE_LIMIT_EARLY_SIGNALS", "7", |quotas| quotas.limits.early_signals = Some(Duration::from_secs(7))),
            ("DORMOUSE_LIMIT_EARLY_SIGNALS", "0", |quotas| quotas.limits.early_signals = None),
            ("DORMOUSE_LIMIT_STATE", "7", |quotas| quotas.invocation.state = 7),
            ("DORMOUSE_LIMIT_PAUSES", "7", |quotas| quotas.invocation.pauses = 7),
            ("DORMOUSE_LIMIT_SELF_WAKES", "7", |quotas| quotas.invocation.self_wakes = 7),
            ("DORMOUSE_LIMIT_NODES", "7", |quotas| quotas.invocation.nodes = 7),
            ("DORMOUSE_LIMIT_ATTEMPTS", "7", |quotas| quotas.limits.attempts = 7),
            ("DORMOUSE_LIMIT_ADDRESS", "77", |quotas| quotas.limits.address = Duration::from_secs(77)),
            ("DORMOUSE_LIMIT_PATTERN_RULES", "7", |quotas| quotas.limits.rules.most = 7),
            ("DORMOUSE_KEY_RATE", "7", |quotas| quotas.access.rates.key = Some(7)),
            ("DORMOUSE_TENANT_RATE", "7", |quotas| quotas.access.rates.tenant = Some(7)),
            ("DORMOUSE_STREAMS_OF_TENANT", "7", |quotas| quotas.streams_of_tenant = Some(7)),
            ("DORMOUSE_SIGNALS_OF_TENANTS", "enabled", |quotas| quotas.limits.signals_of_tenants = true),
            ("DORMOUSE_AUDIT_DAYS", "7", |quotas| quotas.access.audit = Some(SignedDuration::from_hours(7 * 24))),
        ];
        let usual = with("", "");
        assert_eq!((&usual.limits, usual.invocation), (&Limits::default(), InvocationLimits::default()));
        for (name, value, change) in changes {
            let mut expected = usual.clone();
            change(&mut expected);
            assert_ne!(expected, usual, "{name}: it changes something");
            assert_eq!(with(name, value), expected, "{name}");
        }
    }

    #[test]
    fn a_zero_switches_off_what_is_off_without_a_word() {
        let off = ["DORMOUSE_KEY_RATE", "DORMOUSE_TENANT_RATE", "DORMOUSE_STREAMS_OF_TENANT", "DORMOUSE_AUDIT_DAYS"];
        for name in off {
            assert_eq!(with(name, "0"), with("", ""), "{name}");
        }
    }
}
