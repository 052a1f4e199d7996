//! What is not logged unless somebody asks for it by name.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

/// The library that speaks with MCP servers: it logs each notice of theirs whole, with the secrets that they repeat.
const VERBATIM: &str = "rmcp";

/// `filter` without the lines of libraries that log what servers of tools say word by word, unless `directives`, of which it
/// was made, name them. What matters of it is in lines of our own.
pub fn without_verbatim(filter: EnvFilter, directives: &str) -> EnvFilter {
    match format!("{VERBATIM}=off").parse::<Directive>() {
        Ok(off) if !directives.contains(VERBATIM) => filter.add_directive(off),
        Ok(_) | Err(_) => filter,
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Whether errors and notices of the library, and lines of ours, are logged.
    fn logged(directives: &str) -> [bool; 3] {
        let filter = without_verbatim(EnvFilter::new(directives), directives);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(filter), || {
            [
                tracing::enabled!(target: "rmcp::transport::worker", Level::ERROR),
                tracing::enabled!(target: "rmcp::service", Level::INFO),
                tracing::enabled!(target: "dormouse_tools::mcp", Level::INFO),
            ]
        })
    }

    #[test]
    fn what_servers_say_is_logged_only_for_who_asks_for_it_by_name() {
        assert_eq!(logged("info"), [false, false, true]);
        assert_eq!(logged("debug,dynoxide=error"), [false, false, true]);
        assert_eq!(logged("info,rmcp=error"), [true, false, true]);
        assert_eq!(logged("rmcp::service=info"), [false, true, false]);
        assert_eq!(logged("off"), [false, false, false]);
    }
}
