//! A `poll_oneoff` that does not wait past the call's deadline, and ends when the call is cancelled.
//!
//! A guest can wait for clocks, its standard input and files. Standard input and files are always ready, so only clocks
//! cause a wait.

use std::time::{Duration, Instant, SystemTime};

use super::{control::CallControl, control::CallStop, fs_result::Errno};

/// The maximum number of subscriptions in one call. Each subscription costs the host a few bytes.
const MAX_SUBSCRIPTIONS: usize = 1024;

/// The length of one sleep, which bounds how late a cancellation is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The sizes of `$subscription` and `$event` in `wasi_snapshot_preview1.witx`.
const SUBSCRIPTION_BYTES: usize = 48;
const EVENT_BYTES: usize = 32;

const TAG_CLOCK: u8 = 0;
const TAG_READ: u8 = 1;
const TAG_WRITE: u8 = 2;
const CLOCK_REALTIME: u32 = 0;
const CLOCK_MONOTONIC: u32 = 1;
const FLAG_ABSOLUTE: u16 = 1;

/// The subscriptions of one call.
#[derive(Debug)]
pub(super) struct Subscriptions {
    entries: Vec<Subscription>,
    started_at: Instant,
}

#[derive(Debug)]
struct Subscription {
    userdata: u64,
    event: u8,
    /// The delay from the start of the wait. Zero if the event is ready.
    delay: Duration,
}

impl Subscriptions {
    /// Reads the subscriptions from the guest's memory. `monotonic_now` is the time of the guest's monotonic clock.
    pub(super) fn parse(bytes: &[u8], monotonic_now: Duration) -> Result<Self, Errno> {
        let entries =
            bytes.chunks_exact(SUBSCRIPTION_BYTES).map(|entry| parse_subscription(entry, monotonic_now));
        let entries: Vec<_> = entries.collect::<Result<_, _>>()?;
        if entries.is_empty() || entries.len() > MAX_SUBSCRIPTIONS {
            return Err(Errno::INVAL);
        }
        Ok(Self { entries, started_at: Instant::now() })
    }

    /// Sleeps until the first subscription is ready, and returns the ready events.
    pub(super) fn wait(&self, control: &CallControl) -> Result<Vec<[u8; EVENT_BYTES]>, CallStop> {
        let wait = self.entries.iter().map(|entry| entry.delay).min().unwrap_or_default();
        loop {
            if let Some(reason) = control.stop_reason() {
                return Err(reason);
            }
            let remaining = wait.saturating_sub(self.started_at.elapsed());
            if remaining.is_zero() {
                break;
            }
            std::thread::sleep(remaining.min(POLL_INTERVAL));
        }
        let ready = self.entries.iter().filter(|entry| entry.delay <= wait);
        Ok(ready.map(Subscription::event).collect())
    }
}

/// Returns the size of `count` subscriptions in the guest's memory, in bytes.
pub(super) fn subscriptions_bytes(count: u32) -> Result<usize, Errno> {
    let count = usize::try_from(count).map_err(|_cause| Errno::INVAL)?;
    if count == 0 || count > MAX_SUBSCRIPTIONS {
        return Err(Errno::INVAL);
    }
    Ok(count * SUBSCRIPTION_BYTES)
}

impl Subscription {
    fn event(&self) -> [u8; EVENT_BYTES] {
        let mut event = [0; EVENT_BYTES];
        event[0..8].copy_from_slice(&self.userdata.to_le_bytes());
        // Bytes 8 and 9 are the error, which stays 0.
        event[10] = self.event;
        if self.event != TAG_CLOCK {
            // `nbytes`: at least one byte can be read or written.
            event[16..24].copy_from_slice(&1_u64.to_le_bytes());
        }
        event
    }
}

fn parse_subscription(bytes: &[u8], monotonic_now: Duration) -> Result<Subscription, Errno> {
    let userdata = u64::from_le_bytes(field(bytes, 0)?);
    let [event] = field(bytes, 8)?;
    let delay = match event {
        TAG_CLOCK => {
            // `$subscription_clock`: the id at 16, the timeout at 24, and the flags at 40. The precision at
            // 32 is ignored.
            let clock = u32::from_le_bytes(field(bytes, 16)?);
            let timeout = Duration::from_nanos(u64::from_le_bytes(field(bytes, 24)?));
            let absolute = u16::from_le_bytes(field(bytes, 40)?) & FLAG_ABSOLUTE != 0;
            match (clock, absolute) {
                (CLOCK_REALTIME | CLOCK_MONOTONIC, false) => timeout,
                (CLOCK_MONOTONIC, true) => timeout.saturating_sub(monotonic_now),
                (CLOCK_REALTIME, true) => {
                    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                    timeout.saturating_sub(now)
                }
                _ => return Err(Errno::INVAL),
            }
        }
        TAG_READ | TAG_WRITE => Duration::ZERO,
        _ => return Err(Errno::INVAL),
    };
    Ok(Subscription { userdata, event, delay })
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> Result<[u8; N], Errno> {
    bytes.get(offset..offset + N).and_then(|part| part.try_into().ok()).ok_or(Errno::FAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(userdata: u64, id: u32, timeout: Duration, flags: u16) -> Vec<u8> {
        let mut bytes = vec![0; SUBSCRIPTION_BYTES];
        bytes[0..8].copy_from_slice(&userdata.to_le_bytes());
        bytes[16..20].copy_from_slice(&id.to_le_bytes());
        let nanos = u64::try_from(timeout.as_nanos()).expect("small");
        bytes[24..32].copy_from_slice(&nanos.to_le_bytes());
        bytes[40..42].copy_from_slice(&flags.to_le_bytes());
        bytes
    }

    fn wait(bytes: &[u8], deadline: Duration) -> Result<usize, CallStop> {
        let subscriptions = Subscriptions::parse(bytes, Duration::from_secs(100)).expect("parses");
        let control = CallControl::new(Instant::now() + deadline, None);
        subscriptions.wait(&control).map(|events| events.len())
    }

    #[test]
    fn the_shortest_wait_decides_on_relative_and_absolute_times() {
        let minute = Duration::from_secs(60);
        let mut bytes = clock(1, CLOCK_MONOTONIC, Duration::from_secs(3600), 0);
        bytes.extend(clock(2, CLOCK_MONOTONIC, Duration::from_secs(99), FLAG_ABSOLUTE));
        assert_eq!(wait(&bytes, minute), Ok(1));
    }

    #[test]
    fn an_hour_of_sleep_ends_at_the_deadline() {
        let bytes = clock(1, CLOCK_REALTIME, Duration::from_secs(3600), 0);
        assert_eq!(wait(&bytes, Duration::from_millis(20)), Err(CallStop::Deadline));
    }

    #[test]
    fn unsupported_or_empty_subscription_is_invalid() {
        let process_clock = clock(1, 2, Duration::ZERO, 0);
        assert!(Subscriptions::parse(&process_clock, Duration::ZERO).is_err());
        assert!(Subscriptions::parse(&[], Duration::ZERO).is_err());
        assert!(subscriptions_bytes(u32::MAX).is_err());
    }
}
