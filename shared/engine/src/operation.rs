use crate::ambient;
use crate::observe::Operation;

/// Tells observers of an operation that has ended within the present node: spans show it inside of the node's.
///
/// What calls a model or a tool reports it so, once for each attempt. Outside of a node, and in invocations without
/// observers, nothing happens.
pub fn operation_ended(operation: Operation) {
    // Outside of an invocation there is no observer to tell.
    let _ = ambient::look(|scope| {
        if let Some(attempts) = &scope.attempts {
            attempts.operated(operation, scope.attempt_index);
        }
    });
}
