use percent_encoding::percent_decode_str;

use super::body::{LONGEST_NAME, nearest};
use crate::ProtocolError;
use crate::id::{EventId, Identifier, MAX_ID_BYTES, SessionId, TaskId, WorkspaceId};
use crate::operation::Operation;

/// Number of elements of a page without a `limit`.
pub const DEFAULT_LIMIT: usize = 50;

/// The most elements of a page.
pub const MAX_LIMIT: usize = 200;

/// The most parameters of a query: each is compared with all before it.
const MOST_PARAMETERS: usize = 100;

/// The query of a request: names and values without their escapes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what stands behind the `?`.
    ///
    /// # Errors
    /// `invalid_request` if a parameter is there twice or is no UTF-8, or there are more than 100.
    pub fn parse(text: &str) -> Result<Self, ProtocolError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name).ok_or_else(|| ProtocolError::invalid("query", "expected UTF-8"))?;
            let value = decode(value).ok_or_else(|| ProtocolError::invalid(&name, "expected UTF-8"))?;
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(ProtocolError::invalid(name, "expected once"));
            }
            if pairs.len() == MOST_PARAMETERS {
                return Err(ProtocolError::invalid("query", format!("expected at most {MOST_PARAMETERS} parameters")));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// Refuses a parameter that only looks like one of `operation`: left out, a slip would give an answer to another question.
    /// Parameters that are of other operations, or of nobody here, are passed over.
    ///
    /// # Errors
    /// `invalid_request` with the one that may be meant.
    pub fn check(&self, operation: Operation) -> Result<(), ProtocolError> {
        let of = |operation: Operation| operation.spec().parameters();
        let is_known = |name: &str| [operation].iter().chain(Operation::ALL).any(|one| of(*one).any(|own| own == name));
        let unknown = self.0.iter().map(|(name, _)| name).filter(|name| !is_known(name));
        let slip = unknown.filter_map(|name| Some((name, nearest(name, of(operation))?))).next();
        let Some((name, meant)) = slip else { return Ok(()) };
        let name: String = name.chars().take(LONGEST_NAME).collect();
        Err(ProtocolError::invalid(name, format!("there is no such parameter; did you mean `{meant}`?")))
    }

    /// The value of `name`. An empty one counts as none.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, value)| known == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    fn limit(&self) -> Result<usize, ProtocolError> {
        let Some((_, text)) = self.0.iter().find(|(name, _)| name == "limit") else { return Ok(DEFAULT_LIMIT) };
        let limit = text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
        limit.ok_or_else(|| ProtocolError::invalid("limit", format!("expected a number from 1 to {MAX_LIMIT}")))
    }
}

fn decode(text: &str) -> Option<String> {
    percent_decode_str(&text.replace('+', " ")).decode_utf8().ok().map(String::from)
}

/// Page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// The most elements.
    pub limit: usize,
    /// End of the page before; [`crate::cursor::Cursors::open`] reads it.
    pub cursor: Option<String>,
}

impl ListQuery {
    /// Reads `limit` and `cursor`.
    ///
    /// # Errors
    /// `invalid_request` if `limit` is no number from 1 to 200.
    pub fn read(query: &Query) -> Result<Self, ProtocolError> {
        Ok(Self { limit: query.limit()?, cursor: query.get("cursor").map(str::to_owned) })
    }
}

/// Range of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeQuery {
    /// The most events.
    pub limit: usize,
    /// The event before the first.
    pub after: Option<EventId>,
    /// The parameter that names it.
    pub named: &'static str,
}

impl RangeQuery {
    /// Reads `limit` and `after_event_id`. `cursor`, as the other lists have it, means the same: an answer calls the
    /// place `next_cursor`, and a client that sent it back in vain would read the first page for ever.
    ///
    /// # Errors
    /// `invalid_request` if `limit` is no number from 1 to 200; `cursor_expired` if no event ever had this id.
    pub fn read(query: &Query) -> Result<Self, ProtocolError> {
        let (named, after) = beginning(query);
        Ok(Self { limit: query.limit()?, after: after.map(|id| event(named, id)).transpose()?, named })
    }

    /// The refusal of an event that the range has not.
    pub fn expired(&self) -> ProtocolError {
        ProtocolError::cursor_expired(self.named)
    }
}

/// The parameter that names the event behind which something goes on, and its value.
fn beginning(query: &Query) -> (&'static str, Option<&str>) {
    match (query.get("after_event_id"), query.get("cursor")) {
        (None, Some(cursor)) => ("cursor", Some(cursor)),
        (after, _) => ("after_event_id", after),
    }
}

/// The event behind which a stream goes on: the header `Last-Event-ID`, which a client sends that lost its stream,
/// comes before `after_event_id` (or `cursor`, as in [`RangeQuery`]), which is in the address of the stream from the beginning.
///
/// # Errors
/// `cursor_expired` if no event ever had this id.
pub fn resume_after(last_event_id: Option<&str>, query: &Query) -> Result<Option<EventId>, ProtocolError> {
    let header = last_event_id.map(str::trim).filter(|id| !id.is_empty());
    let (named, address) = beginning(query);
    header.or(address).map(|id| event(named, id)).transpose()
}

fn event(named: &str, id: &str) -> Result<EventId, ProtocolError> {
    let id = EventId::new(id);
    if id.is_well_formed() && id.place().is_some() { Ok(id) } else { Err(ProtocolError::cursor_expired(named)) }
}

/// Filters of lists and streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filters {
    /// Of this workspace only.
    pub workspace_id: Option<WorkspaceId>,
    /// Of this session only.
    pub session_id: Option<SessionId>,
    /// Of this task only.
    pub task_id: Option<TaskId>,
}

impl Filters {
    /// Reads the three of them. Those that an operation has not should be ignored.
    ///
    /// # Errors
    /// `invalid_request` if one is longer than any id: a store need not be asked for it.
    pub fn read(query: &Query) -> Result<Self, ProtocolError> {
        Ok(Self {
            workspace_id: filter(query, "workspace_id")?,
            session_id: filter(query, "session_id")?,
            task_id: filter(query, "task_id")?,
        })
    }
}

fn filter<I: Identifier>(query: &Query, name: &str) -> Result<Option<I>, ProtocolError> {
    let Some(id) = query.get(name) else { return Ok(None) };
    if id.len() > MAX_ID_BYTES {
        return Err(ProtocolError::invalid(name, format!("expected an id, of {MAX_ID_BYTES} bytes at most")));
    }
    Ok(Some(I::from(id.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(text).expect("a query")
    }

    #[test]
    fn escapes_are_resolved_and_empty_values_are_none() {
        let query = query("path=a%2Fb+c&cursor=&flag&&session_id=s%C3%A9");
        assert_eq!(query.get("path"), Some("a/b c"));
        assert_eq!((query.get("cursor"), query.get("flag"), query.get("other")), (None, None, None));
        assert_eq!(Filters::read(&query).expect("filters").session_id, Some(SessionId::new("s\u{e9}")));
        assert_eq!(Query::parse("a=1&a=2").expect_err("twice").param(), Some("a"));
        assert_eq!(Query::parse("a=%FF").expect_err("no UTF-8").param(), Some("a"));
    }

    #[test]
    fn a_query_has_no_more_parameters_than_anybody_needs() {
        let many = |count: usize| (0..count).map(|number| format!("p{number}")).collect::<Vec<_>>().join("&");
        assert_eq!(Query::parse(&many(MOST_PARAMETERS)).expect("a query").0.len(), MOST_PARAMETERS);
        let refusal = Query::parse(&many(MOST_PARAMETERS + 1)).expect_err("too many");
        assert_eq!((refusal.status(), refusal.param()), (400, Some("query")));
        assert!(refusal.message().contains("at most 100 parameters"), "{refusal}");
    }

    #[test]
    fn a_slip_is_told_and_what_is_of_others_is_passed_over() {
        let check = |text| query(text).check(Operation::ListTasks);
        for slip in ["limt=5", "limits=5", "Cursor=x", "curser=x"] {
            let error = check(slip).expect_err(slip);
            assert!(error.to_string().contains("did you mean `"), "{error}");
        }
        for fine in ["limit=5&cursor=x", "utm_source=x", "path=a", "deltas=true", "after_event_id=x", "_=1", "v=2"] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        assert_eq!(query("limt=5").check(Operation::GetVersion), Ok(()), "it has no parameters");
    }

    #[test]
    fn what_is_longer_than_any_name_is_like_none() {
        let long = "n".repeat(257);
        assert_eq!(nearest(&long, [long.as_str()]), None);
        assert_eq!(nearest(&long[1..], [long.as_str()]), Some(long.as_str()));
    }

    #[test]
    fn a_filter_is_no_longer_than_an_id() {
        for name in ["workspace_id", "session_id", "task_id"] {
            assert!(Filters::read(&query(&format!("{name}={}", "x".repeat(MAX_ID_BYTES)))).is_ok(), "{name}");
            let long = query(&format!("{name}={}", "x".repeat(MAX_ID_BYTES + 1)));
            let refusal = Filters::read(&long).expect_err("no id");
            assert_eq!((refusal.status(), refusal.param()), (400, Some(name)));
        }
    }

    #[test]
    fn limits_are_1_to_200() {
        assert_eq!(ListQuery::read(&query("")).expect("a page").limit, DEFAULT_LIMIT);
        for good in [1, 50, 200] {
            assert_eq!(ListQuery::read(&query(&format!("limit={good}"))).expect("a page").limit, good);
        }
        for bad in ["0", "201", "-1", "1.5", "ten", "", "99999999999999999999"] {
            let refusal = RangeQuery::read(&query(&format!("limit={bad}"))).expect_err("no limit");
            assert_eq!((refusal.status(), refusal.param()), (400, Some("limit")), "{bad}");
        }
    }

    #[test]
    fn a_range_goes_on_behind_the_event_that_either_name_gives() {
        let one = EventId::at("s", 1);
        for name in ["after_event_id", "cursor"] {
            let range = RangeQuery::read(&query(&format!("{name}={one}"))).expect("a range");
            assert_eq!((range.after.as_ref(), range.expired().param()), (Some(&one), Some(name)));
            let refusal = RangeQuery::read(&query(&format!("{name}=evt-0"))).expect_err("no event");
            assert_eq!((refusal.status(), refusal.param()), (410, Some(name)));
        }
    }

    #[test]
    fn a_stream_goes_on_where_the_header_says() {
        let one = EventId::at("s", 1);
        let two = EventId::at("s", 2);
        let address = query(&format!("after_event_id={one}"));
        assert_eq!(resume_after(Some(two.as_str()), &address), Ok(Some(two)));
        assert_eq!(resume_after(Some(""), &address), Ok(Some(one.clone())));
        assert_eq!(resume_after(None, &query(&format!("cursor={one}"))), Ok(Some(one)), "as a range does");
        assert_eq!(resume_after(None, &query("")), Ok(None));
        assert_eq!(resume_after(Some("evt-0"), &address).expect_err("no event").status(), 410);
    }
}
