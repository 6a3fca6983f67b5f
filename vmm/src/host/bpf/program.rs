// SPDX-License-Identifier: Apache-2.0
//! The BPF program that reads where threads stand, put together for the kernel at hand.
//!
//! Pure: offsets and function ids in, instructions out. In C it would be
//! ```c
//! for (i = 0; i < table->count && i < SLOTS; i++) {
//!     struct slot *s = &table->slot[i];
//!     struct task_struct *p = bpf_task_from_pid(s->tid);
//!     if (!p) { s->runnable = ABSENT; continue; }
//!     s->state = p->__state; s->on_cpu = p->on_cpu; s->cpu = p->thread_info.cpu;
//!     s->runnable = p->se.cfs_rq->rq->nr_running;
//!     bpf_task_release(p);
//! }
//! ```
//! `rq->nr_running` and `p->on_cpu` are the very numbers that the kernel's `yield_to` looks at before it bails out
//! (kernel/sched/syscalls.c). Invariant: fewer than a hundred instructions, and every loop has an end the verifier sees.

use super::btf::{Btf, BtfError, Kind};

/// How many threads one call looks at. The verifier goes through the loop as often, and at each pointer it follows it
/// searches all names of the kernel's types (`btf_find_by_name_kind`): with 256, loading took 0.39 s of CPU time.
pub(crate) const SLOTS: usize = 8;
/// The same as the program says it.
const SLOTS_IMMEDIATE: i32 = 8;
/// log2 of the bytes of a slot, and of what stands before the first: the number of slots in use.
pub(crate) const SLOT_SHIFT: i32 = 5;
/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 1 << SLOT_SHIFT;
/// Bytes of the table: the count, padded to a slot, and the slots.
pub(crate) const TABLE_BYTES: usize = SLOT_BYTES * (SLOTS + 1);
/// Stands for `nr_running` where there is no such thread.
pub(crate) const ABSENT: u32 = u32::MAX;

/// Words of a slot.
pub(crate) mod word {
    /// Thread id, written by us.
    pub(crate) const TID: usize = 0;
    /// `task_struct.__state`.
    pub(crate) const STATE: usize = 1;
    /// `task_struct.on_cpu`.
    pub(crate) const ON_CPU: usize = 2;
    /// `task_struct.thread_info.cpu`.
    pub(crate) const CPU: usize = 3;
    /// `rq.nr_running`, or [`super::ABSENT`].
    pub(crate) const RUNNABLE: usize = 4;
}

/// Which of the kernel's functions finds a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// `bpf_task_from_vpid` (Linux 6.14): thread ids as this process sees them.
    Own,
    /// `bpf_task_from_pid` (Linux 6.2): thread ids of the first pid namespace.
    Initial,
}

/// What has to be known of the kernel at hand: offsets in bytes, ids of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) lookup: Lookup,
    from_pid: u32,
    release: u32,
    state: u32,
    on_cpu: u32,
    cpu: u32,
    cfs_rq: u32,
    rq: u32,
    nr_running: u32,
}

impl Kernel {
    /// Looks all of it up.
    pub(crate) fn of(btf: &Btf<'_>) -> Result<Self, BtfError> {
        let [task, entity, cfs_rq, rq, info, own, initial, release] = btf.find([
            (Kind::Struct, "task_struct"),
            (Kind::Struct, "sched_entity"),
            (Kind::Struct, "cfs_rq"),
            (Kind::Struct, "rq"),
            (Kind::Struct, "thread_info"),
            (Kind::Function, "bpf_task_from_vpid"),
            (Kind::Function, "bpf_task_from_pid"),
            (Kind::Function, "bpf_task_release"),
        ]);
        let there = |id: Option<u32>, name: &str| id.ok_or_else(|| BtfError::Absent(name.to_owned()));
        let task = there(task, "struct task_struct")?;
        let member = |structure: u32, name: &str| btf.member_offset(structure, name);
        let entity_at = member(task, "se")?;
        Ok(Self {
            lookup: if own.is_some() { Lookup::Own } else { Lookup::Initial },
            from_pid: there(own.or(initial), "function bpf_task_from_pid (Linux 6.2 and later have it)")?,
            release: there(release, "function bpf_task_release")?,
            state: member(task, "__state")?,
            on_cpu: member(task, "on_cpu")?,
            cpu: member(task, "thread_info")? + member(there(info, "struct thread_info")?, "cpu")?,
            cfs_rq: entity_at + member(there(entity, "struct sched_entity")?, "cfs_rq")?,
            rq: member(there(cfs_rq, "struct cfs_rq")?, "rq")?,
            nr_running: member(there(rq, "struct rq")?, "nr_running")?,
        })
    }
}

/// One instruction: opcode, destination and source register, offset, immediate
/// (Documentation/bpf/standardization/instruction-set.rst).
const fn instruction(code: u8, registers: (u8, u8), offset: i16, immediate: i32) -> u64 {
    let [o0, o1] = offset.to_le_bytes();
    let [i0, i1, i2, i3] = immediate.to_le_bytes();
    u64::from_le_bytes([code, registers.1 << 4 | registers.0, o0, o1, i0, i1, i2, i3])
}

/// `BPF_LDX | BPF_MEM | BPF_W`.
const LOAD_32: u8 = 0x61;
/// `BPF_LDX | BPF_MEM | BPF_DW`.
const LOAD_64: u8 = 0x79;
/// `BPF_STX | BPF_MEM | BPF_W`.
const STORE_32: u8 = 0x63;
/// `BPF_ST | BPF_MEM | BPF_W`.
const STORE_IMMEDIATE_32: u8 = 0x62;
/// `BPF_ALU64 | BPF_MOV | BPF_K`, and with a register.
const MOVE_IMMEDIATE: u8 = 0xB7;
const MOVE: u8 = 0xBF;
/// `BPF_ALU64 | BPF_ADD`.
const ADD_IMMEDIATE: u8 = 0x07;
const ADD: u8 = 0x0F;
/// `BPF_ALU64 | BPF_LSH | BPF_K`.
const SHIFT_LEFT: u8 = 0x67;
/// `BPF_JMP`: always, equal, greater or equal (immediate and register), call, exit.
const JUMP: u8 = 0x05;
const JUMP_EQUAL: u8 = 0x15;
const JUMP_NOT_BELOW: u8 = 0x35;
const JUMP_NOT_BELOW_REGISTER: u8 = 0x3D;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// `BPF_LD | BPF_IMM | BPF_DW` with the source "value of this map" (`BPF_PSEUDO_MAP_VALUE`).
const LOAD_ADDRESS: u8 = 0x18;
const MAP_VALUE: u8 = 2;
/// Source register of a call of a kernel function (`BPF_PSEUDO_KFUNC_CALL`).
const KERNEL_FUNCTION: u8 = 2;

/// r6 holds the table, r7 the number of the slot, r8 the slot, r9 the task.
const TABLE: u8 = 6;
const NUMBER: u8 = 7;
const SLOT: u8 = 8;
const TASK: u8 = 9;

/// An offset that does not fit an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a member of the kernel's structures lies at byte {offset}, beyond what an instruction can name")]
pub struct FarMember {
    /// Where.
    pub offset: u32,
}

/// The program for a kernel, over the table that `table_fd` is the map of.
pub(crate) fn assemble(kernel: &Kernel, table_fd: i32) -> Result<Vec<u64>, FarMember> {
    let near = |offset: u32| i16::try_from(offset).map_err(|_| FarMember { offset });
    let call = |id: u32| instruction(CALL, (0, KERNEL_FUNCTION), 0, id.cast_signed());
    let copy =
        |offset: u32, to: usize| Ok::<_, FarMember>([instruction(LOAD_32, (1, TASK), near(offset)?, 0), store(1, to)]);
    let mut look = vec![instruction(MOVE, (TASK, 0), 0, 0)];
    look.extend(copy(kernel.state, word::STATE)?);
    look.extend(copy(kernel.on_cpu, word::ON_CPU)?);
    look.extend(copy(kernel.cpu, word::CPU)?);
    look.extend([
        instruction(LOAD_64, (1, TASK), near(kernel.cfs_rq)?, 0),
        instruction(LOAD_64, (1, 1), near(kernel.rq)?, 0),
        instruction(LOAD_32, (1, 1), near(kernel.nr_running)?, 0),
        store(1, word::RUNNABLE),
        instruction(MOVE, (1, TASK), 0, 0),
        call(kernel.release),
        // Over the absent task's store.
        instruction(JUMP, (0, 0), 1, 0),
    ]);
    let mut turn = vec![
        instruction(MOVE, (SLOT, NUMBER), 0, 0),
        instruction(ADD_IMMEDIATE, (SLOT, 0), 0, 1),
        instruction(SHIFT_LEFT, (SLOT, 0), 0, SLOT_SHIFT),
        instruction(ADD, (SLOT, TABLE), 0, 0),
        instruction(LOAD_32, (1, SLOT), slot_offset(word::TID), 0),
        call(kernel.from_pid),
        instruction(JUMP_EQUAL, (0, 0), distance(look.len()), 0),
    ];
    turn.append(&mut look);
    turn.extend([
        instruction(STORE_IMMEDIATE_32, (SLOT, 0), slot_offset(word::RUNNABLE), ABSENT.cast_signed()),
        instruction(ADD_IMMEDIATE, (NUMBER, 0), 0, 1),
    ]);
    // Behind the turn is the jump back, over the turn, the three tests and itself.
    let back = instruction(JUMP, (0, 0), -(distance(turn.len()) + 4), 0);
    let mut program = vec![
        instruction(LOAD_ADDRESS, (TABLE, MAP_VALUE), 0, table_fd),
        0,
        instruction(MOVE_IMMEDIATE, (NUMBER, 0), 0, 0),
        instruction(LOAD_32, (1, TABLE), 0, 0),
        instruction(JUMP_NOT_BELOW_REGISTER, (NUMBER, 1), distance(turn.len()) + 2, 0),
        instruction(JUMP_NOT_BELOW, (NUMBER, 0), distance(turn.len()) + 1, SLOTS_IMMEDIATE),
    ];
    program.append(&mut turn);
    program.extend([back, instruction(MOVE_IMMEDIATE, (0, 0), 0, 0), instruction(EXIT, (0, 0), 0, 0)]);
    Ok(program)
}

fn store(register: u8, word: usize) -> u64 {
    instruction(STORE_32, (SLOT, register), slot_offset(word), 0)
}

/// Offset of a word in a slot.
fn slot_offset(word: usize) -> i16 {
    distance(word * 4)
}

/// A length within this program, which is far below what an offset can hold.
fn distance(length: usize) -> i16 {
    i16::try_from(length).expect("invariant: the program has fewer than a hundred instructions")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: Kernel = Kernel {
        lookup: Lookup::Own,
        from_pid: 1001,
        release: 1002,
        state: 24,
        on_cpu: 52,
        cpu: 20,
        cfs_rq: 400,
        rq: 320,
        nr_running: 0,
    };

    fn jump(instruction: u64) -> Option<i64> {
        let [code, _, o0, o1, ..] = instruction.to_le_bytes();
        let jumps = matches!(code, JUMP | JUMP_EQUAL | JUMP_NOT_BELOW | JUMP_NOT_BELOW_REGISTER);
        jumps.then(|| i64::from(i16::from_le_bytes([o0, o1])))
    }

    #[test]
    fn fewer_than_a_hundred_instructions_and_every_jump_lands_where_it_should() {
        let program = assemble(&KERNEL, 7).unwrap();
        assert!(program.len() < 100, "{}", program.len());
        assert_eq!(usize::try_from(SLOTS_IMMEDIATE), Ok(SLOTS));
        let landings: Vec<i64> = (0i64..)
            .zip(&program)
            .filter_map(|(at, instruction)| jump(*instruction).map(|offset| at + 1 + offset))
            .collect();
        let length = i64::try_from(program.len()).unwrap();
        // Twice to the end, the absent task to its store, the present one over it, and back to the count.
        assert_eq!(landings, [length - 2, length - 2, length - 5, length - 4, 3]);
    }

    #[test]
    fn an_instruction_is_laid_out_as_the_specification_says() {
        assert_eq!(instruction(LOAD_32, (1, 9), 0x1234, 0).to_le_bytes(), [0x61, 0x91, 0x34, 0x12, 0, 0, 0, 0]);
        assert_eq!(instruction(CALL, (0, 2), 0, -2).to_le_bytes(), [0x85, 0x20, 0, 0, 0xFE, 0xFF, 0xFF, 0xFF]);
    }

    #[test]
    fn an_offset_that_does_not_fit_is_refused() {
        let far = Kernel { rq: 40_000, ..KERNEL };
        assert_eq!(assemble(&far, 7), Err(FarMember { offset: 40_000 }));
    }
}
