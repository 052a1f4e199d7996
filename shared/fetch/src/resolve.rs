//! Names of hosts, resolved as the system does.

use std::fmt;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The system's resolver, with errors that can be told from others.
#[derive(Debug)]
pub(crate) struct Resolver;

/// A name has no address.
#[derive(Debug)]
pub(crate) struct Unresolved(String);

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unresolved {}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            match tokio::net::lookup_host((name.as_str(), 0)).await {
                Ok(found) => Ok(Box::new(found.collect::<Vec<_>>().into_iter()) as Addrs),
                Err(error) => Err(Unresolved(format!("`{}`: {error}", name.as_str())).into()),
            }
        })
    }
}
