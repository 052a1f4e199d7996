use serde_json::Value;

use crate::{HttpRequest, HttpResponse};

/// Everything that the functions share, made once per process.
#[derive(Clone, Debug)]
pub struct App {}

impl App {
    /// Serves one HTTP request of any route.
    pub async fn http(&self, _request: HttpRequest) -> HttpResponse {
        HttpResponse { status: 501, headers: Vec::new(), body: Value::Null }
    }
}
