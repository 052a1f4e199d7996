use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use crate::target::{StoreTarget, usual_data};
use crate::terminal::quoted;

/// Commands that are sent to a server.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Submit a task, in a new session unless one is named.
    #[command(after_help = "Examples:\n  dormouse send --persona chat 'Hello, who are you?'\n  \
        dormouse send --persona expense-approval --follow '{\"employee\": \"Ada\", \"amount_cents\": 12000}'\n  \
        echo '{\"text\": \"stretch\", \"after\": \"PT20S\"}' | dormouse send --persona reminder -\n\n\
        JSON: the task; with --follow its events before it, one document a line.\n\
        Exit code 5: the task that was followed failed or was canceled.")]
    #[command(name = "send")]
    SendTask(SendTask),
    /// Talk with an agent of a folder of Markdown and YAML, in this terminal.
    ///
    /// What it says is shown as it comes, each call of a tool in a line, and what it asks is answered in place. Ctrl-C
    /// stops an answer. The conversation is kept, and goes on the next time.
    #[command(after_help = "Examples:\n  dormouse chat assistant\n  dormouse chat . --agent reviewer --new\n\n\
        Exit code 5: its input is no terminal, and a run failed, or waits for its model's key to be mended.")]
    Chat(super::Chat),
    /// Watch what happens, live: everything, a session, or a task until it ends.
    ///
    /// What happened before comes first. When the connection is lost it is taken up where it was.
    #[command(after_help = "Examples:\n  dormouse tail\n  dormouse tail --session session_01J… --json\n  \
        dormouse tail --task task_01J…\n\n\
        JSON: events, one document a line; after the last one of a task the task.\n\
        Exit code 4: there is no such session or task; 5: the task failed or was canceled.")]
    Tail(Tail),
    /// Say yes to what a task or another invocation waits for.
    ///
    /// A task is answered through its server. Any other invocation of the data folder goes on in this process.
    #[command(after_help = "Examples:\n  dormouse approve task_01J…\n  dormouse approve 0b5f1f9e\n  \
        dormouse approve task_01J… '{\"reason\": \"once\"}' --follow\n  dormouse approve task_01J… --part ada\n\n\
        A task is answered by whoever the key belongs to, any other invocation by --by NAME.\n\
        JSON: the task, or what `dormouse signal` prints. Exit code 4: there is no such task or invocation.")]
    Approve(AnswerArgs),
    /// Say no to what a task or another invocation waits for; as `approve` otherwise.
    #[command(
        after_help = "Examples:\n  dormouse deny task_01J…\n  dormouse deny task_01J… --reason 'not this month'\n\n\
        A task is answered by whoever the key belongs to, any other invocation by --by NAME.\n\
        JSON: the task, or what `dormouse signal` prints. Exit code 4: there is no such task or invocation."
    )]
    Deny(DenyArgs),
    /// Give a task or another invocation the answer that it waits for; as `approve` otherwise.
    #[command(after_help = "Examples:\n  dormouse answer task_01J… '{\"rows\": 1204}'\n  \
        dormouse answer 0b5f1f9e '{\"decision\": \"approved\"}'\n  dormouse answer task_01J… 'The blue one.'\n\n\
        `dormouse pending` and `dormouse show` print the command for each that sleeps.\n\
        JSON: the task, or what `dormouse signal` prints. Exit code 4: there is no such task or invocation.")]
    Answer(AnswerArgs),
}

/// Server, and the key for it.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// Address of the server; without it that of the `dormouse dev` which runs on the data folder.
    #[arg(long, env = "DORMOUSE_URL", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// API key; without it the development key in the data folder. Better in the environment than on the command line.
    #[arg(long, env = "DORMOUSE_KEY", value_name = "KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,
    /// Data folder of local mode. Where there is no `.dormouse`, it is that of the workspace in the current folder.
    #[arg(long, default_value_os_t = usual_data(), value_name = "FOLDER")]
    pub(crate) data: PathBuf,
}

impl ServerArgs {
    /// The address that is named. An empty one is none: so a script has it that sets the variable to what it does not have.
    pub(crate) fn url(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| !url.is_empty())
    }

    /// The key that is named, likewise, without the line feed of the file that it was read from.
    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref().map(str::trim).filter(|key| !key.is_empty())
    }

    /// The options of a command that asks the same server again, each behind a blank; a key is not among them.
    pub(crate) fn options(&self) -> String {
        match self.url() {
            Some(url) => format!(" --url {}", quoted(url)),
            None => StoreTarget::folder(self.data.clone()).options(),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendTask {
    /// A JSON object, or text that a user says; `-` reads it from the standard input.
    pub(crate) input: String,
    /// Session to work in; a new one without it.
    #[arg(long, value_name = "SESSION_ID")]
    pub(crate) session: Option<String>,
    /// Workspace of a new session; the first that there is without it.
    #[arg(long, value_name = "WORKSPACE_ID", conflicts_with = "session")]
    pub(crate) workspace: Option<String>,
    /// Persona that shall do the work: the name of a graph.
    #[arg(long, value_name = "NAME")]
    pub(crate) persona: Option<String>,
    /// Watch the task until it ends.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Tail {
    #[command(flatten)]
    pub(crate) place: WatchedPlace,
    /// Begin behind this event.
    #[arg(long, value_name = "EVENT_ID")]
    pub(crate) after: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Subject that is watched; everything when nothing is named.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct WatchedPlace {
    /// Only this session.
    #[arg(long, value_name = "SESSION_ID")]
    pub(crate) session: Option<String>,
    /// Only this task.
    #[arg(long, value_name = "TASK_ID")]
    pub(crate) task: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DenyArgs {
    /// Why, in words.
    #[arg(long, value_name = "WORDS", conflicts_with = "payload")]
    reason: Option<String>,
    #[command(flatten)]
    answer: AnswerArgs,
}

impl DenyArgs {
    /// The answer with its reason.
    pub(crate) fn into_answer(self) -> AnswerArgs {
        let reason = self.reason.map(|reason| json!({ "reason": reason.trim() }).to_string());
        AnswerArgs { payload: reason.or(self.answer.payload), ..self.answer }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct AnswerArgs {
    /// Task or invocation; in a data folder the beginning of its id will do, as for `show`.
    pub(crate) id: String,
    /// Answer: a JSON object, for `answer` words too, for `deny` the reason; `-` reads it from the standard input.
    pub(crate) payload: Option<String>,
    /// For whom, where several answers are waited for.
    #[arg(long, value_name = "NAME")]
    pub(crate) part: Option<String>,
    /// Number of the pause that was shown: an answer to it is none to a later one. Without it the answer is to what is
    /// asked now, which is shown first.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) pause: Option<u64>,
    /// Who answers, for an invocation of the data folder; a task is answered by the owner of the key.
    #[arg(long, value_name = "NAME", conflicts_with = "url")]
    pub(crate) by: Option<String>,
    /// Watch the task until it ends.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Given {
        #[command(subcommand)]
        command: ClientCommand,
    }

    fn given(words: &[&str]) -> Result<AnswerArgs, clap::Error> {
        let parsed = Given::try_parse_from(["dormouse", "deny", "task_1"].iter().chain(words))?;
        let ClientCommand::Deny(asked) = parsed.command else { panic!("another command") };
        Ok(asked.into_answer())
    }

    #[test]
    fn a_reason_is_words_whatever_they_look_like() {
        let payload = |words: &[&str]| given(words).expect("arguments").payload;
        assert_eq!(payload(&["--reason", " 42 "]).as_deref(), Some(r#"{"reason":"42"}"#));
        assert_eq!(payload(&["--reason", "-"]).as_deref(), Some(r#"{"reason":"-"}"#));
        assert_eq!(payload(&["not this month"]).as_deref(), Some("not this month"));
        assert_eq!(payload(&[]), None);
        let twice = given(&["not this month", "--reason", "never"]).expect_err("one reason alone").to_string();
        assert!(twice.contains("--reason"), "{twice}");
    }
}
