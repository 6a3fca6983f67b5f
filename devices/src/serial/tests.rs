// SPDX-License-Identifier: Apache-2.0
//! The port against an output that can be busy, slow or gone, and a driver that does what Linux does.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::uart::{IER_ERBFI, IER_ETBEI, IIR_NONE, IIR_RDA, IIR_THRE, LCR_DLAB, LSR_DR, LSR_THRE_TEMT, MCR_LOOP};
use super::*;
use crate::bus::{Device, Width};
use crate::interrupt::Edges;

/// What the output does with the next write.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    /// Takes everything.
    Ready,
    /// Takes at most so many bytes per write, then is busy.
    Slow(usize),
    /// Fails.
    Fails(ErrorKind),
}

/// An output that remembers each write.
#[derive(Clone)]
struct Terminal(Arc<Mutex<TerminalState>>);

struct TerminalState {
    mood: Mood,
    writes: Vec<Vec<u8>>,
    calls: usize,
}

impl Terminal {
    fn new(mood: Mood) -> Self {
        Self(Arc::new(Mutex::new(TerminalState { mood, writes: Vec::new(), calls: 0 })))
    }

    fn set(&self, mood: Mood) {
        self.0.lock().unwrap().mood = mood;
    }

    fn writes(&self) -> Vec<String> {
        let state = self.0.lock().unwrap();
        state.writes.iter().map(|write| String::from_utf8(write.clone()).unwrap()).collect()
    }

    fn calls(&self) -> usize {
        self.0.lock().unwrap().calls
    }
}

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        state.calls += 1;
        let taken = match state.mood {
            Mood::Ready => bytes.len(),
            Mood::Slow(0) => return Err(ErrorKind::WouldBlock.into()),
            Mood::Slow(limit) => {
                state.mood = Mood::Slow(0);
                limit.min(bytes.len())
            }
            Mood::Fails(kind) => return Err(kind.into()),
        };
        state.writes.push(bytes[..taken].to_vec());
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Notes {
    failed: AtomicUsize,
    waiting: AtomicUsize,
    room: AtomicUsize,
}

impl SerialEvents for Notes {
    fn output_failed(&self, _error: &io::Error) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    fn output_waiting(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    fn input_room(&self) {
        self.room.fetch_add(1, Ordering::Relaxed);
    }
}

struct Bench {
    port: Serial<Arc<Edges>, Terminal, Arc<Notes>>,
    terminal: Terminal,
    edges: Arc<Edges>,
    notes: Arc<Notes>,
}

impl Bench {
    fn new(mood: Mood) -> Self {
        let (terminal, edges, notes) = (Terminal::new(mood), Arc::new(Edges::default()), Arc::new(Notes::default()));
        let port = Serial::new(edges.clone(), terminal.clone(), notes.clone());
        Self { port, terminal, edges, notes }
    }

    fn send(&self, text: &str) {
        for byte in text.bytes() {
            self.port.write_register(RBR_THR, byte);
        }
    }

    fn send_string(&self, text: &str) {
        self.port.write_string(RBR_THR, Width::Byte, text.as_bytes());
    }

    /// As a driver's receive handler: until the LSR says empty.
    fn receive(&self) -> String {
        let mut text = String::new();
        while self.port.read_register(LSR) & LSR_DR != 0 {
            text.push(self.port.read_register(RBR_THR).into());
        }
        text
    }

    fn interrupt(&self) -> u8 {
        self.port.read_register(IIR_FCR) & 0xF
    }
}

#[test]
fn single_bytes_go_out_as_one_write_per_line() {
    let bench = Bench::new(Mood::Ready);
    bench.send("one\ntwo\nthr");
    assert_eq!(bench.terminal.writes(), ["one\n", "two\n"]);
    assert_eq!(bench.port.flush(), Flushed::Done);
    assert_eq!(bench.terminal.writes(), ["one\n", "two\n", "thr"]);
}

#[test]
fn a_string_is_one_write_with_what_waited_before_it() {
    let bench = Bench::new(Mood::Ready);
    bench.send("> ");
    bench.send_string("a\nb\nc");
    assert_eq!(bench.terminal.writes(), ["> a\nb\nc"]);
}

#[test]
fn a_long_line_goes_out_in_pieces() {
    let bench = Bench::new(Mood::Ready);
    bench.send(&"x".repeat(2500));
    assert_eq!(bench.terminal.writes().len(), 2);
}

#[test]
fn a_prompt_appears_when_the_driver_turns_to_something_else() {
    type Turn = fn(&Bench);
    let turns: [(&str, Turn); 4] = [
        ("writes the IER", |bench| bench.port.write_register(IER, 0)),
        ("reads input", |bench| _ = bench.port.read_register(RBR_THR)),
        ("polls the LSR", |bench| (0..3).for_each(|_| _ = bench.port.read_register(LSR))),
        ("is fed", |bench| assert_eq!(bench.port.feed(b"y"), 1)),
    ];
    for (name, turn) in turns {
        let bench = Bench::new(Mood::Ready);
        bench.send("login: ");
        assert_eq!(bench.terminal.writes(), [""; 0], "{name}");
        assert_eq!(bench.notes.waiting.load(Ordering::Relaxed), 1, "{name}");
        turn(&bench);
        assert_eq!(bench.terminal.writes(), ["login: "], "{name}");
    }
}

#[test]
fn a_polling_driver_does_not_break_the_line() {
    let bench = Bench::new(Mood::Ready);
    for byte in "a polled line\n".bytes() {
        bench.port.read_register(LSR);
        bench.port.write_register(RBR_THR, byte);
        bench.port.read_register(LSR);
    }
    assert_eq!(bench.terminal.writes(), ["a polled line\n"]);
}

#[test]
fn a_broken_output_is_reported_once_and_never_tried_again() {
    let bench = Bench::new(Mood::Fails(ErrorKind::BrokenPipe));
    bench.send_string("lost\n");
    bench.send("lost too\n");
    assert_eq!(bench.notes.failed.load(Ordering::Relaxed), 1);
    assert_eq!(bench.terminal.calls(), 1);
    let counters = bench.port.counters();
    assert_eq!((counters.written_bytes, counters.dropped_bytes, counters.waiting_bytes), (0, 14, 0));
}

#[test]
fn an_output_that_takes_nothing_is_given_up() {
    struct Nothing;
    impl Write for Nothing {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Ok(0)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let notes = Arc::new(Notes::default());
    let port = Serial::new(Arc::new(Edges::default()), Nothing, notes.clone());
    port.write_string(RBR_THR, Width::Byte, b"abc");
    assert_eq!(notes.failed.load(Ordering::Relaxed), 1);
    assert_eq!(port.counters().dropped_bytes, 3);
}

#[test]
fn a_busy_output_gets_the_rest_later() {
    for busy in [Mood::Slow(3), Mood::Fails(ErrorKind::Interrupted)] {
        let bench = Bench::new(busy);
        bench.send_string("abcdef");
        assert_eq!(bench.notes.waiting.load(Ordering::Relaxed), 1);
        bench.terminal.set(Mood::Ready);
        assert_eq!(bench.port.flush(), Flushed::Done);
        assert_eq!(bench.terminal.writes().concat(), "abcdef");
    }
}

#[test]
fn a_full_queue_holds_the_driver_back_and_lets_it_go_on() {
    let bench = Bench::new(Mood::Slow(0));
    bench.port.write_register(IER, IER_ETBEI);
    let page = "p".repeat(4096);
    let mut sent = 0;
    while bench.port.read_register(LSR) & LSR_THRE_TEMT != 0 && sent < 100 {
        bench.send_string(&page);
        sent += 1;
    }
    assert_eq!(sent, 16, "64 KiB wait, then the transmitter is busy");
    assert_eq!(bench.interrupt(), IIR_NONE, "a busy transmitter is not empty");
    bench.send("!");
    assert_eq!(bench.port.counters().dropped_bytes, 1, "only a driver that ignores the LSR loses");

    let edges = bench.edges.count();
    bench.terminal.set(Mood::Ready);
    assert_eq!(bench.port.flush(), Flushed::Done);
    assert_eq!(bench.edges.count(), edges + 1, "the driver waits for THRE");
    assert_eq!(bench.interrupt(), IIR_THRE);
    assert_eq!(bench.port.read_register(LSR) & LSR_THRE_TEMT, LSR_THRE_TEMT);
    assert_eq!(bench.port.counters().written_bytes, 65536);
}

#[test]
fn transmitter_empty_interrupts_and_is_cleared_by_reading_the_iir() {
    let bench = Bench::new(Mood::Ready);
    bench.port.write_register(IER, IER_ETBEI);
    assert_eq!(bench.edges.count(), 1, "the transmitter is empty from the start");
    assert_eq!((bench.interrupt(), bench.interrupt()), (IIR_THRE, IIR_NONE));
    bench.send("a");
    assert_eq!(bench.edges.count(), 2);
    assert_eq!((bench.interrupt(), bench.interrupt()), (IIR_THRE, IIR_NONE));
}

#[test]
fn received_data_goes_before_transmitter_empty() {
    let bench = Bench::new(Mood::Ready);
    bench.port.write_register(IER, IER_ERBFI | IER_ETBEI);
    assert_eq!(bench.port.feed(b"in"), 2);
    assert_eq!((bench.interrupt(), bench.interrupt()), (IIR_RDA, IIR_RDA), "until the data is read");
    assert_eq!(bench.receive(), "in");
    assert_eq!((bench.interrupt(), bench.interrupt()), (IIR_THRE, IIR_NONE));
}

#[test]
fn data_that_came_before_the_interrupt_was_enabled_interrupts() {
    let bench = Bench::new(Mood::Ready);
    assert_eq!(bench.port.feed(b"early"), 5);
    assert_eq!(bench.edges.count(), 0);
    bench.port.write_register(IER, IER_ERBFI);
    assert_eq!((bench.edges.count(), bench.interrupt()), (1, IIR_RDA));
    assert_eq!(bench.receive(), "early");
}

#[test]
fn input_waits_outside_until_the_fifo_has_room() {
    let bench = Bench::new(Mood::Ready);
    let text: String = (b'a'..=b'z').cycle().take(200).map(char::from).collect();
    let mut rest = text.as_bytes();
    let mut received = String::new();
    while !rest.is_empty() {
        let taken = bench.port.feed(rest);
        assert_eq!(taken, FIFO_BYTES.min(rest.len()));
        rest = &rest[taken..];
        let notified = bench.notes.room.load(Ordering::Relaxed);
        received += &bench.receive();
        let expected = notified + usize::from(!rest.is_empty());
        assert_eq!(bench.notes.room.load(Ordering::Relaxed), expected, "once, not for every byte");
    }
    assert_eq!(received, text);
    assert_eq!(bench.port.counters().fed_bytes, 200);
}

#[test]
fn a_full_fifo_takes_nothing() {
    let bench = Bench::new(Mood::Ready);
    assert_eq!((bench.port.feed(&[b'x'; 100]), bench.port.feed(b"y")), (FIFO_BYTES, 0));
    assert_eq!(bench.port.feed(b""), 0);
    assert_eq!(bench.receive().len(), FIFO_BYTES);
}

#[test]
fn input_waits_for_the_end_of_loopback() {
    let bench = Bench::new(Mood::Ready);
    assert_eq!(bench.port.feed(b"before"), 6);
    bench.port.write_register(MCR, MCR_LOOP);
    bench.send("echo");
    assert_eq!(bench.port.feed(b"during"), 0);
    assert_eq!(bench.receive(), "beforeecho");
    assert_eq!(bench.notes.room.load(Ordering::Relaxed), 0, "there is no room yet");
    bench.port.write_register(MCR, 0);
    assert_eq!(bench.notes.room.load(Ordering::Relaxed), 1);
    assert_eq!(bench.port.feed(b"during"), 6);
    assert_eq!(bench.receive(), "during");
    assert_eq!(bench.terminal.calls(), 0, "loopback bytes do not leave the part");
}

#[test]
fn the_divisor_latch_is_neither_output_nor_interrupt_enable() {
    let bench = Bench::new(Mood::Ready);
    bench.port.write_register(LCR, LCR_DLAB);
    bench.send("\x01");
    bench.port.write_register(IER, IER_ETBEI);
    bench.port.write_register(LCR, 3);
    assert_eq!(bench.port.read_register(IER), 0);
    assert_eq!(bench.port.flush(), Flushed::Done);
    assert_eq!((bench.terminal.calls(), bench.edges.count()), (0, 0));
}

#[test]
fn an_interrupt_that_fails_is_counted() {
    let bench = Bench::new(Mood::Ready);
    bench.edges.fail();
    bench.port.write_register(IER, IER_ETBEI);
    assert_eq!(bench.port.counters().interrupts_failed, 1);
    assert_eq!(bench.interrupt(), IIR_THRE, "a driver that polls still sees it");
}
