//! Which question of a piece of work is open, and which one an event shows.
//!
//! Not here: what makes two questions the same (see `a2a::question`), how one is put to a client (see `bridge::question`).

use super::Work;
use crate::a2a::{Event, Fingerprint, Status, fingerprint, fingerprint_of, wordless};

impl Work {
    /// Which question is open, if one is.
    pub fn question_turn(&self) -> Option<Fingerprint> {
        fingerprint_of(self.task_id.as_deref()?, self.state?, self.status.as_ref(), self.timestamp.as_deref())
    }

    /// Which question an event shows, if it shows one.
    pub fn question_of(&self, event: &Event) -> Option<Fingerprint> {
        match event {
            Event::Task(task) => fingerprint(&task.id, &task.status),
            Event::Status { task_id, status, .. } => {
                fingerprint(task_id.as_deref().or(self.task_id.as_deref())?, status)
            }
            Event::Message(_) | Event::Artifact { .. } | Event::Unknown => None,
        }
    }

    /// How the last question looks once its words have gone into the history: it is no new one.
    pub fn wordless(&self) -> Option<Fingerprint> {
        self.wordless
    }

    /// Whether a status only shows the last question without its words: an answer has come in, and the agent has not begun to work
    /// on it. Remembers the question, if it is a new one.
    pub(super) fn is_question_of_before(&mut self, status: &Status) -> bool {
        let Some(task) = self.task_id.as_deref().filter(|_| status.state.is_interrupted()) else {
            return false;
        };
        if self.wordless.is_some() && fingerprint(task, status) == self.wordless {
            return true;
        }
        self.wordless = wordless(task, status);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{Message, State, read_task};
    use crate::bridge::work::Standing;

    /// A status of the task, with these words at this time.
    fn at(state: State, words: Option<&str>, time: &str) -> Event {
        let message =
            words.map(|words| format!(r#"{{"messageId":"{words}","parts":[{{"text":"{words}"}}]}}"#));
        let json = format!(
            r#"{{"id":"t","status":{{"state":"working","message":{}}}}}"#,
            message.unwrap_or("null".into())
        );
        let message: Option<Message> = read_task(json.as_bytes()).unwrap().status.message;
        let status = Status { state, message, timestamp: Some(time.into()) };
        Event::Status { task_id: Some("t".into()), context_id: None, status, last: false, metadata: None }
    }

    fn after(events: impl IntoIterator<Item = Event>) -> Work {
        let mut work = Work::new(1000);
        for event in events {
            work.apply(event).unwrap();
        }
        work
    }

    #[test]
    fn a_question_is_another_one_when_its_message_is() {
        let one = after([at(State::InputRequired, Some("Which?"), "1")]);
        let other = after([at(State::InputRequired, Some("When?"), "1")]);
        assert!(one.question_turn().is_some() && one.question_turn() != other.question_turn());
    }

    #[test]
    fn a_question_whose_words_have_gone_into_the_history_is_no_new_one() {
        let asked = || at(State::InputRequired, Some("Which?"), "1");
        let moved = || at(State::InputRequired, None, "1");
        let mut work = after([asked()]);
        let turn = work.question_turn();
        assert_eq!(work.question_of(&moved()), work.wordless());
        assert_eq!(work.apply(moved()).unwrap(), None);
        assert_eq!((work.question_turn(), work.status.is_some()), (turn, true));
        let work = after([asked(), at(State::Working, None, "2"), moved()]);
        assert_eq!(work.standing(), Standing::Running, "what is shown is older than the work");
        let next = after([asked(), at(State::InputRequired, None, "3")]).question_turn();
        assert!(next.is_some() && next != turn, "another time, another question");
    }
}
