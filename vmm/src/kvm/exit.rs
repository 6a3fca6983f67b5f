// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "kvm_run is a union that the kernel fills; the exit reason says which member is valid")]
//! Why a vCPU came back from `KVM_RUN`, decoded once into a type of our own.
//!
//! Nothing behind this file looks at `kvm_run`, and the run loop matches [`Exit`] without a wildcard: a new kind of exit
//! is a compile error there, an unknown one stays data ([`Exit::Unknown`]).

use kvm_bindings::{
    KVM_EXIT_DEBUG, KVM_EXIT_EXCEPTION, KVM_EXIT_FAIL_ENTRY, KVM_EXIT_HLT, KVM_EXIT_HYPERCALL, KVM_EXIT_INTERNAL_ERROR,
    KVM_EXIT_INTR, KVM_EXIT_IO, KVM_EXIT_IO_OUT, KVM_EXIT_IRQ_WINDOW_OPEN, KVM_EXIT_MMIO, KVM_EXIT_SHUTDOWN,
    KVM_EXIT_SYSTEM_EVENT, KVM_EXIT_X86_RDMSR, KVM_EXIT_X86_WRMSR, kvm_run,
};

/// Why a vCPU stopped running guest code. Data that the kernel wants back is borrowed from `kvm_run` itself.
#[derive(Debug, PartialEq, Eq)]
pub enum Exit<'a> {
    /// The guest reads an I/O port; `data` is to be filled, `width` bytes at a time.
    PortRead {
        /// First port.
        port: u16,
        /// Bytes of one access: 1, 2 or 4.
        width: u8,
        /// `width` × count bytes; count is more than one for `rep ins`.
        data: &'a mut [u8],
    },
    /// The guest writes an I/O port.
    PortWrite {
        /// First port.
        port: u16,
        /// Bytes of one access: 1, 2 or 4.
        width: u8,
        /// `width` × count bytes; count is more than one for `rep outs`.
        data: &'a [u8],
    },
    /// The guest reads an address that is not RAM.
    MmioRead {
        /// Guest-physical address.
        gpa: u64,
        /// 1 to 8 bytes, to be filled.
        data: &'a mut [u8],
    },
    /// The guest writes an address that is not RAM.
    MmioWrite {
        /// Guest-physical address.
        gpa: u64,
        /// 1 to 8 bytes.
        data: &'a [u8],
    },
    /// `hlt`, seen only when the local APIC is not in the kernel.
    Halted,
    /// Triple fault: the guest took an exception while handling a double fault.
    TripleFault,
    /// A signal, or `immediate_exit`, ended the call before or while the guest ran (`EINTR`).
    Interrupted,
    /// The kernel asks to call again (`EAGAIN`: the vCPU is waiting for INIT or SIPI).
    Again,
    /// A hypercall that KVM passes on.
    Hypercall {
        /// Its number (RAX).
        number: u64,
    },
    /// The guest reads a model-specific register that KVM does not know. 1 in `fault` gives it a #GP, as hardware would.
    MsrRead {
        /// Which register.
        index: u32,
        /// 0 as it comes.
        fault: &'a mut u8,
    },
    /// The guest writes one.
    MsrWrite {
        /// Which register.
        index: u32,
        /// 0 as it comes.
        fault: &'a mut u8,
    },
    /// Single step or breakpoint, when debugging was asked for.
    Debug,
    /// An interrupt could be injected now; asked for only without an in-kernel APIC.
    InterruptWindow,
    /// The processor refused to enter the guest.
    EntryFailed {
        /// Hardware's reason (Intel SDM vol. 3D, appendix C; AMD APM vol. 2, appendix C).
        hardware_reason: u64,
        /// Host CPU it happened on.
        host_cpu: u32,
    },
    /// KVM gave up.
    InternalError(InternalError),
    /// KVM reports a system event of its own (Documentation/virt/kvm/api.rst, `KVM_EXIT_SYSTEM_EVENT`).
    SystemEvent {
        /// `KVM_SYSTEM_EVENT_*`.
        kind: u32,
    },
    /// An exit this monitor does not know.
    Unknown {
        /// `kvm_run.exit_reason`.
        reason: u32,
    },
}

/// What KVM says when it cannot go on (`KVM_EXIT_INTERNAL_ERROR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InternalError {
    /// `KVM_INTERNAL_ERROR_*`; 1 means an instruction could not be emulated.
    pub suberror: u32,
    /// The bytes at RIP, when KVM handed them out; at most 15.
    pub instruction: Option<InstructionBytes>,
}

/// Up to 15 bytes of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstructionBytes {
    bytes: [u8; 15],
    len: u8,
}

impl InstructionBytes {
    /// The bytes KVM fetched; they may go past the end of the instruction.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// `KVM_INTERNAL_ERROR_EMULATION`: an instruction could not be emulated.
pub const SUBERROR_EMULATION: u32 = 1;
/// Bit of `emulation_failure.flags`: the instruction bytes are valid.
const EMULATION_FLAG_INSTRUCTION_BYTES: u64 = 1;

/// Decodes what a successful `KVM_RUN` left behind. `run_bytes` is the size of the whole mapping `run` is the head of.
pub(super) fn decode(run: &mut kvm_run, run_bytes: usize) -> Exit<'_> {
    match run.exit_reason {
        KVM_EXIT_IO => decode_io(run, run_bytes),
        KVM_EXIT_MMIO => decode_mmio(run),
        KVM_EXIT_HLT => Exit::Halted,
        KVM_EXIT_SHUTDOWN => Exit::TripleFault,
        KVM_EXIT_INTR => Exit::Interrupted,
        KVM_EXIT_IRQ_WINDOW_OPEN => Exit::InterruptWindow,
        KVM_EXIT_DEBUG | KVM_EXIT_EXCEPTION => Exit::Debug,
        KVM_EXIT_HYPERCALL => {
            // SAFETY: the exit reason says that `hypercall` is the valid member, and every bit pattern of it is valid.
            let number = unsafe { run.__bindgen_anon_1.hypercall.nr };
            Exit::Hypercall { number }
        }
        KVM_EXIT_FAIL_ENTRY => {
            // SAFETY: the exit reason says that `fail_entry` is the valid member; it is plain integers.
            let fail = unsafe { run.__bindgen_anon_1.fail_entry };
            Exit::EntryFailed { hardware_reason: fail.hardware_entry_failure_reason, host_cpu: fail.cpu }
        }
        KVM_EXIT_SYSTEM_EVENT => {
            // SAFETY: the exit reason says that `system_event` is the valid member; its type is a plain integer.
            let kind = unsafe { run.__bindgen_anon_1.system_event.type_ };
            Exit::SystemEvent { kind }
        }
        KVM_EXIT_X86_RDMSR | KVM_EXIT_X86_WRMSR => decode_msr(run),
        KVM_EXIT_INTERNAL_ERROR => Exit::InternalError(decode_internal_error(run)),
        reason => Exit::Unknown { reason },
    }
}

fn decode_io(run: &mut kvm_run, run_bytes: usize) -> Exit<'_> {
    // SAFETY: the exit reason says that `io` is the valid member; it is plain integers.
    let io = unsafe { run.__bindgen_anon_1.io };
    let len = usize::from(io.size) * io.count as usize;
    let start = usize::try_from(io.data_offset).unwrap_or(usize::MAX);
    if start.checked_add(len).is_none_or(|end| end > run_bytes) {
        return Exit::Unknown { reason: KVM_EXIT_IO };
    }
    // SAFETY: `run` heads a mapping of `run_bytes` bytes (kvm-ioctls maps KVM_GET_VCPU_MMAP_SIZE), the range was checked
    // against it just above, and the exclusive borrow of `run` is handed on to the slice.
    let data = unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(run).cast::<u8>().add(start), len) };
    if u32::from(io.direction) == KVM_EXIT_IO_OUT {
        Exit::PortWrite { port: io.port, width: io.size, data }
    } else {
        Exit::PortRead { port: io.port, width: io.size, data }
    }
}

fn decode_mmio(run: &mut kvm_run) -> Exit<'_> {
    // SAFETY: the exit reason says that `mmio` is the valid member; it is plain integers and bytes.
    let mmio = unsafe { &mut run.__bindgen_anon_1.mmio };
    let len = (mmio.len as usize).min(mmio.data.len());
    let data = &mut mmio.data[..len];
    if mmio.is_write != 0 {
        Exit::MmioWrite { gpa: mmio.phys_addr, data }
    } else {
        Exit::MmioRead { gpa: mmio.phys_addr, data }
    }
}

fn decode_msr(run: &mut kvm_run) -> Exit<'_> {
    let read = run.exit_reason == KVM_EXIT_X86_RDMSR;
    // SAFETY: the exit reason says that `msr` is the valid member; it is plain integers.
    let msr = unsafe { &mut run.__bindgen_anon_1.msr };
    let (index, fault) = (msr.index, &mut msr.error);
    if read { Exit::MsrRead { index, fault } } else { Exit::MsrWrite { index, fault } }
}

fn decode_internal_error(run: &kvm_run) -> InternalError {
    // SAFETY: the exit reason says that `internal` is the valid member; it is plain integers.
    let internal = unsafe { run.__bindgen_anon_1.internal };
    // `emulation_failure` lays flags and instruction bytes over data[0..]: flags in data[0], then one byte of length and
    // 15 bytes (include/uapi/linux/kvm.h).
    let with_bytes = internal.suberror == SUBERROR_EMULATION
        && internal.ndata >= 3
        && internal.data[0] & EMULATION_FLAG_INSTRUCTION_BYTES != 0;
    let instruction = with_bytes.then(|| {
        let low = internal.data[1].to_le_bytes();
        let high = internal.data[2].to_le_bytes();
        let mut bytes = [0; 15];
        bytes[..7].copy_from_slice(&low[1..]);
        bytes[7..].copy_from_slice(&high);
        InstructionBytes { bytes, len: low[0].min(15) }
    });
    InternalError { suberror: internal.suberror, instruction }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(reason: u32) -> Box<[kvm_run; 2]> {
        let mut run = Box::new([kvm_run::default(); 2]);
        run[0].exit_reason = reason;
        run
    }

    const BYTES: usize = 2 * size_of::<kvm_run>();

    #[test]
    fn a_string_write_keeps_its_width_and_all_its_bytes() {
        let mut pages = run(KVM_EXIT_IO);
        let offset = size_of::<kvm_run>();
        pages[0].__bindgen_anon_1.io = kvm_bindings::kvm_run__bindgen_ty_1__bindgen_ty_4 {
            direction: 1,
            size: 2,
            port: 0x3F8,
            count: 3,
            data_offset: offset as u64,
        };
        assert_eq!(decode(&mut pages[0], BYTES), Exit::PortWrite { port: 0x3F8, width: 2, data: &[0; 6] },);
    }

    #[test]
    fn a_data_offset_outside_the_mapping_is_not_followed() {
        let mut pages = run(KVM_EXIT_IO);
        pages[0].__bindgen_anon_1.io = kvm_bindings::kvm_run__bindgen_ty_1__bindgen_ty_4 {
            direction: 0,
            size: 4,
            port: 1,
            count: 1,
            data_offset: BYTES as u64 - 3,
        };
        assert_eq!(decode(&mut pages[0], BYTES), Exit::Unknown { reason: KVM_EXIT_IO });
    }

    #[test]
    fn an_emulation_failure_carries_the_instruction() {
        let mut pages = run(KVM_EXIT_INTERNAL_ERROR);
        let mut internal =
            kvm_bindings::kvm_run__bindgen_ty_1__bindgen_ty_13 { suberror: 1, ndata: 3, ..Default::default() };
        internal.data[0] = 1;
        internal.data[1] = u64::from_le_bytes([3, 0x0F, 0x57, 0xC0, 0, 0, 0, 0]);
        pages[0].__bindgen_anon_1.internal = internal;
        let Exit::InternalError(error) = decode(&mut pages[0], BYTES) else { panic!("not an internal error") };
        assert_eq!(error.instruction.map(|i| i.as_slice().to_vec()), Some(vec![0x0F, 0x57, 0xC0]));
    }

    #[test]
    fn an_unknown_reason_stays_data() {
        assert_eq!(decode(&mut run(4711)[0], BYTES), Exit::Unknown { reason: 4711 });
    }
}
