/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest guest that can be timed: a line feed on COM1 as soon as it runs, then as many port writes as it was
   assembled with (none: it halts for good), another line feed, and power off. Entered by the PVH note in 32-bit mode. */
    .section .note.pvh, "a", @note
    .long 4, 4, 18              /* XEN_ELFNOTE_PHYS32_ENTRY */
    .asciz "Xen"
    .long start

    .text
    .code32
    .globl start
start:
    movw $0x3F8, %dx
    movb $'\n', %al
    outb %al, %dx
#ifdef PORT_WRITES
    movl $PORT_WRITES, %ecx
    movw $0x510, %dx            /* nobody's port */
again:
    outb %al, %dx
    decl %ecx
    jnz again
    movw $0x3F8, %dx
    outb %al, %dx
    movw $0x600, %dx            /* sleep control register: SLP_TYP 5, SLP_EN */
    movb $0x34, %al
    outb %al, %dx
#endif
halt:
    cli
    hlt
    jmp halt

    .section .note.GNU-stack, "", @progbits
