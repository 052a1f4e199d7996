use std::fmt;

use crate::{Secret, SecretError, Secrets};

/// A text with references to the environment (`${env.NAME}`) and to secrets (`${secrets.NAME}`), which are looked up
/// when it is used and never before: neither its `Debug` nor its [written form](Self::written) shows a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    written: String,
    parts: Vec<TemplatePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Env(String),
    Secret(String),
}

/// Where references are looked up.
pub struct Lookup<'l> {
    /// Variables of the environment.
    pub env: &'l dyn Secrets,
    /// Secrets.
    pub secrets: &'l dyn Secrets,
}

impl fmt::Debug for Lookup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup")
    }
}

impl Template {
    /// Reads a template; `$${` stands for `${`.
    ///
    /// # Errors
    /// A sentence for a reference that is not closed or names another place.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('$') {
                plain.push_str(before);
                plain.push_str("${");
                rest = &from[2..];
                continue;
            }
            plain.push_str(before);
            let end =
                from.find('}').ok_or("a reference `${` is not closed with `}`; write `$${` for the plain text")?;
            if !plain.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
            }
            parts.push(reference(&from[2..end])?);
            rest = &from[end + 1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(TemplatePart::Text(plain));
        }
        Ok(Self { written: text.to_owned(), parts })
    }

    /// The text as it was written, with its references.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// The text between its references, in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Text(text) => Some(text.as_str()),
            TemplatePart::Env(_) | TemplatePart::Secret(_) => None,
        })
    }

    /// Names of the arguments that it takes, in braces, between its references.
    pub fn arguments(&self) -> Vec<String> {
        let names = self.texts().flat_map(pieces).filter_map(|piece| match piece {
            TextPiece::Plain(_) => None,
            TextPiece::Argument(name) => Some(name.to_owned()),
        });
        names.collect()
    }

    /// True if an argument of it, which is an address, could choose the host: only the path and the query may come from a model.
    pub fn chooses_host(&self) -> bool {
        let written = self.written();
        let behind_scheme = written.find("://").map_or(0, |at| at + 3);
        let path = written[behind_scheme..].find(['/', '?', '#']).map_or(written.len(), |at| behind_scheme + at);
        // A reference to the environment may hold slashes of its own, and is no argument.
        pieces(&written[..path].replace("${", "$")).iter().any(|piece| matches!(piece, TextPiece::Argument(_)))
    }

    /// True if it refers to anything.
    pub fn refers(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part, TemplatePart::Text(_)))
    }

    /// The secrets that it refers to, each by itself.
    ///
    /// # Errors
    /// [`SecretError`] for the first that is not to be had.
    pub async fn secrets(&self, lookup: &Lookup<'_>) -> Result<Vec<Secret>, SecretError> {
        let mut found = Vec::new();
        for part in &self.parts {
            match part {
                TemplatePart::Text(_) | TemplatePart::Env(_) => {}
                TemplatePart::Secret(name) => found.push(lookup.secrets.resolve(name).await?),
            }
        }
        Ok(found)
    }

    /// The text, with what it refers to. It is handled as a secret in each case.
    ///
    /// # Errors
    /// [`SecretError`] for the first reference that leads nowhere.
    pub async fn resolve(&self, lookup: &Lookup<'_>) -> Result<Secret, SecretError> {
        self.resolve_around(lookup, &|plain: &str| plain.to_owned(), &|_: &str, secret: &str| secret.to_owned()).await
    }

    /// The same, with `replace` applied to the text between the references, and never to what they refer to; `write` gives how a
    /// secret stands behind the text before it.
    ///
    /// # Errors
    /// [`SecretError`] for the first reference that leads nowhere.
    pub async fn resolve_around(
        &self,
        lookup: &Lookup<'_>,
        replace: &(dyn Fn(&str) -> String + Send + Sync),
        write: &(dyn Fn(&str, &str) -> String + Send + Sync),
    ) -> Result<Secret, SecretError> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Text(plain) => text.push_str(&replace(plain)),
                TemplatePart::Env(name) => text.push_str(lookup.env.resolve(name).await.map_err(unset)?.expose()),
                TemplatePart::Secret(name) => {
                    let written = write(&text, lookup.secrets.resolve(name).await?.expose());
                    text.push_str(&written);
                }
            }
        }
        Ok(Secret::new(text))
    }
}

/// `error` of looking up a variable of the environment, which is no secret.
fn unset(error: SecretError) -> SecretError {
    match error {
        SecretError::Missing(name) => SecretError::Unset(name),
        SecretError::Unset(_) | SecretError::Denied(_) | SecretError::Unavailable(_) => error,
    }
}

/// A piece of a text with places for arguments, each a name in braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextPiece<'t> {
    /// Text that stands for itself.
    Plain(&'t str),
    /// Name of an argument that belongs here.
    Argument(&'t str),
}

/// The pieces of `text`. A brace that encloses no name is plain text.
pub fn pieces(text: &str) -> Vec<TextPiece<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let end = rest[at..].find('}').map_or(rest.len(), |end| at + end);
        let name = &rest[at + 1..end];
        let is_name = end < rest.len() && !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        let next = if is_name { end + 1 } else { at + 1 };
        let plain = if is_name { at } else { next };
        found.push(TextPiece::Plain(&rest[..plain]));
        if is_name {
            found.push(TextPiece::Argument(name));
        }
        rest = &rest[next..];
    }
    found.push(TextPiece::Plain(rest));
    found
}

fn reference(inside: &str) -> Result<TemplatePart, String> {
    let name = |name: &str| -> Result<String, String> {
        let sound = |c: char| c.is_alphanumeric() || "_-./".contains(c);
        match !name.is_empty() && name.chars().all(sound) {
            true => Ok(name.to_owned()),
            false => Err(format!("`${{{inside}}}` names nothing: write `${{env.NAME}}` or `${{secrets.NAME}}`")),
        }
    };
    match inside.split_once('.') {
        Some(("env", rest)) => name(rest).map(TemplatePart::Env),
        Some(("secrets", rest)) => name(rest).map(TemplatePart::Secret),
        Some(_) | None => Err(format!(
            "`${{{inside}}}` is no reference: write `${{env.NAME}}` or `${{secrets.NAME}}`, or `$${{` for the plain text"
        )),
    }
}

impl serde::Serialize for Template {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.written)
    }
}

impl<'de> serde::Deserialize<'de> for Template {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn references_are_looked_up_when_they_are_used() {
        let template = Template::parse("Bearer ${secrets.token} of ${env.USER}, $${plain}").expect("a template");
        assert!(template.refers());
        assert_eq!(template.written(), "Bearer ${secrets.token} of ${env.USER}, $${plain}");
        let lookup = Lookup { env: &Secret::new("ada"), secrets: &Secret::new("s3") };
        let text = block_on(template.resolve(&lookup)).expect("it resolves");
        assert_eq!(text.expose(), "Bearer s3 of ada, ${plain}");
    }

    #[test]
    fn its_written_form_is_read_again() {
        let template = Template::parse("Bearer ${secrets.token}").expect("a template");
        let json = serde_json::to_string(&template).expect("JSON");
        assert_eq!(serde_json::from_str::<Template>(&json).ok(), Some(template));
        assert!(serde_json::from_str::<Template>("\"${home}\"").is_err());
    }

    #[test]
    fn only_the_text_between_references_is_replaced() {
        let template = Template::parse("a/${env.X}/a").expect("a template");
        assert_eq!(template.texts().collect::<Vec<_>>(), ["a/", "/a"]);
        let lookup = Lookup { env: &Secret::new("a"), secrets: &Secret::new("a") };
        let replace = |text: &str| text.replace('a', "b");
        let text = block_on(template.resolve_around(&lookup, &replace, &|_, secret| secret.to_owned()));
        assert_eq!(text.expect("it resolves").expose(), "b/a/b");
        let template = Template::parse("a=${secrets.X}${secrets.X}").expect("a template");
        let text =
            block_on(template.resolve_around(&lookup, &replace, &|before, secret| format!("<{before}{secret}>")));
        assert_eq!(text.expect("it resolves").expose(), "b=<b=a><b=<b=a>a>");
    }

    /// A store without anything.
    struct Empty;

    #[async_trait::async_trait]
    impl Secrets for Empty {
        async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
            Err(SecretError::Missing(name.to_owned()))
        }
    }

    #[test]
    fn a_variable_that_is_not_set_is_called_no_secret() {
        let told = |text: &str| {
            let template = Template::parse(text).expect("a template");
            let lookup = Lookup { env: &Empty, secrets: &Empty };
            block_on(template.resolve(&lookup)).expect_err("it is not there").to_string()
        };
        let variable = told("${env.HOST}");
        assert!(variable.starts_with("the variable `HOST` is not set in the environment: `export HOST="), "{variable}");
        assert!(variable.contains("`${secrets.HOST}` is a parameter"), "{variable}");
        assert!(told("${secrets.TOKEN}").starts_with("there is no secret `TOKEN`"));
    }

    #[test]
    fn a_reference_to_nowhere_is_refused() {
        for text in ["${env.}", "${home}", "${env.A B}", "${vault.x}", "a ${env.X"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
