# SPDX-License-Identifier: Apache-2.0
# From the loader to ring 3, on the first CPU and on every other.
#
# Ring 0 is kept as short as it can be: where KVM is software-virtualised, it runs through KVM's instruction emulator at
# about a microsecond an instruction, and without SSE, int3, popcnt and their like. So whatever can be built beforehand
# is data here (page tables, descriptors), and everything else is Rust in ring 3.
#
# Invariants: memory is identity-mapped below 4 GiB, all of it within reach of ring 3 (this guest has nothing to hide
# from itself); a CPU's block is BLOCK_BYTES long and aligned to that, and holds its stacks, so that its address is the
# stack pointer rounded down.

    .equ SEL_CODE32, 0x08
    .equ SEL_CODE64, 0x10
    .equ SEL_DATA, 0x18
    .equ SEL_USER_DATA, 0x23
    .equ SEL_USER_CODE, 0x2b
    .equ SEL_TSS, 0x30

    .equ CR4_PAE_OSFXSR_OSXMMEXCPT, 0x620
    .equ MSR_EFER, 0xc0000080
    .equ EFER_LME, 0x100
    # PG, NE, ET, MP, PE.
    .equ CR0_PAGED_PROTECTED, 0x80000033
    # IOPL 3, interrupts off.
    .equ RFLAGS_IOPL3, 0x3002

# --- the PVH note: XEN_ELFNOTE_PHYS32_ENTRY (xen/include/public/elfnote.h), the 32-bit entry below ---
    .section .note.pvh, "a", @note
    .balign 4
    .long 4
    .long 8
    .long 18
    .asciz "Xen"
    .quad probe_entry32

# --- 32-bit protected mode without paging to 64-bit mode, then to TARGET ---
    .macro enter_long_mode target
    movl $SEL_DATA, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl $probe_pml4, %eax
    movl %eax, %cr3
    movl $CR4_PAE_OSFXSR_OSXMMEXCPT, %eax
    movl %eax, %cr4
    movl $MSR_EFER, %ecx
    movl $EFER_LME, %eax
    xorl %edx, %edx
    wrmsr
    movl $CR0_PAGED_PROTECTED, %eax
    movl %eax, %cr0
    ljmpl $SEL_CODE64, $\target
    .endm

# --- to ring 3: the block is in %rbx and becomes the only argument of TARGET ---
    .macro enter_ring3 target
    lidt probe_idtr
    movl $SEL_TSS, %eax
    ltr %ax
    movq %rbx, %rdi
    # As a call leaves it: 8 below a multiple of 16.
    leaq ({BLOCK_BYTES} - 8)(%rbx), %rax
    pushq $SEL_USER_DATA
    pushq %rax
    pushq $RFLAGS_IOPL3
    pushq $SEL_USER_CODE
    pushq $\target
    iretq
    .endm

    .section .text.boot, "ax"
# --- the first CPU, PVH: %ebx = hvm_start_info (xen/include/public/arch-x86/hvm/start_info.h) ---
    .code32
    .globl probe_entry32
probe_entry32:
    cli
    cld
    movl %ebx, probe_boot_info
    movl $1, probe_boot_protocol
    lgdtl probe_gdtr
    enter_long_mode bsp_entry

# --- the first CPU, Linux 64-bit boot protocol: %rsi = boot_params, identity-mapped by the loader ---
    .code64
    .globl probe_entry64
probe_entry64:
    cli
    cld
    movq %rsi, probe_boot_info
    movl $2, probe_boot_protocol
    movq $probe_bsp_block + {RING0_STACK_TOP}, %rsp
    lgdt probe_gdtr
    movl $CR4_PAE_OSFXSR_OSXMMEXCPT, %eax
    movq %rax, %cr4
    movl $probe_pml4, %eax
    movq %rax, %cr3
    movl $SEL_DATA, %eax
    movl %eax, %ss
    movl %eax, %ds
    movl %eax, %es
    pushq $SEL_CODE64
    pushq $bsp_entry
    lretq

bsp_entry:
    movl $probe_bsp_block, %ebx
    leaq {RING0_STACK_TOP}(%rbx), %rsp
    movq %rsp, ({TSS} + 4)(%rbx)
    movw $104, ({TSS} + 102)(%rbx)
    # The TSS descriptor holds its base in three pieces; bits 63:32 are zero.
    leal {TSS}(%rbx), %eax
    movw %ax, probe_gdt + SEL_TSS + 2
    shrl $16, %eax
    movb %al, probe_gdt + SEL_TSS + 4
    movb %ah, probe_gdt + SEL_TSS + 7
    enter_ring3 probe_first_main

# --- every other CPU: real mode at PAGE:0 after the start-up IPI, copied there by smp.rs ---
# The data segment is the page, the two absolute addresses lie in the image, so nothing needs fixing up.
    .code16
    .globl probe_trampoline
    .globl probe_trampoline_end
probe_trampoline:
    cli
    cld
    movw %cs, %ax
    movw %ax, %ds
    lgdtl probe_trampoline_gdtr - probe_trampoline
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $SEL_CODE32, $ap_entry32
    .balign 4
probe_trampoline_gdtr:
    .word probe_gdt_end - probe_gdt - 1
    .long probe_gdt
probe_trampoline_end:

    .code32
ap_entry32:
    enter_long_mode ap_entry

# A ticket gives each arriving CPU a block of its own; smp.rs has filled in its descriptors and published how many there
# are. A CPU without a block (nobody asked it to come) stops here.
    .code64
ap_entry:
    movl $1, %eax
    lock xaddl %eax, probe_ap_tickets
    cmpl probe_ap_blocks_len, %eax
    jae halt_for_ever
    imull ${BLOCK_BYTES}, %eax, %ebx
    addq probe_ap_blocks, %rbx
    leaq {RING0_STACK_TOP}(%rbx), %rsp
    lgdt {GDTR}(%rbx)
    enter_ring3 probe_other_main

halt_for_ever:
    cli
    hlt
    jmp halt_for_ever

# --- descriptors and page tables ---
    .section .data.boot, "aw"
    .balign 8
    .globl probe_gdt
probe_gdt:
    .quad 0
    .quad 0x00cf9b000000ffff
    .quad 0x00af9b000000ffff
    .quad 0x00cf93000000ffff
    .quad 0x00cff3000000ffff
    .quad 0x00affb000000ffff
    # An available 64-bit TSS with its I/O bitmap; its base is filled in.
    .quad 0x0000890000000000 + {TSS_LIMIT}
    .quad 0
probe_gdt_end:
probe_gdtr:
    .word probe_gdt_end - probe_gdt - 1
    .quad probe_gdt
    .balign 8
probe_idtr:
    .word 256 * 16 - 1
    .quad probe_idt
    .balign 8
    .globl probe_boot_info
    .globl probe_boot_protocol
    .globl probe_ap_tickets
    .globl probe_ap_blocks
    .globl probe_ap_blocks_len
probe_boot_info: .quad 0
probe_ap_blocks: .quad 0
probe_boot_protocol: .long 0
probe_ap_blocks_len: .long 0
probe_ap_tickets: .long 0

# 2 MiB pages, present, writable, user; uncached (PWT, PCD) from 0xfe000000, where IOAPIC and local APIC are.
    .section .data.pages, "aw"
    .balign 4096
probe_pml4:
    .quad probe_pdpt + 7
    .fill 511, 8, 0
probe_pdpt:
    .quad probe_pd + 0x0007
    .quad probe_pd + 0x1007
    .quad probe_pd + 0x2007
    .quad probe_pd + 0x3007
    .fill 508, 8, 0
probe_pd:
    .set page, 0
    .rept 2032
    .quad page + 0x87
    .set page, page + 0x200000
    .endr
    .rept 16
    .quad page + 0x9f
    .set page, page + 0x200000
    .endr
    .text
