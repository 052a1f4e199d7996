//! Names of hosts, resolved as the system does.

use std::fmt;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::public::is_public;

/// The system's resolver, with errors that can be told from others.
#[derive(Debug)]
pub(crate) struct Resolver {
    /// True if only addresses of the public internet count.
    pub(crate) public: bool,
}

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
        let public = self.public;
        Box::pin(async move {
            match tokio::net::lookup_host((name.as_str(), 0)).await {
                Ok(found) => {
                    let found: Vec<_> = found.filter(|address| !public || is_public(address.ip())).collect();
                    match found.is_empty() {
                        true => {
                            Err(Unresolved(format!("`{}` has no address on the public internet", name.as_str())).into())
                        }
                        false => Ok(Box::new(found.into_iter()) as Addrs),
                    }
                }
                Err(error) => Err(Unresolved(format!("`{}`: {error}", name.as_str())).into()),
            }
        })
    }
}
