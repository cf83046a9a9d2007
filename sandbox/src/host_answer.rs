//! Blocks a guest's thread until its host answers.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

use wasmtime::{Error, Result};

use super::control::CallControl;

/// The interval at which a waiting thread checks whether its call has ended. The epoch does not interrupt a
/// host function.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits for an answer. Returns `None` if the host dropped the request.
///
/// # Errors
/// The reason why the call must stop, if it must stop before the answer arrives.
pub(super) fn await_answer<T>(receiver: &Receiver<T>, control: &CallControl) -> Result<Option<T>> {
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(answer) => return Ok(Some(answer)),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(reason) = control.stop_reason() {
                    return Err(Error::new(reason));
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
}
