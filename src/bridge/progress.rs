//! Turns changes of the output into notifications for a client.
//!
//! Follows `docs/spec/mcp.md` §2.7, §2.8. Progress strictly increases.

use super::output::ProgressUpdate;
use crate::jsonrpc::Id;
use crate::mcp::notifications::{LoggingLevel, message, progress};

/// Maximum length of the text in one notification, in characters.
const MAX_MESSAGE_CHARS: usize = 8 * 1024;

/// The notifications that one client requested for one call.
#[derive(Debug)]
pub struct ProgressNotifier {
    token: Option<Id>,
    level: Option<LoggingLevel>,
    agent: String,
    last: f64,
    total: Option<f64>,
}

impl ProgressNotifier {
    /// Creates the notifier of a client that gave `token` for progress, requests log messages from
    /// `level` on, and calls `agent`.
    pub fn new(token: Option<Id>, level: Option<LoggingLevel>, agent: &str) -> Self {
        Self { token, level, agent: agent.to_owned(), last: 0.0, total: None }
    }

    /// Returns true if the client requested any notifications.
    pub fn listens(&self) -> bool {
        self.token.is_some() || self.logs()
    }

    fn logs(&self) -> bool {
        self.level.is_some_and(|level| level <= LoggingLevel::Info)
    }

    /// Returns the notifications for an update, as JSON texts.
    pub fn notifications(&mut self, note: &ProgressUpdate) -> impl Iterator<Item = Vec<u8>> + use<> {
        let text = note.text.as_deref().map(capped);
        let told = self.token.clone().map(|token| {
            self.next_progress(note);
            progress(&token, self.last, self.total, text)
        });
        let logged = text.filter(|_| self.logs()).map(|text| message(LoggingLevel::Info, &self.agent, text));
        told.into_iter().chain(logged)
    }

    /// Computes the next progress: the agent's own number if it increases, else a step of the
    /// gateway: a whole one, or a small one where the agent counts. Numbers that leave no room for
    /// a step, and totals that are exceeded already, are ignored.
    fn next_progress(&mut self, note: &ProgressUpdate) {
        const BELIEVED: f64 = 1e12;
        let reported = note.progress.filter(|value| *value > self.last && *value < BELIEVED);
        let is_goal = |total: &f64| *total > 0.0 && *total < BELIEVED;
        self.total = note.total.filter(is_goal).or(self.total);
        let step = if self.total.is_some() { 0.01 } else { 1.0 };
        self.last = reported.unwrap_or(self.last + step);
        self.total = self.total.filter(|total| *total >= self.last);
    }
}

fn capped(text: &str) -> &str {
    match text.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str, progress: Option<f64>, total: Option<f64>) -> ProgressUpdate {
        ProgressUpdate { text: Some(text.into()), progress, total }
    }

    fn told(teller: &mut ProgressNotifier, given: &ProgressUpdate) -> Vec<String> {
        teller.notifications(given).map(|bytes| String::from_utf8(bytes).unwrap()).collect()
    }

    #[test]
    fn progress_strictly_grows_whatever_the_agent_says() {
        let token: Id = serde_json::from_str("\"p\"").unwrap();
        let mut teller = ProgressNotifier::new(Some(token), None, "a");
        let mut last = 0.0;
        for (value, total) in [
            (None, None),
            (Some(0.0), Some(100.0)),
            (Some(50.0), Some(100.0)),
            (Some(20.0), None),
            (None, None),
            (Some(f64::NAN), None),
            (Some(1e300), Some(-1.0)),
            (Some(100.0), None),
        ] {
            let text = told(&mut teller, &note("x", value, total)).remove(0);
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            let now = json["params"]["progress"].as_f64().unwrap();
            assert!(now > last, "{now} after {last}");
            last = now;
        }
        assert!((last - 100.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_client_is_told_what_it_asked_for_and_nothing_else() {
        let given = note("hello", None, None);
        assert!(told(&mut ProgressNotifier::new(None, None, "a"), &given).is_empty());
        assert!(told(&mut ProgressNotifier::new(None, Some(LoggingLevel::Error), "a"), &given).is_empty());
        let logged = told(&mut ProgressNotifier::new(None, Some(LoggingLevel::Debug), "bard"), &given);
        assert_eq!(
            logged,
            [
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"bard","data":"hello"}}"#
            ]
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(capped(&"é".repeat(MAX_MESSAGE_CHARS + 5)).chars().count(), MAX_MESSAGE_CHARS);
    }
}
