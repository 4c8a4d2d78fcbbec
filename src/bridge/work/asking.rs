//! Which question of a piece of work is open.
//!
//! Not here: what makes two questions the same (see `a2a::question`), how one is put to a client (see `bridge::question`).

use super::Work;
use crate::a2a::{Fingerprint, fingerprint_of, wordless_of};

impl Work {
    /// Which question is open, if one is.
    pub fn question_turn(&self) -> Option<Fingerprint> {
        fingerprint_of(self.task_id.as_deref()?, self.state?, self.status.as_ref(), self.timestamp.as_deref())
    }

    /// How the open question looks once its words have gone into the history (see [`crate::a2a::wordless`]).
    pub fn wordless(&self) -> Option<Fingerprint> {
        wordless_of(self.task_id.as_deref()?, self.state?, self.status.as_ref(), self.timestamp.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::read_task;

    fn asked(status: &str) -> Work {
        let task = format!(r#"{{"id":"t","status":{{"state":"input-required",{status}}}}}"#);
        Work::from_task(read_task(task.as_bytes()).unwrap(), 1000).unwrap()
    }

    #[test]
    fn a_question_is_another_one_when_its_message_is() {
        let turn =
            |id: &str| asked(&format!(r#""message":{{"messageId":"{id}","parts":[]}}"#)).question_turn();
        assert!(turn("1").is_some() && turn("1") != turn("2"));
    }

    #[test]
    fn what_is_left_of_a_question_is_known_by_its_task_and_time() {
        let words = r#""message":{"messageId":"1","parts":[]}"#;
        let question = asked(&format!(r#"{words},"timestamp":"1""#));
        assert!(question.wordless().is_some());
        assert_eq!(question.wordless(), asked(r#""timestamp":"1""#).question_turn());
        assert_ne!(question.wordless(), asked(r#""timestamp":"2""#).question_turn());
        assert_eq!(asked(words).wordless(), None, "nothing would tell it from the next one");
    }
}
