use super::VariableReader;
use crate::Function;

const URL: &str = "DORMOUSE_SOCKET_URL";
const API: &str = "DORMOUSE_API_URL";
const NAME: &str = "AWS_LAMBDA_FUNCTION_NAME";

/// What the function needs that holds sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// The stage of the WebSocket API, as it is asked over HTTP.
    pub stage_url: String,
    /// Prefix of the addresses to which commands go.
    pub api_url: String,
    /// Its own name, by which it calls itself.
    pub function: String,
}

impl<F: Fn(&str) -> Option<String>> VariableReader<F> {
    /// Where sockets are opened.
    pub(super) fn socket_url(&mut self) -> Option<String> {
        let url = self.0.optional(URL)?;
        if over_http(&url).is_none() {
            self.0.fault(format!("{URL} must begin with wss:// and a host"));
        }
        Some(url)
    }

    /// What the function needs that holds sockets; nothing for others.
    pub(super) fn sockets(&mut self, function: Function) -> Option<SocketConfig> {
        if function != Function::Socket {
            return None;
        }
        let stage_url = over_http(&self.0.needed(URL)).unwrap_or_default();
        self.0.needed(API);
        let api_url = self.url(API).unwrap_or_default();
        let function = self.0.optional(NAME).unwrap_or_default();
        Some(SocketConfig { stage_url, api_url, function })
    }
}

/// The address of a WebSocket as one of HTTP.
fn over_http(url: &str) -> Option<String> {
    let behind = url.strip_prefix("ws").filter(|rest| rest.starts_with("://") || rest.starts_with("s://"))?;
    let host = behind.split_once("://").map(|(_, host)| host)?;
    (!host.is_empty() && !host.starts_with(['/', ':']) && !host.contains(' ')).then(|| format!("http{behind}"))
}

#[cfg(test)]
mod tests {
    use dormouse_http::Variables;

    use super::*;

    fn read(variables: &[(&str, &str)], function: Function) -> (Option<SocketConfig>, Option<String>, Vec<String>) {
        let given = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        let mut reader = VariableReader(Variables::new(given));
        let url = reader.socket_url();
        (reader.sockets(function), url, reader.0.faults().to_vec())
    }

    #[test]
    fn the_function_for_sockets_knows_its_stage_and_the_others_their_address() {
        let stage = "wss://abc.execute-api.eu-central-1.amazonaws.com/live";
        let variables = [(URL, stage), (API, "https://api.example.com"), (NAME, "dormouse-socket")];
        let (config, url, faults) = read(&variables, Function::Socket);
        let config = config.expect("a configuration");
        assert_eq!(config.stage_url, "https://abc.execute-api.eu-central-1.amazonaws.com/live");
        assert_eq!((config.api_url.as_str(), config.function.as_str()), ("https://api.example.com", "dormouse-socket"));
        assert_eq!((url.as_deref(), faults.len()), (Some(stage), 0));
        assert_eq!(read(&variables, Function::Inbound).0, None);
        let (_, _, faults) = read(&[(URL, "https://abc")], Function::Socket);
        assert_eq!(faults, [format!("{URL} must begin with wss:// and a host"), format!("{API} is missing")]);
        assert_eq!(read(&[], Function::Inbound).2, Vec::<String>::new());
        for wrong in ["wss://", "ws:///x", "wssx://a", "w"] {
            assert_eq!(over_http(wrong), None, "{wrong}");
        }
    }
}
