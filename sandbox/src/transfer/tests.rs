//! Tests of both ends of a transfer, without guests.

use std::time::Instant;

use super::*;

fn control(time: Duration) -> CallControl {
    CallControl::new(Instant::now() + time, None)
}

fn minute() -> CallControl {
    control(Duration::from_secs(60))
}

#[test]
fn chunks_come_in_order_and_then_the_end() {
    let (transfer, control) = (Transfer::new(), minute());
    assert!(!transfer.is_received());
    transfer.send(b"a".to_vec(), &control).expect("room");
    transfer.send(b"bc".to_vec(), &control).expect("room");
    transfer.complete();
    assert_eq!(transfer.receive(&control), Ok(TransferItem::Chunk(b"a".to_vec())));
    assert!(transfer.is_received());
    assert_eq!(transfer.receive(&control), Ok(TransferItem::Chunk(b"bc".to_vec())));
    assert_eq!(transfer.receive(&control), Ok(TransferItem::Complete(3)));
    assert_eq!(transfer.receive(&control), Ok(TransferItem::Complete(3)));
    assert_eq!(transfer.send(b"d".to_vec(), &control), Err(SendRefusal::BrokenOff));
    assert_eq!(transfer.bytes(), 3);
}

#[test]
fn broken_off_transfer_has_no_end() {
    let (transfer, control) = (Transfer::new(), minute());
    transfer.send(b"a".to_vec(), &control).expect("room");
    transfer.complete();
    assert!(transfer.abort(), "the end was not received yet");
    assert_eq!(transfer.receive(&control), Ok(TransferItem::Aborted));
    transfer.complete();
    assert_eq!(transfer.receive(&control), Ok(TransferItem::Aborted));
    let complete = Transfer::new();
    complete.complete();
    assert_eq!(complete.receive(&control), Ok(TransferItem::Complete(0)));
    assert!(!complete.abort());
}

#[test]
fn waiting_chunks_are_bounded_and_none_is_lost() {
    const CHUNKS: usize = 1000;
    let transfer = Transfer::new();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            for number in 0..CHUNKS {
                transfer.send(number.to_le_bytes().to_vec(), &minute()).expect("sent");
                assert!(transfer.state().chunks.len() <= CAPACITY);
            }
            transfer.complete();
        });
        let control = minute();
        for number in 0..CHUNKS {
            let chunk = number.to_le_bytes().to_vec();
            assert_eq!(transfer.receive(&control), Ok(TransferItem::Chunk(chunk)));
        }
        assert_eq!(
            transfer.receive(&control),
            Ok(TransferItem::Complete((CHUNKS * size_of::<usize>()) as u64))
        );
        sender.join().expect("no panic");
    });
}

#[test]
fn neither_end_waits_beyond_its_deadline_or_its_cancellation() {
    let transfer = Transfer::new();
    let short_time = Duration::from_millis(20);
    assert_eq!(transfer.receive(&control(short_time)), Err(CallStop::Deadline));
    for _ in 0..CAPACITY {
        transfer.send(b"a".to_vec(), &minute()).expect("room");
    }
    let stopped = transfer.send(b"a".to_vec(), &control(short_time));
    assert_eq!(stopped, Err(SendRefusal::Stopped(CallStop::Deadline)));
    let given_up = minute();
    given_up.cancel();
    let stopped = transfer.send(b"a".to_vec(), &given_up);
    assert_eq!(stopped, Err(SendRefusal::Stopped(CallStop::Cancelled)));
}

#[test]
fn a_waiting_sender_learns_that_the_receiver_is_gone() {
    let transfer = Transfer::new();
    for _ in 0..CAPACITY {
        transfer.send(b"a".to_vec(), &minute()).expect("room");
    }
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| transfer.send(b"a".to_vec(), &minute()));
        assert!(transfer.abort());
        assert_eq!(sender.join().expect("no panic"), Err(SendRefusal::BrokenOff));
    });
    assert_eq!(transfer.bytes(), CAPACITY as u64);
}

#[test]
fn more_than_the_limit_is_not_passed_on() {
    let (transfer, control) = (Transfer::with_limit(3), minute());
    transfer.send(b"abc".to_vec(), &control).expect("as much as may be");
    assert_eq!(transfer.send(b"d".to_vec(), &control), Err(SendRefusal::TooMuch));
    let transfer_output =
        ChunkSink { transfer, control: Arc::new(minute()), time_limit: Duration::from_secs(60) };
    assert_eq!(transfer_output.send(b"d".to_vec()), Err(GuestFault::TransferTooLarge { limit_bytes: 3 }));
    transfer_output.transfer.abort();
    assert_eq!(transfer_output.send(b"d".to_vec()), Err(GuestFault::Cancelled));
}
