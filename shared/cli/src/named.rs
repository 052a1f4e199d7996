//! Help and errors under the name of the program that serves the agents: a package of agents has a binary of its own.

use clap::Command;
use clap::builder::{Resettable, StyledStr};

/// Name of the command in the texts of this crate.
const NAME: &str = "dormouse ";

/// `command` whose help names `program` where it shows a command to paste.
pub(crate) fn named(command: Command, program: &str) -> Command {
    if program == NAME.trim_end() {
        return command;
    }
    let text = |text: Option<&StyledStr>| {
        Resettable::from(text.map(|text| StyledStr::from(renamed(&text.to_string(), program))))
    };
    let subcommands: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let about = text(command.get_about());
    let long_about = text(command.get_long_about());
    let after = text(command.get_after_help());
    let command = command.mut_args(|arg| {
        let help = text(arg.get_help());
        let long_help = text(arg.get_long_help());
        arg.help(help).long_help(long_help)
    });
    let command = command.about(about).long_about(long_about).after_help(after);
    subcommands.into_iter().fold(command, |command, one| command.mut_subcommand(one, |one| named(one, program)))
}

/// `text` with `program` in the place of the command; names that only end like it stay.
pub(crate) fn renamed(text: &str, program: &str) -> String {
    let mut pieces = text.split(NAME);
    let mut renamed = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let is_command = !renamed.ends_with(|before: char| before.is_alphanumeric() || "./-_".contains(before));
        renamed.push_str(if is_command { program } else { NAME.trim_end() });
        renamed.push(' ');
        renamed.push_str(piece);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn the_help_of_every_command_names_the_program_that_has_it() {
        fn check(command: &mut Command) {
            let help = command.render_long_help().to_string();
            let name = command.get_name().to_owned();
            assert_eq!(renamed(&help, "leave"), help, "{name}");
            command.get_subcommands_mut().for_each(check);
        }
        let mut command = named(Cli::command(), "bin/leave").bin_name("leave");
        command.build();
        check(&mut command);
        let pending = command.find_subcommand_mut("replay").expect("a command");
        assert!(pending.render_long_help().to_string().contains("\n  bin/leave replay "));
    }

    #[test]
    fn only_the_command_is_renamed() {
        let text = "dormouse dev keeps .dormouse in order; `dormouse pending`";
        assert_eq!(renamed(text, "leave"), "leave dev keeps .dormouse in order; `leave pending`");
    }
}
