//! Environment variables that override the defaults of keys that the file leaves out. The file
//! wins: a variable of a written key is ignored, and an empty one counts as unset.
//!
//! See also `file::tasks` for the variables.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::problem::Problem;
use super::resolve::ResolveContext;
use super::spanned::{Location, Spanned};
use super::units::HumanDuration;

/// A key, and the variable that replaces it.
#[derive(Clone, Copy)]
pub(super) struct EnvOverride {
    pub(super) key: &'static str,
    pub(super) variable: &'static str,
}

impl ResolveContext<'_> {
    /// Returns a duration within bounds; the variable is in milliseconds.
    pub(super) fn wait_or(
        &mut self,
        written: Spanned<HumanDuration>,
        stand_in: EnvOverride,
        bounds: RangeInclusive<Duration>,
        default: Duration,
    ) -> Duration {
        if written.place().is_some() {
            return self.wait(written, bounds, default);
        }
        let Some(found) = self.number(stand_in, "milliseconds") else { return default };
        let (wait, ends) =
            (Duration::from_millis(found), (HumanDuration(*bounds.start()), HumanDuration(*bounds.end())));
        if bounds.contains(&wait) { wait } else { self.outside(stand_in, HumanDuration(wait), ends, default) }
    }

    /// Returns a count within bounds.
    pub(super) fn count_or(
        &mut self,
        written: Spanned<u64>,
        stand_in: EnvOverride,
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

    /// Returns the value of the variable, if it is set.
    pub(super) fn stand_in(&mut self, stand_in: EnvOverride) -> Option<String> {
        match self.env_var(stand_in.variable)?.into_string() {
            Ok(text) => Some(text),
            Err(_) => {
                self.report_override(None, stand_in, "is not UTF-8");
                None
            }
        }
    }

    /// Reports a problem at the location of the value: in the file, or else in the environment.
    pub(super) fn report_override(&mut self, place: Option<Location>, stand_in: EnvOverride, problem: &str) {
        match place {
            Some(place) => self.problem(&place, problem),
            None => {
                let problem = format!("environment variable {}: {problem}", stand_in.variable);
                self.report(Problem { line: None, at: stand_in.key.to_owned(), problem });
            }
        }
    }

    fn number(&mut self, stand_in: EnvOverride, unit: &str) -> Option<u64> {
        let text = self.stand_in(stand_in)?;
        let number = text.trim().parse().ok();
        if number.is_none() {
            self.report_override(None, stand_in, &format!("is not a whole number of {unit}"));
        }
        number
    }

    fn outside<T: Display, R>(
        &mut self,
        stand_in: EnvOverride,
        found: T,
        (least, most): (T, T),
        default: R,
    ) -> R {
        self.report_override(None, stand_in, &format!("{found} is out of bounds (from {least} to {most})"));
        default
    }
}
