//! Long work: handles, tasks, questions and answers, cancellation, and push notifications.

mod answer_forms;
mod answers_lost;
mod answers_once;
mod authorizations;
mod cancel_grace;
mod cancelling;
mod core_tasks;
mod ext_tasks;
mod faults;
mod handles;
mod loose_ends;
mod lost_tasks;
pub(crate) mod push;
mod questions;
mod questions_in_parts;
mod questions_on_stream;
mod room;
mod same_questions;
mod stalled;
mod taken_questions;
mod task_life;
pub(crate) mod tasks_seen;
