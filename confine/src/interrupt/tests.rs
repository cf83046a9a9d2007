//! Tests that a stuck thread is freed, and that no other thread is harmed.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FileType, Mode, OFlags},
    io::Errno,
};

use super::*;
use crate::{
    confine_current_thread,
    testing::{ConfineFixture, kernel_has_layers, open},
};

#[test]
fn a_thread_that_waits_for_a_fifo_is_freed() {
    if !kernel_has_layers() {
        return;
    }
    install_handler().unwrap();
    install_handler().unwrap();
    let fixture = ConfineFixture::new();
    let fifo = fixture.path("read/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let (announce, target) = std::sync::mpsc::channel();
    let outcome = thread::scope(|scope| {
        let stuck = scope.spawn(|| {
            let proven = confine_current_thread(&fixture.rules()).unwrap();
            announce.send(ThreadTarget::current()).unwrap();
            let outcome = open(&fifo, OFlags::RDONLY);
            proven.reprove().unwrap();
            outcome
        });
        let target = target.recv().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !stuck.is_finished() {
            if Instant::now() > deadline {
                // Unblock the thread, so that the test fails instead of hanging.
                open(&fifo, OFlags::RDWR | OFlags::NONBLOCK).unwrap();
            }
            target.interrupt();
            thread::yield_now();
        }
        stuck.join().unwrap()
    });
    assert_eq!(outcome, Err(Errno::INTR));
}

#[test]
fn interrupting_an_ended_thread_is_harmless() {
    install_handler().unwrap();
    let target = thread::spawn(ThreadTarget::current).join().unwrap();
    target.interrupt();
}

#[test]
fn interrupting_a_working_thread_loses_nothing() {
    install_handler().unwrap();
    let target = ThreadTarget::current();
    let fixture = ConfineFixture::new();
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                target.interrupt();
                thread::yield_now();
            }
        });
        for _ in 0..200 {
            std::fs::write(fixture.path("write/file"), "text").unwrap();
            assert_eq!(std::fs::read(fixture.path("write/file")).unwrap(), b"text");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_handler_of_the_application_is_kept() {
    // Another signal, because handlers belong to the process and other tests need the first signal.
    const OTHER: i32 = libc::SIGUSR2;
    assert_eq!(sys::signal_handler(OTHER).unwrap(), Handler::Unset);
    sys::install_foreign_handler(OTHER);
    assert!(matches!(install_handler_of(OTHER), Err(ConfineError::InterruptTaken { signal: OTHER })));
    assert_eq!(sys::signal_handler(OTHER).unwrap(), Handler::Foreign);
}
