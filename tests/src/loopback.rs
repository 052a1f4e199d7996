//! What asks servers of this machine: past the proxy that whoever runs the tests has in the environment.

use std::process::Command;
use std::time::Duration;

use reqwest::{Client, ClientBuilder};

/// How programs are told of this machine.
const HERE: &str = "localhost,127.0.0.1,::1";

fn client_builder() -> ClientBuilder {
    Client::builder().no_proxy()
}

/// A client for servers of this machine.
pub fn client() -> Client {
    client_builder().build().expect("a client")
}

/// The same, whose answers are there within `time`.
pub fn client_within(time: Duration) -> Client {
    client_builder().timeout(time).build().expect("a client")
}

/// Has `command` ask servers of this machine past a proxy, too, and all others as it would.
pub fn past_proxies(command: &mut Command) {
    let told = ["NO_PROXY", "no_proxy"].into_iter().find_map(|name| std::env::var(name).ok());
    let told = told.filter(|hosts| !hosts.trim().is_empty());
    let hosts = told.map_or_else(|| HERE.to_owned(), |hosts| format!("{hosts},{HERE}"));
    command.env("NO_PROXY", &hosts).env("no_proxy", &hosts);
}
