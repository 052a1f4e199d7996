use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! categories {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// The name of an error, as the specifications spell it. Each name is spelled here and nowhere else.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Category {
            $($(#[$doc])* $variant,)+
            /// A category that the application defines.
            Application(Box<str>),
        }

        impl Category {
            /// Every category of the specifications.
            pub const SPECIFIED: &[Category] = &[$(Category::$variant),+];

            /// The `snake_case` name.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $name,)+
                    Self::Application(name) => name,
                }
            }

            /// The category of that name; one the specifications do not know is the application's own.
            pub fn from_name(name: &str) -> Self {
                match name {
                    $($name => Self::$variant,)+
                    other => Self::Application(other.into()),
                }
            }
        }
    };
}

categories! {
    // graph-engine §2
    /// No entry node was declared.
    NoDeclaredEntry = "no_declared_entry",
    /// A node has no path from the entry.
    UnreachableNode = "unreachable_node",
    /// An edge names a node that is not declared.
    DanglingEdge = "dangling_edge",
    /// A node has more than one outgoing edge.
    MultipleOutgoingEdges = "multiple_outgoing_edges",
    /// A field has more than one reducer.
    ConflictingReducers = "conflicting_reducers",
    /// A projection names a field that is not declared.
    MappingReferencesUndeclaredField = "mapping_references_undeclared_field",
    /// A subgraph node declares both forms of projection.
    ConflictingProjectionForms = "conflicting_projection_forms",
    /// A reducer was given parameters that make no sense.
    ReducerConfigurationInvalid = "reducer_configuration_invalid",
    // graph-engine §4
    /// A node raised.
    NodeException = "node_exception",
    /// An edge function raised.
    EdgeException = "edge_exception",
    /// A reducer raised.
    ReducerError = "reducer_error",
    /// A conditional edge named no declared node.
    RoutingError = "routing_error",
    /// State does not fit its schema.
    StateValidationError = "state_validation_error",
    // pipeline-utilities §9
    /// A fan-out has no instances.
    FanOutEmpty = "fan_out_empty",
    /// A fan-out's count is negative, or larger than any that is run.
    FanOutInvalidCount = "fan_out_invalid_count",
    /// A fan-out's concurrency is not positive.
    FanOutInvalidConcurrency = "fan_out_invalid_concurrency",
    /// A fan-out's items are no list.
    FanOutFieldNotList = "fan_out_field_not_list",
    /// A fan-out has both items and a count, or neither.
    FanOutCountModeAmbiguous = "fan_out_count_mode_ambiguous",
    /// A degraded instance would leave its slot empty.
    FanOutDegradedUpdateMissingCollectField = "fan_out_degraded_update_missing_collect_field",
    // pipeline-utilities §11.9
    /// A parallel-branches node has no branches.
    ParallelBranchesNoBranches = "parallel_branches_no_branches",
    /// A branch is neither a subgraph nor a call, or both.
    ParallelBranchesInvalidBranchSpec = "parallel_branches_invalid_branch_spec",
    /// A branch failed.
    ParallelBranchesBranchFailed = "parallel_branches_branch_failed",
    // sessions §10
    /// The session could not be loaded.
    SessionLoadFailed = "session_load_failed",
    /// The session could not be saved.
    SessionSaveFailed = "session_save_failed",
    /// No migration leads from the stored version to the declared one.
    SessionStateMigrationMissing = "session_state_migration_missing",
    /// More than one shortest migration path, or a pair registered twice.
    SessionStateMigrationChainAmbiguous = "session_state_migration_chain_ambiguous",
    /// A migration raised.
    SessionStateMigrationFailed = "session_state_migration_failed",
    /// The session was changed meanwhile.
    SessionWriteConflict = "session_write_conflict",
    // pipeline-utilities §10.10
    /// There is no checkpoint of that invocation, or no checkpointer to ask for it.
    CheckpointNotFound = "checkpoint_not_found",
    /// The checkpoint could not be saved.
    CheckpointSaveFailed = "checkpoint_save_failed",
    /// The checkpoint does not fit the graph.
    CheckpointRecordInvalid = "checkpoint_record_invalid",
    /// No migration leads from the checkpoint's version to the declared one.
    CheckpointStateMigrationMissing = "checkpoint_state_migration_missing",
    /// A migration of a checkpoint raised.
    CheckpointStateMigrationFailed = "checkpoint_state_migration_failed",
    /// More than one shortest migration path, or a pair registered twice.
    CheckpointStateMigrationChainAmbiguous = "checkpoint_state_migration_chain_ambiguous",
    // suspension §9
    /// The pause could not be stored.
    SuspensionPersistenceFailed = "suspension_persistence_failed",
    /// The invocation is not asleep.
    SuspensionRecordInvalid = "suspension_record_invalid",
    /// The payload does not fit the state schema.
    SuspensionResumePayloadInvalid = "suspension_resume_payload_invalid",
    /// `suspend()` was called where it may not be.
    SuspensionInUnsupportedContext = "suspension_in_unsupported_context",
    // harness §10
    /// No session id could be found in the transmission.
    HarnessSessionIdUnresolved = "harness_session_id_unresolved",
    /// The wake-up could not be registered.
    HarnessSignalSubscriptionFailed = "harness_signal_subscription_failed",
    /// The signal belongs to no paused invocation.
    HarnessSignalCorrelationFailed = "harness_signal_correlation_failed",
    /// The transmission fits more than one path, or none.
    HarnessPathClassificationAmbiguous = "harness_path_classification_ambiguous",
    // harness-chat §10.4
    /// The inbound message is malformed.
    ChatMessageShapeInvalid = "chat_message_shape_invalid",
    // llm-provider §7
    /// Credentials were refused.
    ProviderAuthentication = "provider_authentication",
    /// The provider does not answer.
    ProviderUnavailable = "provider_unavailable",
    /// No such model.
    ProviderInvalidModel = "provider_invalid_model",
    /// The model is not loaded yet.
    ProviderModelNotLoaded = "provider_model_not_loaded",
    /// Too many requests.
    ProviderRateLimit = "provider_rate_limit",
    /// The provider's answer makes no sense.
    ProviderInvalidResponse = "provider_invalid_response",
    /// The provider refused the request's shape.
    ProviderInvalidRequest = "provider_invalid_request",
    /// The model does not take a kind of content block.
    ProviderUnsupportedContentBlock = "provider_unsupported_content_block",
    /// The content does not fit the schema of its request.
    StructuredOutputInvalid = "structured_output_invalid",
    // Dormouse's own
    /// A graph asks for more than an invocation may have.
    LimitExceeded = "limit_exceeded",
    /// Another turn of the session is running.
    SessionLeaseHeld = "session_lease_held",
    /// Too many turns of the session wait already; nothing was done.
    SessionBusy = "session_busy",
    /// More is asked of the process than it can do; nothing was done.
    Overloaded = "overloaded",
    /// Another delivery resumes the invocation at this moment.
    ResumeInProgress = "resume_in_progress",
    /// The turn did not end within its budget.
    TurnDeadlineExceeded = "turn_deadline_exceeded",
    /// It is unknown if the change was written.
    OutcomeUnknown = "outcome_unknown",
    /// The pause fell due and was declared to fail then.
    SuspensionTimedOut = "suspension_timed_out",
    /// The pause is left to workers with a graph of the shape that wrote it.
    SuspensionPinned = "suspension_pinned",
    /// Every worker that took the invocation up died of it: it was put aside whole.
    AttemptsExhausted = "attempts_exhausted",
    /// A caller ended the invocation.
    InvocationCanceled = "invocation_canceled",
    /// The graph is not registered here.
    GraphUnknown = "graph_unknown",
    /// The request cannot be read.
    RequestInvalid = "request_invalid",
    /// The invocation id belongs to another request.
    InvocationIdInUse = "invocation_id_in_use",
    /// Another invocation waits for the signal id that a pause names.
    SignalIdInUse = "signal_id_in_use",
    /// The idempotency key came with another request before.
    IdempotencyKeyReused = "idempotency_key_reused",
    /// The request is larger than the limit.
    RequestTooLarge = "request_too_large",
    /// The resource does not exist, or the caller may not know of it.
    NotFound = "not_found",
    /// The caller did not prove who they are.
    Unauthorized = "unauthorized",
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Category {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Category {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Ok(Self::from_name(&name))
    }
}
