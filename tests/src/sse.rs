//! Streams of server-sent events as a client reads them that knows nothing of our code, and whose connection breaks.

use std::time::Duration;

use fastrand::Rng;
use futures::StreamExt;
use futures::stream::BoxStream;

/// How many bytes come at most before the connection breaks: some blocks.
const LONGEST: usize = 4_000;
/// How long the last block may take. Nothing is proved by it being short.
const PATIENCE: Duration = Duration::from_secs(300);

/// Reads a stream to the first block that `is_last`, while the connection breaks behind any byte. `open` asks for the
/// stream behind the event that it is given, the last one that came whole; `None` where nobody answers.
///
/// # Panics
/// When that block does not come: heartbeats would keep a stream alive for ever.
pub async fn read_in_pieces(
    rng: &mut Rng,
    open: impl AsyncFn(Option<&str>) -> Option<BoxStream<'static, Vec<u8>>>,
    is_last: impl Fn(&Block) -> bool,
) -> Vec<Block> {
    let mut told: Vec<Block> = Vec::new();
    let reading = async {
        while !told.last().is_some_and(&is_last) {
            let after = told.last().map(|block| block.id.clone());
            let Some(mut pieces) = open(after.as_deref()).await else { continue };
            let cut = rng.usize(0..LONGEST);
            let mut bytes = Vec::new();
            while bytes.len() < cut
                && !blocks(&bytes).last().is_some_and(&is_last)
                && let Some(piece) = pieces.next().await
            {
                bytes.extend(piece);
            }
            bytes.truncate(cut);
            told.extend(blocks(&bytes));
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, reading).await.is_ok();
    assert!(in_time, "the last block never came, behind {told:?}");
    told
}

/// One block of a stream of server-sent events, as a client reads it that knows nothing of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// What follows `id: `.
    pub id: String,
    /// What follows `event: `.
    pub event: String,
    /// What follows `data: `.
    pub data: String,
}

/// The blocks that stand whole in `bytes`, without comments. What is cut off behind the last empty line counts for
/// nothing.
///
/// # Panics
/// When the bytes before that line are no UTF-8, or hold a line that is no field.
pub fn blocks(bytes: &[u8]) -> Vec<Block> {
    let whole = bytes.windows(2).rposition(|two| two == b"\n\n").map_or(0, |at| at + 2);
    let text = std::str::from_utf8(&bytes[..whole]).expect("UTF-8");
    let blocks = text.split("\n\n").map(|block| {
        block.lines().filter(|line| !line.starts_with(':')).fold(Block::default(), |mut block, line| {
            let (field, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?} is no field"));
            match field {
                "id" => value.clone_into(&mut block.id),
                "event" => value.clone_into(&mut block.event),
                "data" => value.clone_into(&mut block.data),
                other => panic!("nobody knows the field {other:?}"),
            }
            block
        })
    });
    blocks.filter(|block| *block != Block::default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_blocks_count() {
        let stream = b"id: 1\nevent: a\ndata: {}\n\n: heartbeat\n\nid: 2\nevent: b\ndata: {}\n\n";
        for cut in 0..=stream.len() {
            let ids: Vec<String> = blocks(&stream[..cut]).into_iter().map(|block| block.id).collect();
            let expected: &[&str] = if cut == stream.len() {
                &["1", "2"]
            } else if cut >= 25 {
                &["1"]
            } else {
                &[]
            };
            assert_eq!(ids, expected, "{cut}");
        }
    }
}
