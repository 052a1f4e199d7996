use serde_json::Value;

use crate::{Bounds, Excess, Map};

/// Looks through `value`, and stops where it is beyond `bounds`.
///
/// # Errors
/// The [`Excess`].
pub fn measure(value: &Value, bounds: Bounds) -> Result<(), Excess> {
    SizeCount { bounds, values: 0 }.value(value, 0)
}

/// The same for an object.
///
/// # Errors
/// The [`Excess`].
pub fn measure_object(object: &Map, bounds: Bounds) -> Result<(), Excess> {
    let mut count = SizeCount { bounds, values: 0 };
    count.one()?;
    count.all(object.values(), 1)
}

struct SizeCount {
    bounds: Bounds,
    values: usize,
}

impl SizeCount {
    fn one(&mut self) -> Result<(), Excess> {
        self.values += 1;
        if self.values > self.bounds.values { Err(Excess::Values(self.bounds.values)) } else { Ok(()) }
    }

    /// Goes no deeper than the bounds, so that the stack holds.
    fn value(&mut self, value: &Value, above: usize) -> Result<(), Excess> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => self.one(),
            Value::Array(items) => {
                self.one()?;
                self.all(items.iter(), above + 1)
            }
            Value::Object(fields) => {
                self.one()?;
                self.all(fields.values(), above + 1)
            }
        }
    }

    fn all<'a>(&mut self, values: impl Iterator<Item = &'a Value>, depth: usize) -> Result<(), Excess> {
        if depth > self.bounds.depth {
            return Err(Excess::Depth(self.bounds.depth));
        }
        for value in values {
            self.value(value, depth)?;
        }
        Ok(())
    }
}
