//! A conversation as an agent keeps it: roles, prose, tool calls with ids.

use dormouse_ports::{Map, NodePosition, PausedInvocation, SignalDescriptor};
use jiff::Timestamp;
use serde_json::{Value, json};

const PROSE: [&str; 19] = [
    "Good morning. Our order from last Tuesday still shows as being packed, and the fair opens on Friday.",
    "I am sorry to hear that. Let me look the order up and see where it is held before I promise anything.",
    "The number is on the delivery note that your colleague sent by mail, together with the customs papers.",
    "Thank you, I have found it. Two of the three parcels left the warehouse; the third waits for a stamp.",
    "Which of them holds the display stands? Without those we cannot build up the booth at all.",
    "The stands are in the first parcel, which reached the hub in Leipzig at four this morning.",
    "That is a relief. Could the third one be sent by courier instead, even if it costs extra?",
    "A courier is possible. It would leave at noon and cost 84.50, which needs somebody's approval.",
    "Please go ahead as soon as my manager has agreed; she usually answers within the hour.",
    "I will ask her now and come back to you when she has decided. Nothing is charged before that.",
    "One more thing: the invoice should name the trade fair company, not our head office.",
    "Noted. The billing address changes for this shipment only, and the account stays as it is.",
    "Will the tracking page show all three parcels, or does the courier use a page of its own?",
    "The courier has its own page. I will send you both links when the label is printed.",
    "Perfect. Our contact at the booth is Mr Okafor; he can sign from eight in the morning until six.",
    "His name goes on the label. Shall the driver ring him up half an hour before he arrives?",
    "Yes, please: the hall's gate B is closed to vans after ten, and somebody has to open it for him.",
    "Understood: call ahead, gate B, before ten. I have written that into the instructions for the driver.",
    "Thank you for the quick help. I will be at my desk in case my manager has questions for you.",
];

/// The state after `turn` further messages.
pub(super) fn transcript(turn: usize) -> Map {
    let mut messages: Vec<Value> = PROSE.iter().enumerate().map(|(n, text)| message(n, text)).collect();
    messages.extend((0..turn).map(|n| message(n, "And one more question, if I may.")));
    let tools = json!([
        {"name": "find_order", "arguments": {"order": "DE-2026-004711"}, "call_id": "call_8Zq1mT4x", "result":
            {"parcels": 3, "held": ["customs"], "carrier": "north-line", "weight_kg": 41.7}},
        {"name": "quote_courier", "arguments": {"from": "Leipzig", "to": "Basel"}, "call_id": "call_Jr7Lw0pc", "result":
            {"price": 84.5, "currency": "EUR", "leaves": "2027-01-15T12:00:00Z"}},
        {"name": "request_approval", "arguments": {"amount": 84.5, "by": "manager"}, "call_id": "call_mX29vKdE"},
    ]);
    let state = json!({"messages": messages, "tool_calls": tools, "plan": ["quote", "approve", "ship", "report"],
        "customer": {"id": "5f0c1b7e-93d4-4e7a-8a51-c6b2f40d9e13", "tier": "gold", "language": "en"}, "attempts": 1});
    state.as_object().cloned().unwrap_or_default()
}

fn message(number: usize, text: &str) -> Value {
    let role = if number.is_multiple_of(2) { "user" } else { "assistant" };
    let id = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    json!({"id": format!("msg_{id:016x}"), "role": role, "content": [{"type": "text", "text": text}]})
}

/// A pause of a graph with one node before it.
pub(super) fn pause(id: &str, signal: &str) -> PausedInvocation {
    let id = format!("6b1f0f0e-2f1c-4c55-9b9b-{id:0>12}");
    PausedInvocation {
        correlation_id: "0c5d9f2a-7a34-4b7e-8f55-2f7d5f3e9a10".to_owned(),
        graph_digest: "9f86d081884c7d659a2feaa0c55ad015".to_owned(),
        generation: 1,
        descriptor: SignalDescriptor::new(format!("approval-{signal:0>24}")).with("prompt", "Send by courier?"),
        state: transcript(1).into(),
        namespace: vec!["approve".into()],
        suspended_at_node: vec!["approve".into()],
        completed_positions: vec![NodePosition {
            namespace: Vec::new(),
            node_name: "classify".into(),
            step: 0,
            attempt_index: 0,
            fan_out_index: None,
        }],
        step: 2,
        suspended_step: 1,
        schema_version: "1".to_owned(),
        session_version: Some(2),
        trace_context: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        ..PausedInvocation::before_first_pause(id.into(), "support", Timestamp::constant(1_800_000_000, 0))
    }
}
