//! Routes that are served over HTTP.

mod chat;
mod invocation;
mod signal;
mod turn;

use dormouse_ports::{Category, Map};
use dormouse_protocol::Scope;
use serde_json::{Value, json};

use crate::describe::{Asks, Gives, SchemaOf, schema};
use crate::refusal::RequestRefusal;
use crate::reply::TurnReply;
use crate::said::{
    ChatCompleted, ChatErrored, ChatMessage, ChatSuspended, Index, IndexLine, SignalBuffered, SignalDelivered,
    TurnAnswered, TurnCanceled, TurnCompleted, TurnErrored, TurnStale, TurnSuspended,
};
use crate::{App, Request};

use invocation::CancelBody;
use turn::TurnRequest;

/// One line of the index, with what the document describes of it.
pub(crate) struct DescribedRoute {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) does: &'static str,
    /// Name that clients call it by.
    pub(crate) id: &'static str,
    pub(crate) asks: Asks,
    /// Parameters of the query beside the token, and what they mean.
    pub(crate) query: &'static [(&'static str, &'static str)],
    /// The body; it may be missing, and stands for an empty object then.
    pub(crate) takes: Option<SchemaOf>,
    /// True if it takes an idempotency key.
    pub(crate) is_repeatable: bool,
    pub(crate) gives: &'static [Gives],
    /// Type of its failures beside a refusal.
    pub(crate) fails: Option<SchemaOf>,
    pub(crate) refuses: &'static [u16],
}

/// Scopes that a caller that begins turns has to have a key for.
const OF_TURNS: [Scope; 1] = [Scope::TasksWrite];
/// The same of messages: they write to a session, as those of the protocol do, and begin work.
const OF_MESSAGES: [Scope; 2] = [Scope::SessionsWrite, Scope::TasksWrite];

const PART: (&str, &str) = ("part", "The one of several signals that the token is for.");
const COMPLETED: Gives = gives(200, "It has ended.", &[schema::<TurnCompleted<'_>>]);
const SUSPENDED: Gives = Gives { located: true, ..gives(202, "It sleeps.", &[schema::<TurnSuspended<'_>>]) };

const fn gives(status: u16, when: &'static str, types: &'static [SchemaOf]) -> Gives {
    Gives { status, when, types, located: false }
}

pub(crate) const LISTED: [DescribedRoute; 7] = [
    DescribedRoute {
        method: "GET",
        path: "/",
        does: "this index",
        id: "listRoutes",
        asks: Asks::Nothing,
        query: &[],
        takes: None,
        is_repeatable: false,
        gives: &[gives(200, "What is here.", &[schema::<Index<'_>>])],
        fails: None,
        refuses: &[503],
    },
    DescribedRoute {
        method: "POST",
        path: "/graphs/{graph}/turns",
        does: "run a graph until it ends or waits",
        id: "runGraph",
        asks: Asks::Principal(&OF_TURNS),
        query: &[],
        takes: Some(schema::<TurnRequest>),
        is_repeatable: true,
        gives: &[COMPLETED, SUSPENDED],
        fails: None,
        refuses: &[400, 401, 403, 404, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504],
    },
    DescribedRoute {
        method: "POST",
        path: "/chat/{graph}/sessions/{session_id}/messages",
        does: "say something in a session",
        id: "sendChatMessage",
        asks: Asks::Principal(&OF_MESSAGES),
        query: &[],
        takes: Some(schema::<ChatMessage>),
        is_repeatable: true,
        gives: &[
            gives(200, "It was replied to.", &[schema::<ChatCompleted<'_>>]),
            Gives { located: true, ..gives(202, "It sleeps.", &[schema::<ChatSuspended<'_>>]) },
        ],
        fails: Some(schema::<ChatErrored<'_>>),
        refuses: &[400, 401, 403, 404, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504],
    },
    DescribedRoute {
        method: "GET",
        path: "/invocations/{invocation_id}?token=",
        does: "what became of an invocation",
        id: "getInvocation",
        asks: Asks::Token,
        query: &[PART, ("fields", "Only these fields of the state, separated by commas.")],
        takes: None,
        is_repeatable: false,
        gives: &[gives(
            200,
            "What it has come to.",
            &[schema::<TurnCompleted<'_>>, schema::<TurnSuspended<'_>>, schema::<TurnErrored<'_>>],
        )],
        fails: None,
        refuses: &[404, 410, 500, 503],
    },
    DescribedRoute {
        method: "POST",
        path: "/callback/{invocation_id}?token=",
        does: "wake an invocation, by its address",
        id: "answerPause",
        asks: Asks::Token,
        query: &[PART],
        takes: Some(schema::<Map>),
        is_repeatable: false,
        gives: &[
            gives(
                200,
                "It has completed; or it had taken this answer, or takes one of a page or several, and sleeps again.",
                &[schema::<TurnCompleted<'_>>, schema::<TurnStale<'_>>, schema::<TurnAnswered<'_>>],
            ),
            SUSPENDED,
        ],
        fails: None,
        refuses: &[400, 404, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504],
    },
    DescribedRoute {
        method: "POST",
        path: "/invocations/{invocation_id}/cancel?token=",
        does: "end an invocation",
        id: "cancelInvocation",
        asks: Asks::TokenOrSignalKey,
        query: &[],
        takes: Some(schema::<CancelBody>),
        is_repeatable: false,
        gives: &[gives(200, "It is canceled.", &[schema::<TurnCanceled<'_>>])],
        fails: None,
        refuses: &[400, 404, 409, 410, 413, 415, 500, 503, 504],
    },
    DescribedRoute {
        method: "POST",
        path: "/signals/{signal_id}",
        does: "wake whoever waits for a signal, with a key or by its address",
        id: "sendSignal",
        asks: Asks::SignalKey,
        query: &[],
        takes: Some(schema::<Map>),
        is_repeatable: false,
        gives: &[
            gives(200, "It came, and woke who waited.", &[schema::<TurnCompleted<'_>>, schema::<SignalDelivered<'_>>]),
            Gives {
                when: "It sleeps again, or nobody waits for the signal yet.",
                types: &[schema::<TurnSuspended<'_>>, schema::<SignalBuffered<'_>>],
                ..SUSPENDED
            },
        ],
        fails: None,
        refuses: &[400, 401, 403, 404, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504],
    },
];

/// A path that means something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathRoute {
    Index,
    Turn { graph: String },
    Chat { graph: String, session_id: String },
    Invocation { invocation_id: String },
    Callback { invocation_id: String },
    Cancel { invocation_id: String },
    Signal { signal_id: String },
}

impl PathRoute {
    /// The route of `request`.
    ///
    /// # Errors
    /// 404 for an unknown path, 405 for a method that the path does not take.
    pub(crate) fn of(request: &Request) -> Result<Self, RequestRefusal> {
        let route = Self::at(&request.method, &request.path).ok_or_else(no_such_path)?;
        if request.method == route.listed().method {
            return Ok(route);
        }
        let allowed = Self::allowed(&request.path)?;
        Err(RequestRefusal::invalid(format!("this path takes {allowed}")).status(405).header("allow", allowed))
    }

    /// The methods that `path` takes, separated by commas. The path of a cancellation is also that of an invocation
    /// with an id that ends like one.
    ///
    /// # Errors
    /// 404 for an unknown path.
    pub(crate) fn allowed(path: &str) -> Result<String, RequestRefusal> {
        let ways = ["GET", "POST"].map(|method| Self::at(method, path).filter(|route| route.listed().method == method));
        let methods = ways.into_iter().flatten().flat_map(|route| match route.listed().method {
            "GET" => ["GET, HEAD"],
            other => [other],
        });
        let methods: Vec<_> = methods.chain(["OPTIONS"]).collect();
        if methods.len() == 1 { Err(no_such_path()) } else { Ok(methods.join(", ")) }
    }

    /// An id at the end of a path is all that is left of it: it may contain slashes. Only what is read may be an id
    /// that ends like the path of a cancellation.
    fn at(method: &str, path: &str) -> Option<Self> {
        let rest = |prefix| path.strip_prefix(prefix).filter(|rest: &&str| !rest.is_empty()).map(str::to_owned);
        if path == "/" {
            return Some(Self::Index);
        }
        if let Some(rest) = rest("/graphs/") {
            let graph = rest.strip_suffix("/turns").filter(|graph| is_segment(graph))?;
            return Some(Self::Turn { graph: graph.to_owned() });
        }
        if let Some(rest) = rest("/chat/") {
            let (graph, session_id) = rest.strip_suffix("/messages")?.split_once("/sessions/")?;
            let graph = graph.to_owned();
            let session_id = session_id.to_owned();
            return (is_segment(&graph) && !session_id.is_empty()).then_some(Self::Chat { graph, session_id });
        }
        let canceled = |rest: &str| rest.strip_suffix("/cancel").filter(|id| !id.is_empty()).map(str::to_owned);
        if method != "GET"
            && let Some(invocation_id) = rest("/invocations/").as_deref().and_then(canceled)
        {
            return Some(Self::Cancel { invocation_id });
        }
        rest("/invocations/")
            .map(|invocation_id| Self::Invocation { invocation_id })
            .or_else(|| rest("/callback/").map(|invocation_id| Self::Callback { invocation_id }))
            .or_else(|| rest("/signals/").map(|signal_id| Self::Signal { signal_id }))
    }

    fn listed(&self) -> &'static DescribedRoute {
        let [index, turn, chat, invocation, callback, cancel, signal] = &LISTED;
        match self {
            Self::Index => index,
            Self::Turn { .. } => turn,
            Self::Chat { .. } => chat,
            Self::Invocation { .. } => invocation,
            Self::Callback { .. } => callback,
            Self::Cancel { .. } => cancel,
            Self::Signal { .. } => signal,
        }
    }

    /// The path with the names of its parameters.
    pub(crate) fn template(&self) -> &'static str {
        self.listed().path
    }
}

fn no_such_path() -> RequestRefusal {
    RequestRefusal::new(Category::NotFound, "there is no such path; GET / lists those that there are")
}

fn is_segment(text: &str) -> bool {
    !text.is_empty() && !text.contains('/')
}

impl App {
    /// Serves `request` on `route`.
    pub(crate) async fn serve(&self, route: PathRoute, request: &Request) -> Result<TurnReply, RequestRefusal> {
        request.findings.note_action(route.listed().id);
        match route {
            PathRoute::Index => Ok(TurnReply::new(200, self.index())),
            PathRoute::Turn { graph } => self.post_turn(&graph, request).await,
            PathRoute::Chat { graph, session_id } => self.post_message(&graph, &session_id, request).await,
            PathRoute::Invocation { invocation_id } => self.get_invocation(&invocation_id, request).await,
            PathRoute::Callback { invocation_id } => self.post_callback(&invocation_id, request).await,
            PathRoute::Cancel { invocation_id } => self.post_cancel(&invocation_id, request).await,
            PathRoute::Signal { signal_id } => self.post_signal(&signal_id, request).await,
        }
    }

    fn index(&self) -> Value {
        let line = |&DescribedRoute { method, path, does, .. }: &DescribedRoute| IndexLine { method, path, does };
        json!(Index {
            name: "dormouse",
            version: env!("CARGO_PKG_VERSION"),
            graphs: self.graphs().offered_names().collect(),
            routes: LISTED.iter().map(line).collect(),
            protocol: "/v1",
            docs: "/docs",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &str, path: &str) -> Result<PathRoute, TurnReply> {
        let request = Request { method: method.to_owned(), path: path.to_owned(), ..Request::default() };
        PathRoute::of(&request).map_err(TurnReply::from)
    }

    #[test]
    fn every_listed_path_is_served_by_its_method_only() {
        for listed in &LISTED {
            let path = listed.path.trim_end_matches("?token=").replace(['{', '}'], "");
            let found = route(listed.method, &path).expect("a route");
            assert_eq!(found.template(), listed.path);
            let refused = route("PUT", &path).expect_err("another method");
            assert_eq!(refused.status, 405, "{path}");
            let method = if listed.method == "GET" { "GET, HEAD" } else { listed.method };
            let allowed = refused.headers.iter().find(|(name, _)| name == "allow").map(|(_, value)| value.as_str());
            let both = format!("GET, HEAD, {method}, OPTIONS");
            let alone = format!("{method}, OPTIONS");
            assert_eq!(allowed, Some(if path.ends_with("/cancel") { both } else { alone }.as_str()), "{path}");
        }
    }

    #[test]
    fn everything_else_is_not_found() {
        for path in ["", "/nothing", "/graphs/a", "/graphs//turns", "/graphs/a/b/turns", "/callback/", "/signals/"] {
            assert_eq!(route("POST", path).expect_err("no route").status, 404, "{path}");
        }
        for path in ["/chat/a/sessions//messages", "/chat/a/messages", "/chat//sessions/s/messages", "/health"] {
            assert_eq!(route("POST", path).expect_err("no route").status, 404, "{path}");
        }
    }

    #[test]
    fn ids_may_contain_slashes() {
        let expected = PathRoute::Chat { graph: "chat".to_owned(), session_id: "team/7".to_owned() };
        assert_eq!(route("POST", "/chat/chat/sessions/team/7/messages"), Ok(expected));
        assert_eq!(route("POST", "/signals/order/7"), Ok(PathRoute::Signal { signal_id: "order/7".to_owned() }));
    }
}
