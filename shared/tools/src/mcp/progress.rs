use std::collections::VecDeque;

use rmcp::model::{NumberOrString, ProgressNotificationParam};

/// Tokens, and early notices, that are remembered.
const MOST_REMEMBERED: usize = 256;

/// Which calls tell their progress. Notices are handled beside answers: they come before it is known under which token
/// a call was sent, and behind the end of the call.
#[derive(Debug, Default)]
pub(super) struct CallProgress {
    /// Tokens of calls, the last of them. Another conversation counts from the start again: the newest counts.
    tokens: VecDeque<(NumberOrString, String)>,
    /// Notices under tokens that are not known yet, the last of them.
    early: VecDeque<ProgressNotificationParam>,
}

impl CallProgress {
    /// Remembers that `call` tells its progress under `token`, and gives the notices that came before that was known.
    pub(super) fn begin(&mut self, token: &NumberOrString, call: &str) -> Vec<ProgressNotificationParam> {
        self.tokens.push_back((token.clone(), call.to_owned()));
        if self.tokens.len() > MOST_REMEMBERED {
            self.tokens.pop_front();
        }
        let early = std::mem::take(&mut self.early);
        let (told, kept): (Vec<_>, Vec<_>) = early.into_iter().partition(|notice| notice.progress_token.0 == *token);
        self.early = kept.into();
        told
    }

    /// The call that tells its progress with `notice`; the notice is put aside where that is not known yet.
    pub(super) fn call_of(&mut self, notice: &ProgressNotificationParam) -> Option<String> {
        let known = self.tokens.iter().rev().find(|(token, _)| *token == notice.progress_token.0);
        if let Some((_, call)) = known {
            return Some(call.clone());
        }
        self.early.push_back(notice.clone());
        if self.early.len() > MOST_REMEMBERED {
            self.early.pop_front();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ProgressToken;

    use super::*;

    fn notice(token: i64) -> ProgressNotificationParam {
        ProgressNotificationParam::new(ProgressToken(NumberOrString::Number(token)), 1.0)
    }

    #[test]
    fn early_and_late_notices_find_their_calls() {
        let mut progress = CallProgress::default();
        assert_eq!(progress.call_of(&notice(1)), None);
        assert_eq!(progress.call_of(&notice(2)), None);
        assert_eq!(progress.begin(&NumberOrString::Number(1), "a").len(), 1);
        assert_eq!(progress.call_of(&notice(1)).as_deref(), Some("a"));
        assert_eq!(progress.begin(&NumberOrString::Number(2), "b").len(), 1);
        assert_eq!(progress.begin(&NumberOrString::Number(1), "c").len(), 0);
        assert_eq!(progress.call_of(&notice(1)).as_deref(), Some("c"));
    }

    #[test]
    fn what_nobody_asks_for_does_not_pile_up() {
        let mut progress = CallProgress::default();
        for token in 0..1000 {
            progress.call_of(&notice(token));
            progress.begin(&NumberOrString::Number(-token), "a");
        }
        assert!(progress.early.len() <= MOST_REMEMBERED && progress.tokens.len() <= MOST_REMEMBERED);
    }
}
