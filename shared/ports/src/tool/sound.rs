//! What a tool may be called, and which headers of requests and variables of commands are for a definition to set.

/// The longest name of a tool.
const LONGEST: usize = 128;
/// Headers of an HTTP tool that belong to the connection, or to each call.
const OF_CALLS: [&str; 7] = [
    "connection",
    "content-length",
    "content-type",
    "dormouse-callback-url",
    "host",
    "idempotency-key",
    "transfer-encoding",
];
/// Headers of a server of tools that the protocol or the connection sets.
const OF_SERVERS: [&str; 7] =
    ["accept", "connection", "content-length", "content-type", "host", "last-event-id", "transfer-encoding"];

/// Variables that change how programs are loaded.
const OF_LOADERS: [&str; 3] = ["LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES"];

/// Checks the name of a tool: 1 to 128 letters, digits, `_`, `-`, `.` and `/` (MCP 2025-11-25, "Tool names").
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn check_tool_name(name: &str) -> Result<(), String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if name.is_empty() || name.len() > LONGEST {
        return Err(format!("its name has {} characters, and may have 1 to {LONGEST}", name.chars().count()));
    }
    match name.chars().find(|c| !sound(*c)) {
        Some(wrong) => Err(format!("its name has {wrong:?}; a name has letters, digits, `_`, `-`, `.` and `/` only")),
        None => Ok(()),
    }
}

/// True if the definition of an HTTP tool may set the header `name`.
pub fn is_header_of_http_tool(name: &str) -> bool {
    is_header(name) && !is_among(&OF_CALLS, name)
}

/// True if the definition of a server of tools may set the header `name`.
pub fn is_header_of_server(name: &str) -> bool {
    let is_of_protocol = name.get(..4).is_some_and(|beginning| beginning.eq_ignore_ascii_case("mcp-"));
    is_header(name) && !is_among(&OF_SERVERS, name) && !is_of_protocol
}

/// True if the definition of an action or a hook may set the variable `name` of its command.
pub fn is_variable_of_command(name: &str) -> bool {
    let is_sound = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_sound && !OF_LOADERS.contains(&name)
}

fn is_header(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_among(names: &[&str], name: &str) -> bool {
    names.iter().any(|taken| taken.eq_ignore_ascii_case(name))
}
