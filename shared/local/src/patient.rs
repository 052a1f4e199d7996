//! A connection breaks where its client does not read what is written to it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// A connection that ends with an error where its client takes nothing for `patience` of what is to be written.
pub(crate) struct Patient {
    stream: TcpStream,
    patience: Duration,
    /// Runs while something that is to be written has to wait for the client.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    pub(crate) fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, patience, waiting: None }
    }

    /// `written`, or the error of a client that was waited for too long.
    fn in_time(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.in_time(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // What is written is with the operating system at once: nothing is left to wait for here and at the end.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// More than the operating system takes for a client that does not read.
    const MUCH: usize = 32 << 20;

    async fn pair(patience: Duration) -> (Patient, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("it is listened to");
        let (stream, _) = listener.accept().await.expect("a client");
        (Patient::new(stream, patience), client)
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_given_up() {
        let (mut server, _client) = pair(Duration::from_millis(50)).await;
        let error = server.write_all(&vec![0; MUCH]).await.expect_err("nobody reads it");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_client_that_reads_late_and_slowly_has_it_all() {
        let (mut server, mut client) = pair(Duration::from_secs(5)).await;
        let writing = tokio::spawn(async move { server.write_all(&vec![0; MUCH]).await });
        let (mut piece, mut read) = (vec![0; MUCH / 16], 0);
        for _ in 0..4 {
            sleep(Duration::from_millis(50)).await;
            read += client.read(&mut piece).await.expect("something");
        }
        while read < MUCH {
            read += client.read(&mut piece).await.expect("something");
        }
        writing.await.expect("it ends").expect("it is written");
    }
}
