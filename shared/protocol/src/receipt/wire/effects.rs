//! Side effects of a task.

use serde::{Deserialize, Serialize};

use super::words::{FileOperation, HandoffStatus, ToolCallStatus};
use super::{PrefixedSha256, closed};
use crate::envelope::Map;

closed! {
    /// Side effects of a task.
    SideEffects {
        /// Files.
        fs_writes: Vec<FileWrite>,
        /// Network.
        network_egress: Vec<NetworkEgress>,
        /// Tools.
        tool_calls: Vec<ToolCall>,
        /// Other agents.
        a2a_handoffs: Vec<A2aHandoff>,
    }

    /// A file that was changed.
    FileWrite {
        /// Path of the file.
        path: String,
        /// Operation.
        operation: FileOperation,
        /// Its hash before; null if there was none.
        #[serde(default, deserialize_with = "crate::envelope::present", skip_serializing_if = "Option::is_none")]
        before_sha256: Option<Option<PrefixedSha256>>,
        /// Its hash after; null if there is none.
        #[serde(default, deserialize_with = "crate::envelope::present", skip_serializing_if = "Option::is_none")]
        after_sha256: Option<Option<PrefixedSha256>>,
    }

    /// Something that was sent out.
    NetworkEgress {
        /// Destination.
        destination: String,
        /// Purpose.
        purpose: String,
        /// Amount.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes_sent: Option<u64>,
        /// More about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Map>,
    }

    /// A tool that was called.
    ToolCall {
        /// Name of the tool.
        tool: String,
        /// Names the call.
        call_id: String,
        /// Result of the call.
        status: ToolCallStatus,
        /// The hash of what it took.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input_hash: Option<PrefixedSha256>,
        /// The hash of what it gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_hash: Option<PrefixedSha256>,
        /// More about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Map>,
    }

    /// Work that another agent got.
    A2aHandoff {
        /// Agent that it was handed to.
        target_agent: String,
        /// Its task.
        task_id: String,
        /// Outcome.
        status: HandoffStatus,
        /// Its receipt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt_id: Option<String>,
    }
}
