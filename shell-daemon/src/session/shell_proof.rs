//! Proves that the program named bash is bash.

use std::time::Duration;

use crate::{
    CancelReceiver, CommandRequest, Completion, Ending, Interruption, OutputChunk, OutputStream, ShellError,
    ShellSession, StateOutcome,
};

impl ShellSession {
    /// Runs a test command to prove that the program named bash is bash: the program starts, does what only bash does,
    /// and writes its state. The command leaves the session's state unchanged. Warnings are ignored.
    ///
    /// # Errors
    /// [`ShellError::ShellUnusable`], and the errors of [`Self::run`].
    pub fn prove_shell(&mut self) -> Result<(), ShellError> {
        let unusable = |reason: String| ShellError::ShellUnusable { reason };
        let (cancellation, _canceller) = CancelReceiver::new().map_err(ShellError::channel)?;
        let request = CommandRequest {
            command: PROOF.to_owned(),
            workdir: None,
            stdin: Vec::new(),
            input: None,
            timeout: PROOF_TIMEOUT,
            max_processes: usize::MAX,
            max_output_bytes: MAX_PROOF_BYTES,
            cancellation,
        };
        let (mut output, mut warnings) = (Vec::new(), Vec::new());
        // Warnings are collected separately: bash may warn before it does anything, for example about a locale that is
        // not installed.
        let mut collect_output = |chunk: OutputChunk<'_>| match chunk.stream {
            OutputStream::Stdout => output.extend_from_slice(chunk.bytes),
            OutputStream::Stderr => warnings.extend_from_slice(chunk.bytes),
        };
        let end = self.run(&request, &mut collect_output).map_err(|error| match error {
            ShellError::NotStarted { reason } => unusable(reason),
            error => error,
        })?;
        match end.completion {
            Completion::Finished => {}
            Completion::Interrupted(Interruption::Timeout) => {
                return Err(unusable(format!("it did not answer within {PROOF_TIMEOUT:?}")));
            }
            Completion::Interrupted(interruption) => {
                return Err(unusable(format!("it was killed: {interruption:?}")));
            }
        }
        if end.ending != Ending::Code(0) || output != PROOF_OUTPUT {
            let printed = [output, warnings].concat();
            let quoted = String::from_utf8_lossy(&printed[..printed.len().min(MAX_QUOTED_PROOF_BYTES)])
                .escape_debug()
                .to_string();
            return Err(unusable(format!(
                "it is not bash of version 4.4 or later: {:?}, it printed \"{quoted}\"",
                end.ending
            )));
        }
        if end.state != StateOutcome::Carried {
            return Err(unusable("it did not write down its state".to_owned()));
        }
        Ok(())
    }
}

/// The test command. It runs in a subshell, which leaves no variable behind. Other shells have no arrays, no `@Q` and
/// no `^^`.
const PROOF: &str = r#"( proof=(a 'shell b'); [[ ${BASH_VERSINFO[0]} -ge 4 ]] && printf '%s' "${proof[@]@Q}" "${proof[1]^^}" )"#;

const PROOF_OUTPUT: &[u8] = b"'a''shell b'SHELL B";

/// The maximum number of bytes of output that are read from the proof, including warnings.
const MAX_PROOF_BYTES: u64 = 64 << 10;

/// The maximum number of bytes of the proof's output that an error quotes.
const MAX_QUOTED_PROOF_BYTES: usize = 256;

/// The deadline of the proof. Bash usually answers within milliseconds, and later on a busy machine.
const PROOF_TIMEOUT: Duration = Duration::from_secs(10);
