// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "signal handlers and pthread_kill")]
//! Getting a vCPU thread out of `KVM_RUN`.
//!
//! The kick is a signal that the kernel need not queue: a real-time one is refused (`EAGAIN`) when the user's queue is
//! full (RLIMIT_SIGPENDING), and a kick that is lost leaves a thread in the guest. Its handler sets `immediate_exit` of the vCPU that the interrupted thread runs, so a
//! kick that arrives just before `KVM_RUN` makes that call return at once
//! (Documentation/virt/kvm/api.rst, `immediate_exit`): the window between looking for a request and entering the guest
//! is closed without a signal mask. A thread that waits in user space instead shows the handler its futex word
//! ([`watch`]), which the handler marks before the wait can go on.

use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use vmm_sys_util::signal::{register_signal_handler, unblock_signal};

thread_local! {
    // Const-initialised and without a destructor: reading it in a signal handler neither allocates nor locks.
    static IMMEDIATE_EXIT: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
    static WATCHED: Cell<*const AtomicU32> = const { Cell::new(ptr::null()) };
}

/// What [`mark`] writes into a word that says parked.
pub const KICKED: u32 = 2;
/// What a word says whose thread waits.
pub const PARKED: u32 = 1;

/// The signal that kicks a vCPU thread.
#[must_use]
pub fn signal() -> libc::c_int {
    libc::SIGUSR1
}

/// Installs the handler, for the whole process, and lets the signal through, which whoever started the process may have
/// blocked. Once, before the first vCPU thread is started: all inherit the mask of the calling thread.
///
/// # Errors
/// The kernel's own.
pub fn install_handler() -> io::Result<()> {
    register_signal_handler(signal(), handle).map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
    unblock_signal(signal()).map_err(|error| io::Error::other(error.to_string()))
}

extern "C" fn handle(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    leave_guest();
}

/// Makes the calling thread leave the guest, or a wait, at once. For signal handlers of this crate: async-signal-safe.
pub(crate) fn leave_guest() {
    let immediate_exit = IMMEDIATE_EXIT.get();
    if !immediate_exit.is_null() {
        // SAFETY: the pointer was set by this very thread in `Kickable::new` and is cleared before the vCPU's mapping
        // goes away; the byte is written by this thread and read by the kernel only, and an atomic store is
        // async-signal-safe.
        unsafe { AtomicU8::from_ptr(immediate_exit) }.store(1, Ordering::Relaxed);
    }
    let watched = WATCHED.get();
    if !watched.is_null() {
        // SAFETY: set by this very thread from a reference that a `Watch` keeps borrowed, and cleared when that is
        // dropped; the operation is a single atomic one.
        mark(unsafe { &*watched });
    }
}

/// Marks a futex word: a thread that is parked on it is not any more.
pub fn mark(word: &AtomicU32) {
    // A thread that is awake is left alone.
    let _ = word.compare_exchange(PARKED, KICKED, Ordering::SeqCst, Ordering::SeqCst);
}

/// Whether the calling thread was kicked since it last cleared `immediate_exit`; false on a thread without a vCPU.
#[must_use]
pub fn has_arrived() -> bool {
    let immediate_exit = IMMEDIATE_EXIT.get();
    // SAFETY: as in the handler.
    !immediate_exit.is_null() && unsafe { AtomicU8::from_ptr(immediate_exit) }.load(Ordering::Relaxed) != 0
}

/// While this lives, a kick of the calling thread marks `word`. Look at [`has_arrived`] after making it.
#[must_use]
pub fn watch(word: &AtomicU32) -> Watch<'_> {
    WATCHED.set(word);
    Watch(std::marker::PhantomData)
}

/// See [`watch`].
#[derive(Debug)]
pub struct Watch<'a>(std::marker::PhantomData<(&'a AtomicU32, *mut u8)>);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        WATCHED.set(ptr::null());
    }
}

/// Sends a signal to a thread of this process by its id; 0 is nobody, and a thread that has ended is not missed.
pub fn kick(tid: i32, signal: libc::c_int) {
    if tid > 0 {
        // SAFETY: integers only. The target is confined to this process, where every thread bears the signal: its
        // handler was installed before any thread was started.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) };
    }
}

/// While this lives, a kick of the thread that made it sets `immediate_exit` of one vCPU.
#[derive(Debug)]
pub struct Kickable {
    // Not Send: it speaks of the thread it was made on.
    _thread: std::marker::PhantomData<*mut u8>,
}

impl Kickable {
    /// Connects the calling thread with the byte that [`crate::kvm::vcpu::Vcpu::immediate_exit`] points to. The caller
    /// drops this before the vCPU.
    #[must_use]
    pub fn new(immediate_exit: *mut u8) -> Self {
        IMMEDIATE_EXIT.set(immediate_exit);
        Self { _thread: std::marker::PhantomData }
    }
}

impl Drop for Kickable {
    fn drop(&mut self) {
        IMMEDIATE_EXIT.set(ptr::null_mut());
    }
}
