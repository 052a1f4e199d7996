use clap::Subcommand;
use dormouse_local::program;
use dormouse_ports::InvocationRecord;
use jiff::Timestamp;

use crate::target::StoreTarget;

/// Commands about invocations that sleep.
#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// List what sleeps.
    #[command(after_help = "Examples:\n  dormouse pending\n  dormouse pending --graph expense-approval --json\n  \
        dormouse pending --due-by 2027-01-31T09:00:00Z --table dormouse\n\n\
        JSON: {\"pending\": [{\"invocation_id\", \"graph\", \"status\", \"since\", \"waits_for\", \"description\", \
        \"calls\", \"due_at\", \"then\", \"answer_with\", \"or_with\", \"fill_in\"}], \"next\"}")]
    Pending(PendingArgs),
    /// Show an invocation: what it is doing, what it waits for, its state.
    #[command(after_help = "Example:\n  dormouse show 0b5f1f9e-3c0d-4c3e-9d6f-0f6f8f6a1c11 --json\n\n\
        JSON: {\"invocation_id\", \"status\", \"graph\", \"session_id\", \"correlation_id\", \"generation\", \"since\", \
        \"node\", \"waits_for\": {\"signal_id\", \"metadata\"}, \"answers\": {\"answered\", \"missing\", \"until\", \
        \"counts\", \"veto\"}, \"wake\", \"schema_version\", \"claimed_until\", \"failure\", \"state\", \
        \"answer_with\", \"or_with\", \"fill_in\"};\nthe last three where it sleeps\nExit code 4: there is none.")]
    Show(ShowArgs),
    /// Send a signal, and go on with the invocation that waits for it.
    ///
    /// The turn runs in this process. A signal that no invocation waits for yet is parked.
    #[command(after_help = "Examples:\n  dormouse signal export-7f3a '{\"rows\": 1204}'\n  \
        dormouse signal --invocation 0b5f1f9e '{\"decision\": \"approved\"}'\n  \
        echo '{\"rows\": 3}' | dormouse signal export-7f3a -\n\n\
        JSON: {\"status\": \"completed\"|\"suspended\"|\"over\", \"invocation_id\", \"repeated\", \"state\"|\"waits_for\", \
        \"answered\", \"missing\"}, or {\"status\": \"parked\", \"signal_id\", \"until\"}\n\
        Exit code 4: there is no such invocation.")]
    Signal(SignalArgs),
    /// End an invocation for good, whether it sleeps or runs.
    ///
    /// Its wait ends with it. A timer or an event that comes later finds nothing to do.
    #[command(after_help = "Examples:\n  dormouse cancel 0b5f1f9e --reason 'ordered twice'\n  \
        dormouse cancel order-4711 --ahead --json\n\n\
        JSON: {\"status\": \"canceled\", \"invocation_id\", \"reason\", \"at\", \"repeated\"}\n\
        Exit code 1: it has ended before; 4: there is no such invocation.")]
    Cancel(CancelArgs),
    /// Let an invocation go on that was put aside because its workers died of it.
    ///
    /// It goes on with what it was to go on with; attempts are counted from the beginning. To the clients of a task it
    /// has failed, and stays so.
    #[command(after_help = "Example:\n  dormouse retry 0b5f1f9e\n\n\
        JSON: {\"status\": \"accepted\", \"invocation_id\"}\nExit code 1: it is not put aside; 4: there is no such \
        invocation.")]
    Retry(RetryArgs),
    /// Report what would become of all that sleeps if it were resumed by the graphs of this version.
    ///
    /// Nothing is rewritten in bulk: each pause is migrated when it is resumed. The report runs those migrations and
    /// throws their results away.
    #[command(
        after_help = "Examples:\n  dormouse migrate --dry-run\n  dormouse migrate --dry-run --limit 10000 --json\n\n\
        JSON: {\"examined\", \"stay\", \"groups\": [{\"graph\", \"fate\", \"reason\", \"count\", \"invocations\": [the \
        first ten]}], \"next\"};\nfates: same, reshaped, migrated; and of those that stay asleep pinned, \
        needs_migration, graph_unknown, refused, unreadable\nExit code 3: some would not go on."
    )]
    Migrate(MigrateArgs),
    /// Say in words why an invocation sleeps or is stuck, or look for everything that is stuck.
    #[command(
        after_help = "Examples:\n  dormouse doctor\n  dormouse doctor 0b5f1f9e\n  dormouse doctor --repair --json\n\n\
        JSON for one: {\"invocation_id\", \"graph\", \"generation\", \"status\", \"remarks\": [{\"finding\", \"trouble\", \
        \"sentence\", \"remedy\"|\"repaired\"|\"not_repaired\"}]};\nfor all: {\"examined\", \"in_trouble\", \"invocations\": \
        [those in trouble], \"parked_signals\": [{\"signal_id\", \"event_shape\"|\"tenant\", \"received_at\", \
        \"expires_at\"}; the oldest 100], \"more_put_aside\"}\n\
        Exit code 3: something is wrong and not repaired; 4: there is no such invocation."
    )]
    Doctor(DoctorArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct PendingArgs {
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: StoreTarget,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Filter {
    /// Only invocations of this graph.
    #[arg(long)]
    pub(crate) graph: Option<String>,
    /// Only those that wait for this signal.
    #[arg(long, value_name = "SIGNAL_ID")]
    pub(crate) signal: Option<String>,
    /// Only those that fall due until then.
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) due_by: Option<Timestamp>,
    /// About how many are listed at once.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) limit: i32,
    /// Cursor at which an earlier listing stopped.
    #[arg(long)]
    pub(crate) cursor: Option<String>,
}

/// An instant as it is typed.
fn instant(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "an instant is written as 2027-01-31T09:00:00Z or 2027-01-31T10:00:00+01:00".to_owned())
}

impl Filter {
    pub(crate) fn takes(&self, record: &InvocationRecord) -> bool {
        let paused = &record.paused;
        self.graph.as_ref().is_none_or(|graph| *graph == paused.graph)
            && self.signal.as_ref().is_none_or(|signal| paused.awaited().any(|awaited| awaited.as_str() == signal))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Invocation; the beginning of its id will do, four characters or more, where no other begins so.
    pub(crate) id: String,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: StoreTarget,
}

#[derive(Debug, clap::Args)]
#[command(override_usage = signal_usage(&program()))]
pub(crate) struct SignalArgs {
    /// Signal; with `--invocation` the payload stands here.
    #[arg(required_unless_present = "invocation")]
    pub(crate) signal_id: Option<String>,
    /// A JSON object; `-` reads it from the standard input. Without one it is empty.
    payload: Option<String>,
    /// Wake this invocation, whatever it waits for; its id may be shortened as for `show`.
    #[arg(long, value_name = "ID", conflicts_with = "payload")]
    pub(crate) invocation: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: StoreTarget,
}

impl SignalArgs {
    pub(crate) fn payload(&self) -> Option<&str> {
        match self.invocation {
            Some(_) => self.signal_id.as_deref(),
            None => self.payload.as_deref(),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// Invocation; the beginning of its id will do, four characters or more, where no other begins so.
    pub(crate) id: String,
    /// Reason; reported to all who ask for the invocation from then on.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Also when nothing is stored of it yet: it can then neither sleep nor, with an id of its caller's, complete.
    #[arg(long)]
    pub(crate) ahead: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: StoreTarget,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RetryArgs {
    /// Invocation; the beginning of its id will do, four characters or more, where no other begins so.
    pub(crate) id: String,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: StoreTarget,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MigrateArgs {
    /// Only report. There is nothing else to ask for: each pause is migrated when it is resumed.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) bounds: BoundsArgs,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: StoreTarget,
}

/// Bounds on the sleeping invocations that are looked at.
#[derive(Debug, clap::Args)]
pub(crate) struct BoundsArgs {
    /// About how many pauses are looked at; all, unless given.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Cursor at which an earlier report stopped.
    #[arg(long)]
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Invocation, as for `show`; without one, all that sleep.
    pub(crate) id: Option<String>,
    /// Do what helps, where something does. Turns run in this process.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: StoreTarget,
}

fn signal_usage(program: &str) -> String {
    format!(
        "{program} signal [OPTIONS] SIGNAL_ID [PAYLOAD]\n       {program} signal [OPTIONS] --invocation ID [PAYLOAD]"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_that_is_none_is_told_how_it_is_written() {
        let nine = instant("2027-01-31T09:00:00Z").expect("an instant");
        assert_eq!(instant("2027-01-31T10:00:00+01:00"), Ok(nine));
        for wrong in ["tomorrow", "2027-01-31", ""] {
            let refusal = instant(wrong).expect_err("no instant");
            assert!(refusal.contains("2027-01-31T09:00:00Z"), "{wrong}: {refusal}");
        }
    }
}
