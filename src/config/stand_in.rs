//! Environment variables that stand in for keys that the file leaves out. The file wins: a variable beside a written key is
//! not looked at, and an empty one counts as not set.
//!
//! Not here: references in texts (`reference`), which variables there are (`file::tasks`).

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::place::{Place, Written};
use super::problem::Problem;
use super::reading::Reading;
use super::units::Wait;

/// A key, and the variable that stands in for it.
#[derive(Clone, Copy)]
pub(super) struct StandIn {
    pub(super) key: &'static str,
    pub(super) variable: &'static str,
}

impl Reading<'_> {
    /// A duration within bounds; the variable holds milliseconds.
    pub(super) fn wait_or(
        &mut self,
        written: Written<Wait>,
        stand_in: StandIn,
        bounds: RangeInclusive<Duration>,
        default: Duration,
    ) -> Duration {
        if written.place().is_some() {
            return self.wait(written, bounds, default);
        }
        let Some(found) = self.number(stand_in, "milliseconds") else { return default };
        let (wait, ends) = (Duration::from_millis(found), (Wait(*bounds.start()), Wait(*bounds.end())));
        if bounds.contains(&wait) { wait } else { self.outside(stand_in, Wait(wait), ends, default) }
    }

    /// A count within bounds.
    pub(super) fn count_or(
        &mut self,
        written: Written<u64>,
        stand_in: StandIn,
        bounds: RangeInclusive<usize>,
        default: usize,
    ) -> usize {
        if written.place().is_some() {
            return self.count(written, bounds, default);
        }
        let Some(found) = self.number(stand_in, "attempts") else { return default };
        match usize::try_from(found) {
            Ok(count) if bounds.contains(&count) => count,
            _ => self.outside(stand_in, found, (*bounds.start() as u64, *bounds.end() as u64), default),
        }
    }

    /// What the variable says, if it is set.
    pub(super) fn stand_in(&mut self, stand_in: StandIn) -> Option<String> {
        match self.ambient(stand_in.variable)?.into_string() {
            Ok(text) => Some(text),
            Err(_) => {
                self.blame(None, stand_in, "is not UTF-8");
                None
            }
        }
    }

    /// Reports a problem where the value was written: in the file, or else in the environment.
    pub(super) fn blame(&mut self, place: Option<Place>, stand_in: StandIn, problem: &str) {
        match place {
            Some(place) => self.problem(&place, problem),
            None => {
                let problem = format!("environment variable {}: {problem}", stand_in.variable);
                self.report(Problem { line: None, at: stand_in.key.to_owned(), problem });
            }
        }
    }

    fn number(&mut self, stand_in: StandIn, unit: &str) -> Option<u64> {
        let text = self.stand_in(stand_in)?;
        let number = text.trim().parse().ok();
        if number.is_none() {
            self.blame(None, stand_in, &format!("is not a whole number of {unit}"));
        }
        number
    }

    fn outside<T: Display, R>(
        &mut self,
        stand_in: StandIn,
        found: T,
        (least, most): (T, T),
        default: R,
    ) -> R {
        self.blame(None, stand_in, &format!("{found} is out of bounds (from {least} to {most})"));
        default
    }
}
