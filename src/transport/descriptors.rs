//! The shares of the file descriptors of the process: clients and agents leave some to the admin
//! listener.
//!
//! Counts nothing: a new descriptor gets the lowest free number (POSIX), so that its number shows
//! how many are in use.

use std::os::fd::RawFd;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The maximum number of descriptors that only the admin listener, files and name resolution may
/// take.
const KEPT: u64 = 64;

/// The limit of open files of the process, and its shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileDescriptorBudget {
    /// The limit; a descriptor's number is below it.
    pub limit: u64,
}

impl FileDescriptorBudget {
    /// Returns the limit of the process (`RLIMIT_NOFILE`) as it is now.
    #[must_use]
    pub fn of_process() -> Self {
        Self { limit: getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft) }
    }

    /// Returns the same, after the limit was raised as far as the process itself may.
    #[must_use]
    pub fn raised() -> Self {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((u64::MAX, u64::MAX));
        if soft < hard
            && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
        {
            tracing::debug!(%error, "failed to raise limit of open files");
        }
        Self::of_process()
    }

    /// Returns the number at which connections to agents end.
    #[must_use]
    pub fn for_agents(self) -> RawFd {
        number(self.limit - (self.limit / 4).min(KEPT))
    }

    /// Returns the number at which connections of clients end: a quarter is left for what their
    /// calls need.
    #[must_use]
    pub fn for_clients(self) -> RawFd {
        number(self.limit - (self.limit / 4).min(KEPT) - self.limit / 4)
    }
}

/// Converts a number of descriptors to a descriptor, at least one.
fn number(count: u64) -> RawFd {
    RawFd::try_from(count).unwrap_or(RawFd::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_to_others() {
        for (limit, clients, agents) in
            [(200, 100, 150), (1024, 704, 960), (1 << 20, 786_368, 1_048_512), (0, 1, 1), (3, 3, 3)]
        {
            let descriptors = FileDescriptorBudget { limit };
            assert_eq!((descriptors.for_clients(), descriptors.for_agents()), (clients, agents), "{limit}");
        }
        assert_eq!(FileDescriptorBudget { limit: u64::MAX }.for_clients(), RawFd::MAX);
    }
}
