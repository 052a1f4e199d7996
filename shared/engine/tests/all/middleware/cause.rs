use std::error::Error;
use std::fmt;

use dormouse_engine::cause::{Link, classify};
use dormouse_engine::{EngineError, NodeError};
use dormouse_ports::Category;

use super::cast::down;

fn told(chain: &[Link]) -> Vec<(Option<&str>, &str)> {
    chain.iter().map(|link| (link.category.as_ref().map(Category::as_str), &*link.message)).collect()
}

#[test]
fn the_outermost_category_wins() {
    let error = NodeError::new("surface").with_category(Category::ProviderInvalidResponse).caused_by(down("origin"));
    let class = classify(&error);
    assert_eq!((class.derived, &*class.message), (Some(Category::ProviderInvalidResponse), "surface"));
    let expected = [(Some("provider_invalid_response"), "surface"), (Some("provider_unavailable"), "origin")];
    assert_eq!(told(&class.chain), expected);
}

#[test]
fn an_error_without_a_category_is_looked_through_but_not_hidden() {
    let class = classify(&NodeError::new("wrapped").caused_by(down("origin")));
    assert_eq!((class.derived, &*class.message), (Some(Category::ProviderUnavailable), "origin"));
    let class = classify(&NodeError::new("plain"));
    assert_eq!((class.derived, &*class.message, class.chain.len()), (None, "plain", 1));
}

#[derive(Debug)]
struct Wrapper(std::num::ParseIntError);

impl fmt::Display for Wrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no number")
    }
}

impl Error for Wrapper {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[derive(Debug)]
struct Circle;

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("round")
    }
}

impl Error for Circle {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self)
    }
}

#[test]
fn errors_of_other_crates_are_followed_to_their_end() {
    let parse = "x".parse::<i32>().expect_err("not a number");
    let outer = NodeError::from(Wrapper(parse));
    let inner = "invalid digit found in string";
    assert_eq!(told(&classify(&outer).chain), [(None, "no number"), (None, inner)]);
    assert!(classify(&NodeError::from(Circle)).chain.len() < 4, "a cycle ends the walk");
}

#[test]
fn the_failure_of_another_invocation_keeps_its_category() {
    let error = NodeError::from(EngineError::new(Category::SessionLoadFailed, "no session"));
    assert_eq!(error.category(), Some(&Category::SessionLoadFailed));
    let class = classify(&error.with_category(Category::ProviderUnavailable));
    assert_eq!(class.derived, Some(Category::ProviderUnavailable));
    assert_eq!(class.chain[1].category, Some(Category::SessionLoadFailed));
}
