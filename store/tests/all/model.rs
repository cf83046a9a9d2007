//! Models the race of a timeout and a result on a row, in schedules that shuttle chooses. The real rows are
//! in `races.rs`, and the suite shows that an update which names the status is the compare-and-swap of this
//! model.

use shuttle::{
    sync::{Arc, Mutex},
    thread,
};

/// The number of schedules to try of each kind.
const SCHEDULES: usize = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Waiting,
    Pending,
    Resolved,
}

/// A row of `calls`, with the inbox and the run that waits.
#[derive(Debug)]
struct Row {
    status: Mutex<Status>,
    inbox: Mutex<u32>,
    inline: Mutex<u32>,
}

impl Row {
    /// `update … set status = to where status = from`.
    fn swap(&self, from: Status, to: Status) -> bool {
        let mut status = self.status.lock().expect("whole");
        let is_swapped = *status == from;
        if is_swapped {
            *status = to;
        }
        is_swapped
    }

    /// The bug that the model must find: a status that is read in one statement and written in another.
    fn blind_swap(&self, from: Status, to: Status) -> bool {
        let is_swapped = *self.status.lock().expect("whole") == from;
        if is_swapped {
            *self.status.lock().expect("whole") = to;
        }
        is_swapped
    }
}

/// One race: the run stops waiting while clients bring a result.
fn race<const CLIENTS: usize>(swap: fn(&Row, Status, Status) -> bool) {
    let row =
        Arc::new(Row { status: Mutex::new(Status::Waiting), inbox: Mutex::new(0), inline: Mutex::new(0) });
    let run = thread::spawn({
        let row = Arc::clone(&row);
        move || {
            if !swap(&row, Status::Waiting, Status::Pending) {
                // Another change came first, so the result is stored.
                assert_eq!(*row.status.lock().expect("whole"), Status::Resolved);
                *row.inline.lock().expect("whole") += 1;
            }
        }
    });
    let clients = [(); CLIENTS].map(|()| {
        let row = Arc::clone(&row);
        thread::spawn(move || {
            if swap(&row, Status::Waiting, Status::Resolved) {
                return true;
            }
            let is_late = swap(&row, Status::Pending, Status::Resolved);
            if is_late {
                *row.inbox.lock().expect("whole") += 1;
            }
            is_late
        })
    });
    run.join().expect("ends");
    let accepted = clients.map(|client| client.join().expect("ends")).into_iter().filter(|won| *won).count();
    let (inline, inbox) = (*row.inline.lock().expect("whole"), *row.inbox.lock().expect("whole"));
    assert_eq!(accepted, 1, "one result is accepted");
    assert_eq!(inline + inbox, 1, "the agent gets the result once");
}

#[test]
fn a_result_and_a_time_out_have_one_winner_in_every_schedule() {
    // Try every schedule of one client. With two clients there are too many.
    shuttle::check_dfs(|| race::<1>(Row::swap), None);
    shuttle::check_random(|| race::<2>(Row::swap), SCHEDULES);
    shuttle::check_pct(|| race::<2>(Row::swap), SCHEDULES, 3);
}

#[test]
#[should_panic(expected = "result")]
fn the_model_finds_a_status_that_is_read_and_written_apart() {
    shuttle::check_random(|| race::<2>(Row::blind_swap), SCHEDULES);
}
