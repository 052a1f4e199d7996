//! What strangers cannot do, through the real binary: pages of browsers, servers that pretend to be another one, text
//! that a terminal obeys; and what happens to a folder that is not, or not any more, what it was.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the agents are pure, the command is not")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long to wait for something that must happen. Nothing is proved by it being short.
const PATIENCE: Duration = Duration::from_secs(120);

fn dormouse(arguments: &[&str], data: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command.args(arguments).arg("--data").arg(data).env_remove("DORMOUSE_URL").env_remove("DORMOUSE_KEY");
    command.output().unwrap()
}

fn complaint(arguments: &[&str], data: &Path) -> String {
    let said = dormouse(arguments, data);
    assert!(!said.status.success(), "{said:?}");
    String::from_utf8(said.stderr).unwrap()
}

/// What is written to `output`, line by line, up to its end or as long as anybody waits for a line.
fn lines(output: impl Read + Send + 'static) -> impl Iterator<Item = String> {
    let (say, told) = mpsc::channel();
    let lines = BufReader::new(output).lines();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| say.send(line)));
    std::iter::from_fn(move || told.recv_timeout(PATIENCE).ok())
}

/// A running `dormouse dev`, killed when it is dropped.
struct Dev {
    child: Child,
    address: String,
    printed: Vec<String>,
}

impl Dev {
    fn start(data: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
        command.args(["dev", "--no-tour", "--port", "0", "--data"]).arg(data).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = lines(child.stdout.take().unwrap());
        let printed: Vec<String> = lines.take(if arguments.contains(&"--store-port") { 5 } else { 4 }).collect();
        let mut dev = Self { child, address: String::new(), printed };
        let address = dev.printed.get(1).and_then(|line| line.strip_prefix("dormouse is ready at http://"));
        dev.address = address.unwrap_or_else(|| panic!("it is not ready: {:?}", dev.printed)).to_owned();
        dev
    }

    fn ask(&self, head: &str, body: &str) -> String {
        ask(&self.address, head, body)
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first line of the answer to a request as it is.
fn ask(address: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    write!(stream, "{head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

/// Every file below `folder`, and what is in it.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(self::files(&path)),
            false => drop(files.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    files
}

fn expense(text: &str) -> String {
    serde_json::json!({ "state": { "employee": text, "amount_cents": 12000, "purpose": text } }).to_string()
}

const JSON: &str = "content-type: application/json";

#[test]
fn only_this_machine_is_served_and_strange_pages_change_nothing() {
    let place = tempfile::tempdir().unwrap();
    let dev = Dev::start(&place.path().join("data"), &["--host", "tunnel.example"]);
    let get = |host: &str| dev.ask(&format!("GET / HTTP/1.1\r\nhost: {host}"), "");
    for ours in [dev.address.as_str(), "localhost", "[::1]:1", "tunnel.example"] {
        assert!(get(ours).contains("200"), "{ours}: {}", get(ours));
    }
    for strange in ["rebound.example", "localhost.rebound.example:8787", "0.0.0.0"] {
        assert!(get(strange).contains("403"), "{strange}: {}", get(strange));
    }
    let post = |origin: &str| {
        let head = format!("POST /graphs/expense-approval/turns HTTP/1.1\r\nhost: localhost\r\n{JSON}{origin}");
        dev.ask(&head, &expense("x"))
    };
    assert!(post("").contains("202"), "{}", post(""));
    assert!(post("\r\norigin: http://localhost:3000").contains("202"));
    for strange in ["https://evil.example", "null", "http://localhost.evil.example"] {
        assert!(post(&format!("\r\norigin: {strange}")).contains("403"), "{strange}");
    }
}

#[test]
fn the_store_is_for_those_who_know_its_secret() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let dev = Dev::start(&data, &["--store-port", "0"]);
    let secret = fs::read_to_string(data.join("store-key")).unwrap();
    let (_, after) = dev.printed[4].split_once("--endpoint-url http://").unwrap();
    let port = after.split(' ').next().unwrap();
    assert!(dev.printed[4].contains(&secret));
    for (address, path) in [(dev.address.as_str(), "/_local/store/"), (port, "/")] {
        let list = |more: &str| {
            let target = "x-amz-target: DynamoDB_20120810.ListTables";
            ask(address, &format!("POST {path} HTTP/1.1\r\nhost: {address}\r\n{target}{more}"), "{}")
        };
        let known = format!("\r\nx-amz-security-token: {secret}");
        assert!(list(&known).contains("200"), "{}", list(&known));
        assert!(list("").contains("400") && list("\r\nx-amz-security-token: x").contains("400"));
        assert!(list(&format!("{known}\r\norigin: http://evil.example")).contains("403"));
        assert!(list(&format!("{known}\r\norigin: http://localhost")).contains("400"), "no page at all");
    }
    drop(dev);
    let listening = |pid: u32| {
        let sockets = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let inodes: Vec<String> = sockets
            .filter_map(|socket| {
                fs::read_link(socket.unwrap().path())
                    .ok()?
                    .to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')
                    .map(str::to_owned)
            })
            .collect();
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let is_ours = |line: &&str| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields[3] == "0A" && inodes.iter().any(|inode| inode == fields[9])
        };
        table.lines().skip(1).filter(is_ours).count()
    };
    if cfg!(target_os = "linux") {
        let dev = Dev::start(&data, &[]);
        assert_eq!(listening(dev.child.id()), 2, "the gateway listens, and the script that is the tour's model");
    }
}

#[test]
fn looking_changes_no_file() {
    let place = tempfile::tempdir().unwrap();
    let looks: [&[&str]; 6] =
        [&["pending"], &["show", "x"], &["doctor"], &["doctor", "x"], &["migrate", "--dry-run"], &["keys", "list"]];
    fs::write(place.path().join("mine"), "x").unwrap();
    let before = files(place.path());
    for look in looks.into_iter().chain([
        &["cancel", "x"][..],
        &["keys", "create", "--actor", "x", "--scope", "tasks:read", "--expires-in", "1h"],
    ]) {
        let said = complaint(look, place.path());
        assert!(said.contains("nothing of Dormouse in"), "{look:?}: {said}");
    }
    assert_eq!(files(place.path()), before);

    let data = place.path().join("data");
    let dev = Dev::start(&data, &[]);
    assert!(
        dev.ask(&format!("POST /graphs/expense-approval/turns HTTP/1.1\r\nhost: localhost\r\n{JSON}"), &expense("x"))
            .contains("202")
    );
    dev.kill();
    // What the killed process left in the log of the store is taken over by whoever opens it first.
    assert!(dormouse(&["pending"], &data).status.success());
    let before = files(&data);
    for look in looks {
        dormouse(look, &data);
    }
    let after = files(&data);
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert!(after == before, "a file changed");
}

#[test]
fn what_is_lost_or_damaged_is_told_and_not_replaced() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    Dev::start(&data, &[]).kill();
    assert!(dormouse(&["pending"], &data).status.success());
    let dev = ["dev", "--no-tour", "--port", "0"];
    for (name, spoilt, told) in [
        ("dynamodb.sqlite", None, "is gone"),
        ("dynamodb.sqlite", Some(&b""[..]), "it is empty"),
        ("dynamodb.sqlite", Some(&[b'x'; 5000][..]), "it is no database"),
        ("callback-secret", None, "is gone"),
        ("callback-secret", Some(b"short"), "is damaged"),
        ("signal-key", None, "is gone"),
        ("signal-key", Some(&[0xff; 64][..]), "is damaged"),
        ("api-key", Some(b"dm_nonsense_but_long_enough_to_be_read"), "development key cannot be used"),
    ] {
        let file = data.join(name);
        let sound = fs::read(&file).unwrap();
        match spoilt {
            Some(bytes) => fs::write(&file, bytes).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let said = complaint(&dev, &data);
        assert!(said.contains(told) && said.contains(name), "{name}: {said}");
        assert_eq!(fs::read(&file).ok().as_deref(), spoilt, "{name} was touched");
        if name == "dynamodb.sqlite" {
            let said = complaint(&["pending"], &data);
            assert!(said.contains(told), "{said}");
            assert_eq!(fs::read(&file).ok().as_deref(), spoilt, "{name} was touched");
        }
        fs::write(&file, sound).unwrap();
    }
    Dev::start(&data, &[]).kill();
}

#[test]
fn a_terminal_obeys_no_stranger() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let dev = Dev::start(&data, &[]);
    let strange = "\u{1b}[2J\u{9b}31m\u{202e}\r\n- approved";
    let sent = dormouse(
        &[
            "send",
            "--persona",
            "expense-approval",
            &serde_json::json!({ "employee": strange,
        "amount_cents": 9900, "purpose": strange })
            .to_string(),
        ],
        &data,
    );
    assert!(sent.status.success(), "{sent:?}");
    let mut tail = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    let mut tail = tail.args(["tail", "--data"]).arg(&data).stdout(Stdio::piped()).spawn().unwrap();
    let pieces = BufReader::new(tail.stdout.take().unwrap()).split(b'\n');
    let (say, told) = mpsc::channel();
    std::thread::spawn(move || pieces.map_while(Result::ok).try_for_each(|piece| say.send(piece)));
    // The events of all sessions are told when nothing can come before them any more: what is looked for, and a bit more.
    let (mut stdout, mut is_told) = (Vec::new(), false);
    while let Ok(piece) = told.recv_timeout(if is_told { Duration::from_secs(1) } else { PATIENCE }) {
        is_told |= String::from_utf8_lossy(&piece).contains(r"\u{1b}[2J");
        stdout.extend(piece);
        stdout.push(b'\n');
    }
    tail.kill().unwrap();
    let tailed = Output { status: tail.wait().unwrap(), stdout, stderr: Vec::new() };
    assert!(is_told, "{tailed:?}");
    let shown = [
        dormouse(&["cancel", "--ahead", strange, "--reason", strange], &data),
        dormouse(&["show", strange], &data),
        dormouse(&["doctor", strange], &data),
        dormouse(&["cancel", strange, "--json"], &data),
        dormouse(&["show", "nobody\u{1b}[2J"], &data),
        dormouse(&["approve", "nobody\u{1b}[2J"], &data),
        dormouse(&["pending"], &data),
        tailed,
    ];
    for Output { stdout, stderr, .. } in shown {
        for text in [stdout, stderr] {
            let text = String::from_utf8(text).unwrap();
            assert!(!text.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')), "{text:?}");
            assert!(!text.lines().any(|line| line.starts_with("- approved")), "{text}");
        }
    }
    drop(dev);
}

#[test]
fn the_development_key_stays_on_this_machine() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let dev = Dev::start(&data, &[]);
    let said = complaint(&["tail", "--url", "http://evil.invalid:8787"], &data);
    assert!(said.contains("is not sent to"), "{said}");
    // A server that listens here, and refers to another one.
    let first = TcpListener::bind("127.0.0.1:0").unwrap();
    let second = TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = format!("http://localhost:{}", second.local_addr().unwrap().port());
    let address = format!("http://{}", first.local_addr().unwrap());
    let refer = std::thread::spawn(move || {
        let (mut stream, _) = first.accept().unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).unwrap();
        write!(stream, "HTTP/1.1 307 x\r\nlocation: {elsewhere}/v1\r\ncontent-length: 0\r\n\r\n").unwrap();
    });
    let said = complaint(&["tail", "--url", &address], &data);
    assert!(said.contains("refers to another address"), "{said}");
    refer.join().unwrap();
    second.set_nonblocking(true).unwrap();
    assert!(second.accept().is_err(), "nobody was asked there");
    // Another process may listen now where the ended one did.
    dev.kill();
    let said = complaint(&["tail"], &data);
    assert!(said.contains("no `dormouse dev` serves"), "{said}");
}

#[test]
fn whoever_follows_a_server_that_is_not_there_or_refuses_is_told() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    // A port that no other test is given.
    let nobody = "http://127.0.0.1:9";
    let said = complaint(&["tail", "--url", nobody, "--key", "k"], &data);
    assert!(said.contains("cannot be reached"), "{said}");

    let mut follower = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    follower.args(["mirror", "--url", nobody, "--key", "k", "--into"]).arg(place.path().join("one.db"));
    let mut follower = follower.stderr(Stdio::piped()).spawn().unwrap();
    let said = lines(follower.stderr.take().unwrap()).next().unwrap_or_default();
    follower.kill().unwrap();
    follower.wait().unwrap();
    assert!(said.contains("is tried again") && said.contains("cannot be reached"), "{said}");

    let _dev = Dev::start(&data, &[]);
    let other = place.path().join("other.db");
    let said = complaint(&["mirror", "--key", "dm_of_nobody", "--into", other.to_str().unwrap()], &data);
    assert!(said.starts_with("error: ") && !said.contains("tried again"), "{said}");
}

#[test]
fn the_end_does_not_wait_for_those_who_do_not_hang_up() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let mut dev = Dev::start(&data, &[]);
    let key = fs::read_to_string(data.join("api-key")).unwrap();
    let open = |text: &str| {
        let mut stream = TcpStream::connect(&dev.address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let version = "harn-agents-protocol-version: agents-protocol-2026-04-25";
    let _held = [
        open(&format!(
            "GET /v1/events/stream HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n{version}\r\n\r\n"
        )),
        open("GET / HTTP/1.1\r\nhost: local"),
        open(&format!(
            "POST /graphs/reminder/turns HTTP/1.1\r\nhost: localhost\r\n{JSON}\r\ncontent-length: 100\r\n\r\n{{"
        )),
        open(""),
    ];
    std::thread::sleep(Duration::from_millis(500));
    let asked = std::time::Instant::now();
    assert!(Command::new("kill").args(["-TERM", &dev.child.id().to_string()]).status().unwrap().success());
    // It takes less than 5 seconds, and without its bound for ever; a busy machine may need more.
    let ended = loop {
        if let Some(ended) = dev.child.try_wait().unwrap() {
            break ended;
        }
        assert!(asked.elapsed() < PATIENCE, "it waits for them");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(ended.success());
}
