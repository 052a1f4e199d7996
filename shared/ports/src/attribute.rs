/// A value of an attribute of a span.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// Texts in order.
    Texts(Vec<String>),
    /// An integer.
    Integer(i64),
    /// A number.
    Number(f64),
}
