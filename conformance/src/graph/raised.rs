use dormouse_engine::NodeError;
use dormouse_ports::Category;
use serde_json::Value;

use crate::Failure;
use crate::directives::Directives;

/// An error as a fixture spells it, with what caused it (conformance-adapter §5.1, `cause`).
#[derive(Clone, Debug)]
pub(super) struct Raised {
    pub(super) category: Option<Category>,
    pub(super) message: String,
    pub(super) cause: Option<Box<Raised>>,
}

impl Raised {
    /// Reads a message, or a mapping with a category, a message and a cause.
    pub(super) fn read(at: &str, value: &Value) -> Result<Self, Failure> {
        match value.as_str() {
            Some(message) => Ok(Self { category: None, message: message.to_owned(), cause: None }),
            None => Self::read_mapping(Directives::new(at, value)?),
        }
    }

    pub(super) fn read_mapping(mut given: Directives<'_>) -> Result<Self, Failure> {
        let raised = Self::read_fields(&mut given)?;
        given.done()?;
        Ok(raised)
    }

    /// Reads the error's own keys; others stay unread.
    pub(super) fn read_fields(given: &mut Directives<'_>) -> Result<Self, Failure> {
        // Whether an error is transient follows from its category; its kind has no counterpart here.
        given.flag("transient")?;
        given.text("exception_kind")?;
        // Whatever a node raises is a node_exception; naming that names no category of its own.
        let category = given.text("category")?.filter(|name| *name != "node_exception").map(Category::from_name);
        let message = given.text("message")?.unwrap_or("the node raised").to_owned();
        let cause = given.nested("cause")?.map(Self::read_mapping).transpose()?.map(Box::new);
        Ok(Self { category, message, cause })
    }

    pub(super) fn error(&self) -> NodeError {
        let error = NodeError::new(self.message.as_str());
        let error = self.category.iter().cloned().fold(error, NodeError::with_category);
        self.cause.iter().fold(error, |error, cause| error.caused_by(cause.error()))
    }
}
