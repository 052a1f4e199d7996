use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Everything that is wrong with the environment, in one line and without values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(Vec<String>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the environment is not complete: {}", self.0.join("; "))
    }
}

impl std::error::Error for ConfigError {}

/// Reads variables of an environment. An empty variable is a missing one. It goes on after a fault, so that all of them
/// are reported at once.
#[derive(Debug)]
pub struct Variables<F> {
    look_up: F,
    faults: Vec<String>,
}

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    /// Reads variables through `look_up`.
    pub fn new(look_up: F) -> Self {
        Self { look_up, faults: Vec::new() }
    }

    /// The variable `name`, if it is set.
    pub fn optional(&self, name: &str) -> Option<String> {
        (self.look_up)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The variable `name`; a fault and an empty text when it is missing.
    pub fn needed(&mut self, name: &str) -> String {
        self.optional(name).unwrap_or_else(|| {
            self.fault(format!("{name} is missing"));
            String::new()
        })
    }

    /// The variable `name` as a number in `range`; `usual` when it is missing, and with a fault when it is none.
    pub fn number<T>(&mut self, name: &str, usual: T, range: RangeInclusive<T>) -> T
    where
        T: FromStr + PartialOrd + fmt::Display,
    {
        let Some(text) = self.optional(name) else { return usual };
        match text.parse() {
            Ok(number) if range.contains(&number) => number,
            Ok(_) | Err(_) => {
                self.fault(format!("{name} must be a number from {} to {}", range.start(), range.end()));
                usual
            }
        }
    }

    /// True if the variable `name` is `enabled`; a fault when it is neither that nor `disabled`, as it is without it.
    pub fn is_enabled(&mut self, name: &str) -> bool {
        match self.optional(name).as_deref() {
            None | Some("disabled") => false,
            Some("enabled") => true,
            Some(_) => {
                self.fault(format!("{name} must be enabled or disabled"));
                false
            }
        }
    }

    /// Notes what is wrong: a sentence that names the variable and not its value.
    pub fn fault(&mut self, sentence: String) {
        self.faults.push(sentence);
    }

    /// The faults so far.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// `settings`, which were read through this, if all of them were in order.
    ///
    /// # Errors
    /// [`ConfigError`] names all variables that are missing or malformed.
    pub fn complete<T>(self, settings: T) -> Result<T, ConfigError> {
        if self.faults.is_empty() { Ok(settings) } else { Err(ConfigError(self.faults)) }
    }
}
