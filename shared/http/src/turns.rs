//! A server of turns and of nothing else: it begins and wakes them, and knows nothing of the protocol.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::passage::{Answers, Passage};
use crate::surface::{Surface, SurfaceRefusal};
use crate::{App, Origins, Request, Response};

/// Serves turns, chats, callbacks and signals over HTTP. A program that serves no more holds no code of the protocol. Cheap
/// to clone.
#[derive(Clone)]
pub struct TurnServer(Arc<TurnShared>);

struct TurnShared {
    app: App,
    passage: Passage,
}

impl fmt::Debug for TurnServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnServer").field("app", &self.0.app).finish_non_exhaustive()
    }
}

impl TurnServer {
    /// Serves turns by `app`.
    pub fn new(app: App) -> Self {
        let ports = app.engine().ports();
        let (clock, ids) = (ports.clock.clone(), ports.ids.clone());
        let passage = Passage { clock, ids, keys: app.doorkeeper().keys.clone(), origins: Origins::default() };
        Self(Arc::new(TurnShared { app, passage }))
    }

    /// The application that serves turns, events and wake-ups.
    pub fn app(&self) -> &App {
        &self.0.app
    }

    /// Serves one HTTP request. Paths that are none of turns are refused. A panic is an answer too.
    pub async fn http(&self, request: Request) -> Response {
        self.0.passage.pass(Surface::Turns, request, &*self.0).await
    }
}

#[async_trait]
impl Answers for TurnShared {
    async fn answer(&self, _: Surface, request: &Request, _: &str) -> Result<Response, SurfaceRefusal> {
        Ok(self.app.answer(request).await?.into())
    }
}
