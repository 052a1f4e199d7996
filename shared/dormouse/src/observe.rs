//! Observers: code that sees what graphs, models and tools do, and changes nothing (graph-engine §6).
//!
//! Attach one with [`CompiledGraph::attach_observer`](crate::CompiledGraph::attach_observer). It is told of every node as
//! [`NodeEvent`], and of everything else as [`FrameworkEvent`], one after the other, beside the run. Implementing
//! [`Observer`] takes the crate `async-trait`.

pub use dormouse_engine::{
    ActivePrompt, CallOrigin, CheckpointSaved, FailureIsolated, FrameworkEvent, InvocationEnd, InvocationResult,
    InvocationStart, LlmCompletionEvent, LlmFailedEvent, LlmRequest, LlmResponse, LlmTokenEvent, MetadataAugmented,
    NodeEvent, ObservedCall, ObservedError, Observer, ObserverHandle, Operation, OperationEnded, OperationError,
    Origin, Phase, Phases, TokenBudget, ToolCallEvent, ToolCallFailedEvent, ToolCallRecord, ToolRequest, active_prompt,
    current, drain_current_events, under_prompt,
};
