//! What the tests of the whole share: a stage on which harnesses live and die over one store, the items of a store as
//! they are, the records of released versions, stories that survive faults, clients whose streams break, what
//! whoever serves or asks needs, and as much of Lambda as a function sees.

mod answer;
mod asking;
mod contract;
mod door;
pub mod in_process;
pub mod lambda;
mod loopback;
pub mod raw;
pub mod released;
mod served;
pub mod simulation;
pub mod sse;
mod stage;
pub mod stories;

pub use answer::HttpAnswer;
pub use asking::{protocol_request, while_time_passes};
pub use contract::any_of;
pub use door::{STORE_SECRET, open_door};
pub use dormouse_testkit::map;
pub use loopback::{client, client_within, past_proxies};
pub use served::{full_grant, make_key, parts_in_memory, work_off};
pub use stage::{Stage, called_for, diagnose};
