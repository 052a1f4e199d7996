//! Servers that are processes of this machine.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dormouse_ports::tool::ToolError;
use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessGroup};
use rmcp::model::RequestId;
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::connection::Start;
use super::heard::Heard;
use super::http::too_large;
use super::lines::{Line, Lines};
use crate::Values;
use crate::failure::unresolved;

/// Variables that every process gets, as far as they are set; everything else is named by its author.
const INHERITED: &[&str] = &["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"];

/// Time in which a process is to end by itself when its input has ended, and then by a signal.
const TO_END: Duration = Duration::from_secs(3);
/// The signal that asks a process to end, the same everywhere (POSIX).
const SIGTERM: i32 = 15;

/// Bytes of its output that are read at once.
const PIECE: usize = 8 * 1024;

/// The messages that are exchanged with a process. It ends with them.
pub(super) struct ProcessTransport {
    messages: AsyncRwTransport<RoleClient, Overheard, ChildStdin>,
    /// The requests whose answers have more than `most_bytes`, and are not read.
    unread: mpsc::UnboundedReceiver<RequestId>,
    most_bytes: usize,
    process: Process,
}

/// Starts a command line in a shell, in a process group of its own. What it says besides messages is `heard`.
///
/// # Errors
/// A reference of its environment leads nowhere, or the process cannot be started.
pub(super) async fn start(start: &Start<'_>, values: &Values, heard: &Heard) -> Result<ProcessTransport, ToolError> {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(start.command).env_clear().kill_on_drop(true);
    shell.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    for (name, value) in start.environment {
        shell.env(name, values.resolve(value).await.map_err(|error| unresolved(&error))?.expose());
    }
    if let Some(folder) = start.folder {
        shell.current_dir(folder);
    }
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawned(shell, heard, start.most_bytes)
        .map_err(|error| ToolError::permanent(format!("its process cannot be started: {error}")))
}

fn spawned(shell: Command, heard: &Heard, most_bytes: usize) -> io::Result<ProcessTransport> {
    let mut group = CommandWrap::from(shell);
    group.wrap(ProcessGroup::leader());
    let mut child = group.spawn()?;
    let (input, output, complaints) = (child.stdin().take(), child.stdout().take(), child.stderr().take());
    let process = Process(Some(child));
    let (Some(input), Some(output), Some(complaints)) = (input, output, complaints) else {
        return Err(io::Error::other("it has no input, or no output"));
    };
    let (end, ended) = watch::channel(());
    heard.begin(ended);
    tokio::spawn(hear(heard.clone(), complaints, end));
    let (found, unread) = mpsc::unbounded_channel();
    let (lines, read) = (Lines::new(most_bytes), VecDeque::new());
    let output = Overheard { output, heard: heard.clone(), lines, unread: found, read };
    // Its lines are bounded before they come there.
    let messages = AsyncRwTransport::<RoleClient, _, _>::new(output, input).with_max_line_length(usize::MAX);
    Ok(ProcessTransport { messages, unread, most_bytes, process })
}

/// Reads `complaints` to their `end`, so that the process never waits for a reader.
async fn hear(heard: Heard, mut complaints: impl AsyncRead + Unpin, end: watch::Sender<()>) {
    let mut piece = [0; 1024];
    while let Ok(read) = complaints.read(&mut piece).await {
        if read == 0 {
            break;
        }
        heard.complains(&piece[..read]);
    }
    drop(end);
}

/// The output of a process, of which is heard what is no message, and what is too long for one. What is read of it are whole lines,
/// of one message each.
struct Overheard {
    output: ChildStdout,
    heard: Heard,
    lines: Lines,
    unread: mpsc::UnboundedSender<RequestId>,
    /// What was read of it and is not taken yet.
    read: VecDeque<u8>,
}

impl Overheard {
    fn take(&mut self, line: Line) {
        match line {
            Line::Messages(messages) => {
                for message in messages {
                    self.read.extend(message.strip_suffix(b"\n").unwrap_or(&message));
                    self.read.push_back(b'\n');
                }
            }
            Line::Unread(Some(answered)) => {
                // Who does not receive any more waits for nothing.
                let _ = self.unread.send(answered);
            }
            Line::Unread(None) => {}
        }
    }
}

impl AsyncRead for Overheard {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.read.is_empty() {
            let mut room = [0; PIECE];
            let mut piece = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut this.output).poll_read(cx, &mut piece))?;
            if piece.filled().is_empty() {
                let Some(line) = this.lines.rest() else { return Poll::Ready(Ok(())) };
                this.take(line);
                continue;
            }
            this.heard.says(piece.filled());
            for line in this.lines.read(piece.filled()) {
                this.take(line);
            }
        }
        let (front, _) = this.read.as_slices();
        let most = front.len().min(buffer.remaining());
        buffer.put_slice(&front[..most]);
        this.read.drain(..most);
        Poll::Ready(Ok(()))
    }
}

impl Transport<RoleClient> for ProcessTransport {
    type Error = io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.messages.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        tokio::select! {
            // What was not read came before the end.
            message = self.messages.receive() => {
                message.or_else(|| Some(too_large(self.unread.try_recv().ok()?, self.most_bytes)))
            }
            Some(answered) = self.unread.recv() => Some(too_large(answered, self.most_bytes)),
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.messages.close().await?;
        self.process.end().await
    }
}

/// A process, until it has ended.
struct Process(Option<Box<dyn ChildWrapper>>);

impl Process {
    /// Waits for its end, asks for it, and enforces it.
    async fn end(&mut self) -> io::Result<()> {
        let Some(child) = &mut self.0 else { return Ok(()) };
        for signal in [None, Some(SIGTERM)] {
            if let Some(Err(error)) = signal.map(|signal| child.signal(signal)) {
                tracing::debug!(%error, "the process of an MCP server could not be asked to end");
            }
            if let Ok(ended) = timeout(TO_END, child.wait()).await {
                // The shell has ended; what it started may heed neither the end of its input nor a signal.
                let _ = child.start_kill();
                self.0 = None;
                return ended.map(|_| ());
            }
        }
        Box::into_pin(child.kill()).await?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        if let Err(error) = child.start_kill() {
            tracing::debug!(%error, "the process of an MCP server could not be ended");
        }
        // A process that is killed is waited for.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { drop(child.wait().await) });
        }
    }
}
