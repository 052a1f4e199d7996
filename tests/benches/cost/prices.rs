//! What AWS asks, in dollars for a million of each: us-east-1, on demand, without free tiers, as published in 2025 (those
//! of DynamoDB hold since November 2024).

/// DynamoDB, write request units.
pub(super) const WRITE_UNITS: f64 = 0.625;
/// DynamoDB, read request units.
pub(super) const READ_UNITS: f64 = 0.125;
/// API Gateway, HTTP API requests of up to 512 KB.
pub(super) const HTTP_REQUESTS: f64 = 1.00;
/// EventBridge, custom events that are put on a bus.
pub(super) const CUSTOM_EVENTS: f64 = 1.00;
/// EventBridge Scheduler, invocations.
pub(super) const SCHEDULES: f64 = 1.00;
/// Bytes that clients on the internet are sent, for each GB; a million times a kilobyte is one.
pub(super) const EGRESS_GB: f64 = 0.09;
/// X-Ray, traces that are kept.
pub(super) const TRACES: f64 = 5.00;
/// CloudWatch Logs that are taken in, for each GB; a million times a kilobyte is one.
pub(super) const LOGS_GB: f64 = 0.50;
/// Lambda, requests.
pub(super) const LAMBDA_REQUESTS: f64 = 0.20;
/// Lambda on arm64, GB-seconds.
pub(super) const LAMBDA_GB_SECONDS: f64 = 13.3334;
/// Memory of a function in GB, as the template sets it.
pub(super) const LAMBDA_GB: f64 = 0.25;

/// Not a price but what X-Ray keeps of many requests: a twentieth.
pub(super) const TRACED: f64 = 0.05;
/// Bytes that a function logs for an event, as `tests/tests/roles/metrics.rs` counts them; the lines that Lambda adds, START, END
/// and REPORT with the trace; and the line of the HTTP API for a request.
pub(super) const LOG_OF_A_FUNCTION: f64 = 700.0;
pub(super) const LOG_OF_LAMBDA: f64 = 400.0;
pub(super) const LOG_OF_THE_API: f64 = 250.0;

/// Not a price but an assumption: how long DynamoDB takes to answer a function in the same region.
pub(super) const MS_PER_REQUEST: f64 = 5.0;
/// The same: what a turn computes itself, which is decoding, the graph without its outside work, and encoding.
pub(super) const MS_OF_OUR_OWN: f64 = 2.0;
