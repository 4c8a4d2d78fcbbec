//! The behaviour of the agent: `behaviour.py`, step for step. Events are made by a [`Sink`].

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use a2a::{Part, PartContent, TaskState};
use serde_json::json;
use tokio::time::sleep;

pub(crate) const SKILLS: [(&str, &str); 14] = [
    ("echo", "Gives the text back"),
    ("stream", "Tells of its progress, then gives the text back in pieces"),
    ("slow", "Takes a few seconds, then gives the text back"),
    ("ask", "Asks one question, then completes with the answer"),
    ("fail", "Always fails, and says why"),
    ("data", "Gives structured data back"),
    ("work", "Works for as many seconds as the text says, and tells of each"),
    ("twice", "Asks two questions in a row, then completes with both answers"),
    ("later", "Works for a while, then asks one question and completes with the answer"),
    ("chunks", "Gives an answer in as many pieces as the text says"),
    ("reject", "Rejects every task, and says why"),
    ("login", "Needs the user at a web page, then goes on by itself"),
    ("fate", "Tells whether the work that was asked for with this text was canceled"),
    ("ids", "Tells by which ids the agent knows this task and its context"),
];
pub(crate) const EXTENDED: [(&str, &str); 15] = {
    let mut all = [("more", "Is shown only on the extended card"); 15];
    let mut at = 0;
    while at < SKILLS.len() {
        all[at] = SKILLS[at];
        at += 1;
    }
    all
};
const LOGIN: &str = "https://login.example/start?flow=interop";
/// The time that `login` waits for the user, and that `later` works before it asks.
const PATIENCE: Duration = Duration::from_secs(2);

/// The receiver of the events of one turn of a task.
pub(crate) trait Sink {
    fn task(&self) -> &str;
    fn context(&self) -> &str;
    fn tell(&self, state: TaskState, parts: Vec<Part>);
    fn give(&self, artifact: &str, content: PartContent, append: bool, last: bool);
}

/// The tasks so far.
#[derive(Default)]
pub(crate) struct Stories {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By task: the skill of its first turn, and the user's words so far.
    talks: HashMap<String, (String, Vec<String>)>,
    /// Tasks that were canceled.
    over: HashSet<String>,
    /// First texts of tasks that were canceled.
    canceled: HashSet<String>,
}

/// One turn of a task.
struct Turn<'a> {
    stories: &'a Stories,
    sink: &'a (dyn Sink + Sync),
}

impl Stories {
    /// Plays one turn of a task to its end.
    pub(crate) async fn play(&self, sink: &(impl Sink + Sync), skill: Option<&str>, text: &str) {
        let (skill, said) = self.hear(sink.task(), skill, text);
        Turn { stories: self, sink }.run(&skill, &said).await;
    }

    pub(crate) fn cancel(&self, task: &str) {
        let mut known = self.known.lock().expect("not poisoned");
        known.over.insert(task.to_owned());
        let first = known.talks.get(task).map(|(_, said)| said[0].clone());
        known.canceled.extend(first);
    }

    /// Returns the skill of the task and all that the user has said.
    fn hear(&self, task: &str, skill: Option<&str>, text: &str) -> (String, Vec<String>) {
        let is_skill = |name: &str| SKILLS.iter().any(|(known, _)| *known == name);
        let mut known = self.known.lock().expect("not poisoned");
        let talk = known.talks.entry(task.to_owned()).or_insert_with(|| {
            let (first, _) = text.split_once(' ').unwrap_or((text, ""));
            let skill = skill.filter(|skill| is_skill(skill)).or(is_skill(first).then_some(first));
            (skill.unwrap_or("echo").to_owned(), Vec::new())
        });
        let is_first = talk.1.is_empty();
        let named = text.strip_prefix(talk.0.as_str()).map(|rest| rest.strip_prefix(' ').unwrap_or(rest));
        talk.1.push(named.filter(|_| is_first && skill.is_none()).unwrap_or(text).to_owned());
        talk.clone()
    }
}

impl Turn<'_> {
    fn is_over(&self) -> bool {
        self.stories.known.lock().expect("not poisoned").over.contains(self.sink.task())
    }

    fn status(&self, state: TaskState, text: &str) {
        if !self.is_over() {
            self.sink.tell(state, if text.is_empty() { Vec::new() } else { vec![Part::text(text)] });
        }
    }

    fn artifact(&self, name: &str, content: PartContent, append: bool, last: bool) {
        if !self.is_over() {
            self.sink.give(name, content, append, last);
        }
    }

    fn answer(&self, text: &str) {
        self.artifact("answer", PartContent::Text(text.to_owned()), false, true);
    }

    async fn run(&self, skill: &str, said: &[String]) {
        let text = said.last().map_or("", String::as_str);
        match (skill, said.len()) {
            ("later", 1) => {
                self.status(TaskState::Working, "thinking");
                sleep(PATIENCE).await;
                return self.status(TaskState::InputRequired, "Which colour?");
            }
            ("ask" | "twice", 1) => return self.status(TaskState::InputRequired, "Which colour?"),
            ("twice", 2) => return self.status(TaskState::InputRequired, "Which size?"),
            ("fail", _) => {
                self.status(TaskState::Working, "trying");
                return self.status(TaskState::Failed, "It went wrong on purpose");
            }
            ("reject", _) => return self.status(TaskState::Rejected, "That is not for me"),
            ("data", _) => {
                let data = json!({ "text": text, "list": [1, 2, 3], "nested": { "ok": true } });
                self.artifact("data", PartContent::Data(data), false, false);
            }
            ("stream", _) => self.stream(text).await,
            ("slow", _) => {
                for second in 0..3 {
                    self.status(TaskState::Working, &format!("{second} seconds gone"));
                    sleep(Duration::from_secs(1)).await;
                }
                self.answer(text);
            }
            ("work", _) => self.work(number(text, 3)).await,
            ("chunks", _) => self.chunks(number(text, 1000)).await,
            ("login", _) => {
                let page = Part::url(LOGIN).with_filename("Sign in").with_media_type("text/html");
                if !self.is_over() {
                    self.sink.tell(TaskState::AuthRequired, vec![Part::text("Sign in to go on"), page]);
                }
                sleep(PATIENCE).await;
                self.answer("You are signed in");
            }
            ("fate", _) => {
                let was = self.stories.known.lock().expect("not poisoned").canceled.contains(text);
                self.answer(if was { "canceled" } else { "not canceled" });
            }
            ("ids", _) => self.answer(&format!("{} {}", self.sink.task(), self.sink.context())),
            ("ask" | "later", _) => self.answer(&format!("The colour is {text}")),
            ("twice", _) => self.answer(&format!("The colour is {}, the size is {}", said[1], said[2])),
            _ => self.answer(text),
        }
        self.status(TaskState::Completed, "");
    }

    async fn work(&self, seconds: u64) {
        for second in 0..seconds {
            if self.is_over() {
                return;
            }
            self.status(TaskState::Working, &format!("{second} of {seconds} seconds gone"));
            sleep(Duration::from_secs(1)).await;
        }
        self.answer(&format!("Worked for {seconds} seconds"));
    }

    async fn chunks(&self, count: u64) {
        for index in 0..count {
            let text = PartContent::Text(format!("{index};"));
            self.artifact("answer", text, index > 0, index + 1 == count);
            // The SDK drops a reader of events that is more than 32 behind.
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn stream(&self, text: &str) {
        for percent in [25, 50, 75] {
            self.status(TaskState::Working, &format!("{percent} percent done"));
            sleep(Duration::from_millis(50)).await;
        }
        let letters: Vec<char> = text.chars().collect();
        let third = (letters.len() / 3).max(1);
        for index in 0..3 {
            let end = if index == 2 { letters.len() } else { ((index + 1) * third).min(letters.len()) };
            let piece: String = letters[(index * third).min(end)..end].iter().collect();
            let piece = if piece.is_empty() { " ".to_owned() } else { piece };
            self.artifact("answer", PartContent::Text(piece), index > 0, index == 2);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn number(text: &str, fallback: u64) -> u64 {
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(fallback)
}
