/* SPDX-License-Identifier: Apache-2.0 */
/* A guest that does to the vCPUs it cannot see all that one vCPU can do to another: NMI, INIT and start-up IPI to all but
   itself, and those, SMI and an interrupt to the ids of helper vCPUs. After each round it reports a pause loop that names
   CPU 1, so that its own helper runs with all that pending. Then it powers off. Two CPUs, entered by the PVH note. */
    .section .note.pvh, "a", @note
    .long 4, 4, 18              /* XEN_ELFNOTE_PHYS32_ENTRY */
    .asciz "Xen"
    .long start

    .set ICR, 0x830             /* x2APIC registers are MSRs 800H and up (Intel SDM vol. 3A, table 11-6) */
    .set FIRST_HELPER, 256
    .set HELPERS_END, 258

    /* Writes %eax to the low half of the interrupt command register; %edx is whom it goes to. */
    .macro send low
    movl $\low, %eax
    wrmsr
    .endm

    .text
    .code32
    .globl start
start:
    movw $0xFEEB, 0x8000        /* CPU 1, in real mode: jmp to itself */
    movl $0x08000000, 8         /* and on NMI the same */
    movl $0x1B, %ecx            /* IA32_APIC_BASE: x2APIC mode */
    rdmsr
    orl $0xC00, %eax
    wrmsr
    movl $0x80F, %ecx           /* enabled by software */
    movl $0x1FF, %eax
    xorl %edx, %edx
    wrmsr
    movl $ROUNDS, %esi
round:
    movl $ICR, %ecx
    xorl %edx, %edx
    send 0xC4400                /* all but self: NMI */
    send 0xC4500                /* INIT */
    send 0xC4608                /* start-up IPI, vector 8 */
    movl $FIRST_HELPER, %edx
each:
    send 0x4400                 /* NMI */
    send 0x4500                 /* INIT */
    send 0x4608                 /* start-up IPI */
    send 0x4200                 /* SMI */
    send 0x40F1                 /* interrupt 241 */
    incl %edx
    cmpl $HELPERS_END, %edx
    jne each
    movw $0x610, %dx            /* the pause port: CPU 1 is waited for */
    movl $1, %eax
    outl %eax, %dx
    decl %esi
    jnz round
    movw $0x600, %dx            /* sleep control register: SLP_TYP 5, SLP_EN */
    movb $0x34, %al
    outb %al, %dx
halt:
    cli
    hlt
    jmp halt

    .section .note.GNU-stack, "", @progbits
