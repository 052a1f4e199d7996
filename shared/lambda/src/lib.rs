//! The edge: decode what AWS delivers, let the harness serve it, encode the answer.

mod app;
mod http;

pub use app::App;
pub use http::{HttpRequest, HttpResponse};
