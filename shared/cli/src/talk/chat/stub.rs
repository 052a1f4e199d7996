//! Stand-ins for tests: a server that answers as it is told, a person who has written before, a conversation between them.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ChatSession, Person};
use crate::talk::ask::ServerArgs;
use crate::talk::client::Client;
use crate::talk::followed::FollowedFile;
use crate::talk::input_lines::InputLines;
use crate::talk::questions::TerminalAsker;
use crate::talk::screen::Screen;

/// A client of a server that answers each request with what `answer` makes of its first line: a status and a body.
pub(super) fn client_of(answer: impl Fn(&str) -> (&'static str, String) + Send + 'static) -> Client {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..read]);
            if let Some(line) = request.lines().next() {
                let (status, body) = answer(line);
                let length = body.len();
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
                stream.write_all(format!("{head}{body}").as_bytes()).expect("it is read");
            }
        }
    });
    Client::open(&ServerArgs { url: Some(url), key: Some("dm_x".to_owned()), data: PathBuf::new() }).expect("a client")
}

/// A person whose `lines` stand in a file, and whom no tool asks.
pub(super) fn person_who_writes(lines: &[&str]) -> Person {
    let (_, questions) = TerminalAsker::new();
    Person { lines: InputLines::written(lines), questions }
}

/// A person at a terminal, who types nothing.
pub(super) fn person_who_types() -> Person {
    Person { lines: InputLines::silent(), ..person_who_writes(&[]) }
}

/// A conversation with an agent behind `client`.
pub(super) fn session_with(client: Client) -> ChatSession {
    ChatSession {
        client,
        session: "session_1".to_owned(),
        agent: "clerk".to_owned(),
        screen: Arc::new(Screen::default()),
        followed: FollowedFile::of(Path::new("."), "clerk"),
        failed: RefCell::default(),
        missing: RefCell::default(),
        elsewhere: RefCell::default(),
        agents: RefCell::default(),
    }
}
