//! Checkpoints: progress is saved at every completed node and taken up after a crash (pipeline-utilities §10).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod crash;
mod fan_outs;
mod migrations;
mod plain;
mod world;
