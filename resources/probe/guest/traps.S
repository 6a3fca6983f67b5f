# SPDX-License-Identifier: Apache-2.0
# What runs in ring 0 after start-up: exceptions, four interrupts, and the service that ring 3 asks for with ud2.
#
# ud2 because it is the one way into ring 0 that works on every KVM this guest meets: where ring 0 is emulated, `int n`
# arrives as #UD anyway and SYSCALL does not arrive at all. A genuine #UD has another return address than the one ud2
# in probe_service and is a fault.
#
# Invariants: handlers use the general registers only, and save what they use, except that probe_service may lose what
# a C function may lose. Every stack lies in its CPU's block, so the block is found from %rsp. All code that may run in
# ring 0 is compiled without a red zone: a handler entered from ring 0 stays on the stack it found.

    .section .text.traps, "ax"
    .code64

    .macro block_in register
    movq %rsp, \register
    andq $-{BLOCK_BYTES}, \register
    .endm

# --- exceptions: 32 stubs of 16 bytes, then one place that records the fault and continues it in ring 3 ---
    .balign 16
    .globl probe_exception_stubs
probe_exception_stubs:
    .set vector, 0
    .rept 32
    .balign 16
    # Vectors for which the CPU pushes an error code: 8, 10 to 14, 17, 21, 29, 30 (Intel SDM vol. 3A, table 6-1;
    # AMD APM vol. 2, section 8.2).
    .if ((0x60227d00 >> vector) & 1) == 0
    pushq $0
    .endif
    pushq $vector
    jmp exception
    .set vector, vector + 1
    .endr

exception:
    cld
    block_in %rdi
    incl {FAULTS}(%rdi)
    # A fault while a fault is being reported: nothing more can be said.
    cmpl $2, {FAULTS}(%rdi)
    ja halt_for_ever
    movq (%rsp), %rax
    movq %rax, {FAULT_VECTOR}(%rdi)
    movq 8(%rsp), %rax
    movq %rax, {FAULT_ERROR}(%rdi)
    movq 16(%rsp), %rax
    movq %rax, {FAULT_RIP}(%rdi)
    movq %cr2, %rax
    movq %rax, {FAULT_ADDRESS}(%rdi)
    leaq ({BLOCK_BYTES} - 8)(%rdi), %rax
    pushq $SEL_USER_DATA
    pushq %rax
    pushq $RFLAGS_IOPL3
    pushq $SEL_USER_CODE
    pushq $probe_fault_main
    iretq

# --- interrupts ---
    # End of interrupt: a register in memory, or MSR 0x80B in x2APIC mode (Intel SDM vol. 3A, sections 11.8.5, 11.12.1).
    .macro end_of_interrupt
    pushq %rax
    cmpl $0, probe_x2apic
    jne 1f
    movl $0xfee000b0, %eax
    movl $0, (%rax)
    jmp 2f
1:  pushq %rcx
    pushq %rdx
    movl $0x80b, %ecx
    xorl %eax, %eax
    xorl %edx, %edx
    wrmsr
    popq %rdx
    popq %rcx
2:  popq %rax
    .endm

    # The timer is armed for the end of a run, or as the deadline of a wait; both look at this word.
    .globl probe_on_timer
probe_on_timer:
    movl $1, probe_stop
    end_of_interrupt
    iretq

    # A call that wants an answer: the answer is the number of the call.
    .globl probe_on_call
probe_on_call:
    pushq %rax
    pushq %rdi
    block_in %rdi
    movl probe_call_sequence, %eax
    movl %eax, {CALL_SEEN}(%rdi)
    popq %rdi
    popq %rax
    end_of_interrupt
    iretq

    # Only there to end a halt.
    .globl probe_on_wake
probe_on_wake:
    end_of_interrupt
    iretq

    .globl probe_on_serial
probe_on_serial:
    movl $1, probe_serial_pending
    end_of_interrupt
    iretq

    # The local APIC's spurious interrupt takes no end of interrupt.
    .globl probe_on_spurious
probe_on_spurious:
    iretq

# --- the service: u64 probe_service(number, a, b), numbers as in service.rs ---
    .globl probe_service
probe_service:
service_site:
    ud2
    ret

    .globl probe_on_invalid_opcode
probe_on_invalid_opcode:
    cmpq $service_site, (%rsp)
    jne genuine
    cmpq $8, %rdi
    jae genuine
    addq $2, (%rsp)
    jmp *service_table(, %rdi, 8)
genuine:
    pushq $0
    pushq $6
    jmp exception

service_read_msr:
    movl %esi, %ecx
    rdmsr
    shlq $32, %rdx
    orq %rdx, %rax
    iretq

service_write_msr:
    movl %esi, %ecx
    movl %edx, %eax
    shrq $32, %rdx
    wrmsr
    iretq

# Halts if the 32-bit word at a still holds b. Interrupts are off between the look and the halt, and sti takes effect
# only after the hlt, so a wake-up that follows the change of the word is never lost.
service_halt_while:
    cmpl %edx, (%rsi)
    jne 1f
    sti
    hlt
    cli
1:  iretq

# b bytes at a to COM1, a FIFO's worth (16 bytes) at a time. An absent UART reads as all ones; a stuck one is waited for
# a bounded time.
service_write_serial:
    cld
    movq %rdx, %r8
1:  testq %r8, %r8
    jz 4f
    movl $0x3fd, %edx
    movl $10000, %r9d
2:  inb %dx, %al
    testb $0x20, %al
    jnz 3f
    decl %r9d
    jnz 2b
3:  movl $16, %ecx
    cmpq %r8, %rcx
    cmovaq %r8, %rcx
    subq %rcx, %r8
    movl $0x3f8, %edx
    rep outsb
    jmp 1b
4:  iretq

# Returns to the caller in ring 0, on the same stack.
service_ring0:
    movq $SEL_CODE64, 8(%rsp)
    movq $SEL_DATA, 32(%rsp)
    iretq

# Interrupts on (a = 0x200) or off (a = 0) for the caller: popf from ring 3 is not to be relied on.
service_interrupts:
    andq $~0x200, 16(%rsp)
    orq %rsi, 16(%rsp)
    iretq

# An exception without a table of handlers is a shutdown of the CPU.
service_triple_fault:
    lidt empty_idtr
    ud2

service_stop:
    jmp halt_for_ever

# --- void probe_call_ring0(f, argument): f(argument) in ring 0, on the caller's stack ---
    .globl probe_call_ring0
probe_call_ring0:
    pushq %rbx
    pushq %rbp
    subq $8, %rsp
    movq %rdi, %rbx
    movq %rsi, %rbp
    movl $4, %edi
    call probe_service
    movq %rbp, %rdi
    call *%rbx
    movq %rsp, %rax
    pushq $SEL_USER_DATA
    pushq %rax
    pushfq
    pushq $SEL_USER_CODE
    pushq $1f
    iretq
1:  addq $8, %rsp
    popq %rbp
    popq %rbx
    ret

    .section .data.boot, "aw"
    .balign 8
service_table:
    .quad service_read_msr
    .quad service_write_msr
    .quad service_halt_while
    .quad service_write_serial
    .quad service_ring0
    .quad service_interrupts
    .quad service_triple_fault
    .quad service_stop
empty_idtr:
    .word 0
    .quad 0
    .balign 4
    .globl probe_stop
    .globl probe_call_sequence
    .globl probe_serial_pending
    .globl probe_x2apic
probe_x2apic: .long 0
probe_serial_pending: .long 0
# Each on a line of its own: one is read in every hot loop, the other is written in one.
    .balign 64
probe_stop: .long 0
    .balign 64
probe_call_sequence: .long 0
    .balign 64
    .text
