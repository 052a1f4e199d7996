use percent_encoding::percent_decode_str;

use super::{Method, Operation, Paging};
use crate::ProtocolError;

/// Values of the variable places of a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Params(Vec<(&'static str, String)>);

impl Params {
    /// The segment at `{name}`, without its escapes; empty if the path has no such place.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }
}

/// An operation and the path by which it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundOperation {
    /// The operation.
    pub operation: Operation,
    /// Values of the variable places of its path.
    pub params: Params,
    /// The path without its escapes: the canonical target of an idempotency key.
    pub target: String,
}

impl Operation {
    /// The operation that `method` and `path` name. `path` has neither query nor host, and still has its escapes; an
    /// escaped slash belongs to the segment.
    ///
    /// # Errors
    /// `resource_not_found` (404) if no operation has this path; 405, with the header `allow`, if none has it with
    /// this method.
    pub fn find(method: &str, path: &str) -> Result<FoundOperation, ProtocolError> {
        let segments: Vec<String> = segments(path).map(decode).collect();
        let found = Self::at(&segments)?;
        let allowed = methods_of(&found);
        let wanted = found.into_iter().find(|(operation, _)| operation.spec().method.as_str() == method);
        let (operation, params) = wanted.ok_or_else(|| ProtocolError::method_not_allowed(&allowed))?;
        Ok(FoundOperation { operation, params, target: format!("/{}", segments.join("/")) })
    }

    /// The methods that `path` takes: those of its operations, `HEAD` where a `GET` is no stream, and `OPTIONS`.
    ///
    /// # Errors
    /// `resource_not_found` (404) if no operation has this path.
    pub fn methods(path: &str) -> Result<Vec<&'static str>, ProtocolError> {
        let segments: Vec<String> = segments(path).map(decode).collect();
        Self::at(&segments).map(|found| methods_of(&found))
    }

    /// The operations of this path, at least one.
    fn at(segments: &[String]) -> Result<Vec<(Self, Params)>, ProtocolError> {
        let fits =
            Self::ALL.iter().filter_map(|operation| Some((*operation, params(operation.spec().path, segments)?)));
        let mut found: Vec<(Self, Params)> = fits.collect();
        // A word at a place beats a name that stands for any: fewer places are better.
        let fewest = found.iter().map(|(_, params)| params.0.len()).min().ok_or_else(ProtocolError::no_such_route)?;
        found.retain(|(_, params)| params.0.len() == fewest);
        Ok(found)
    }
}

fn methods_of(found: &[(Operation, Params)]) -> Vec<&'static str> {
    let mut methods = Vec::new();
    for (operation, _) in found {
        let spec = operation.spec();
        methods.push(spec.method.as_str());
        if spec.method == Method::Get && spec.paging != Paging::Stream {
            methods.push("HEAD");
        }
    }
    methods.push("OPTIONS");
    methods
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('/').unwrap_or(path).split('/')
}

/// Bytes that are no UTF-8 become replacement characters, which no id contains.
fn decode(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

/// Values of the variable places of `template`, if the path fits it.
fn params(template: &'static str, path: &[String]) -> Option<Params> {
    let mut params = Vec::new();
    let mut places = segments(template);
    for segment in path {
        let place = places.next()?;
        match place.strip_prefix('{').and_then(|place| place.strip_suffix('}')) {
            Some(name) if !segment.is_empty() => params.push((name, segment.clone())),
            None if place == segment => {}
            Some(_) | None => return None,
        }
    }
    places.next().is_none().then_some(Params(params))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str) -> FoundOperation {
        Operation::find(method, path).expect(path)
    }

    #[test]
    fn every_operation_is_found_by_its_own_path() {
        for &operation in Operation::ALL {
            let spec = operation.spec();
            let path = spec.path.replace('{', "x-").replace('}', "");
            let FoundOperation { operation: same, params, target } = found(spec.method.as_str(), &path);
            assert_eq!((same, &target), (operation, &path));
            assert!(params.0.iter().all(|(name, value)| *value == format!("x-{name}")), "{params:?}");
        }
    }

    #[test]
    fn a_word_beats_a_place() {
        assert_eq!(found("GET", "/v1/events/stream").operation, Operation::StreamEvents);
        assert_eq!(found("GET", "/v1/events/streams").operation, Operation::GetEvent);
        assert_eq!(Operation::find("POST", "/v1/events/stream").expect_err("no operation").status(), 405);
    }

    #[test]
    fn unknown_paths_and_methods_differ() {
        for path in ["", "/", "/v2", "/v1/", "/v1/tasks/", "/v1//tasks", "/v1/tasks/a/b", "/v1/tasks/a/cancel/x", "/V1"]
        {
            assert_eq!(Operation::find("GET", path).expect_err(path).status(), 404, "{path}");
        }
        let refusal = Operation::find("DELETE", "/v1/tasks").expect_err("no operation");
        assert_eq!((refusal.status(), refusal.header()), (405, Some(("allow", "GET, HEAD, POST, OPTIONS"))));
        let of_a_stream = Operation::methods("/v1/events/stream").expect("a path");
        assert_eq!(of_a_stream, ["GET", "OPTIONS"]);
        assert_eq!(Operation::methods("/v2").expect_err("no path").status(), 404);
        assert_eq!(Operation::find("get", "/v1/tasks").expect_err("no method").status(), 405);
    }

    #[test]
    fn escapes_stay_inside_of_their_segment() {
        let found = found("GET", "/v1/tasks/a%2Fb%20%C3%A9/events");
        assert_eq!(found.operation, Operation::ListTaskEvents);
        assert_eq!(found.params.get("task_id"), "a/b \u{e9}");
        assert_eq!(found.params.get("session_id"), "");
        assert_eq!(found.target, "/v1/tasks/a/b \u{e9}/events");
    }
}
