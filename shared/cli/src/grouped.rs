//! The list of commands in the help, by what they are for.

use std::fmt::Write;

use clap::Command;

/// What commands are for, and the commands, in the order in which they are met.
const GROUPS: &[(&str, &[&str])] = &[
    ("Make and run agents", &["dev", "new", "workspace", "chat", "infra", "serve"]),
    ("Give tasks and answers", &["send", "tail", "approve", "deny", "answer"]),
    ("See what sleeps, and mend it", &["pending", "show", "signal", "cancel", "retry", "doctor", "migrate", "letters"]),
    ("Prove, repeat and keep", &["receipts", "replay", "audit", "export", "mirror"]),
    ("Administer", &["keys", "vault", "erase"]),
];

/// `command` whose help lists its commands in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or_default();
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (purpose, names) in GROUPS {
        // Writing to a text does not fail.
        let _ = writeln!(template, "{header}{purpose}:{header:#}");
        for one in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = one.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {literal}{:width$}{literal:#}  {about}", one.get_name());
        }
        template.push('\n');
    }
    let _ = write!(template, "{header}Options:{header:#}\n{{options}}{{after-help}}");
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn the_help_lists_every_command_once_with_what_it_does() {
        let command = grouped(Cli::command());
        let mut known: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
        let mut listed: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        known.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, known);
        let help = command.clone().render_help().to_string();
        for one in command.get_subcommands() {
            let about = one.get_about().expect("a sentence").to_string();
            assert_eq!(help.matches(&format!("{}  ", one.get_name())).count().min(1), 1, "{help}");
            assert_eq!(help.matches(&about).count(), 1, "{help}");
        }
        assert!(help.contains("-V, --version") && help.contains("Exit codes"), "{help}");
    }
}
