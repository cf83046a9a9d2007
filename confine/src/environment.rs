//! Removes a secret from this process's environment.

use crate::{SingleThreaded, sys};

/// Removes a variable from the environment and overwrites its text, so that neither `/proc/self/environ` nor
/// a program that this process starts can show it. Returns the variable's value, or `None` if the variable is
/// not set.
///
/// The token rules out other threads: even a thread of a C library could read the environment during the
/// overwrite.
#[must_use]
pub fn take_variable(name: &str, one_thread: &SingleThreaded) -> Option<Vec<u8>> {
    sys::take_variable(name, one_thread)
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    const VARIABLE: &str = "PORTCULLIS_TAKEN_IN_A_TEST";

    fn environment() -> Vec<u8> {
        fs::read("/proc/self/environ").unwrap()
    }

    /// The test harness has several threads. The test therefore starts its own program again with only this
    /// test, and pretends to be single-threaded.
    #[test]
    fn a_taken_variable_is_gone() {
        #[expect(clippy::disallowed_methods, reason = "the test starts itself with a variable")]
        let mut child = Command::new(std::env::current_exe().unwrap());
        if std::env::var_os(VARIABLE).is_none() {
            let arguments = ["environment::tests::a_taken_variable_is_gone", "--exact", "--test-threads=1"];
            let output = child.args(arguments).env(VARIABLE, "hunter2-hunter2").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            return;
        }
        let contains = |bytes: &[u8]| bytes.windows(15).any(|part| part == b"hunter2-hunter2");
        assert!(contains(&environment()));
        let one_thread = SingleThreaded::pretend();
        assert_eq!(take_variable(VARIABLE, &one_thread).as_deref(), Some(&b"hunter2-hunter2"[..]));
        assert_eq!(take_variable(VARIABLE, &one_thread), None);
        assert!(!contains(&environment()) && std::env::var_os(VARIABLE).is_none());
        assert_eq!(take_variable("a=b", &one_thread), None);
    }
}
