/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a host does to a process, done to a monitor under test:
 *
 *   faults refuse-ioctl REQUEST COMMAND...   COMMAND, in which ioctl(REQUEST) fails with ENOTTY, as on a kernel without it
 *   faults refuse-perf COMMAND...            COMMAND, in which perf_event_open fails with EMFILE, as at the limit on files
 *   faults limit-files PID N                 process PID may have N open files from now on
 *   faults end-thread TID                    the thread TID ends in whatever it does, without a word
 *
 * Status 125: it could not be done.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static int failed(const char *what)
{
	perror(what);
	return 125;
}

/* Only for programs of this machine's own word size: the number of a system call means nothing else. */
static int refuse(long call, const unsigned int *request, int error, char **command)
{
	struct sock_filter any[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, request ? *request : 0, 0, request ? 1 : 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(any) / sizeof(*any), any };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return failed("seccomp");
	execvp(command[0], command);
	return failed(command[0]);
}

static int limit_files(pid_t pid, rlim_t files)
{
	struct rlimit limit = { files, files };
	return prlimit(pid, RLIMIT_NOFILE, &limit, NULL) ? failed("prlimit") : 0;
}

/* The thread is stopped in a system call, or between two; the instruction before the next one is a system call in the first
 * case and made one in the second. */
static int end_thread(pid_t tid)
{
	const unsigned long syscall_instruction = 0x050f;
	struct user_regs_struct regs;
	int status;
	long word;
	if (ptrace(PTRACE_ATTACH, tid, NULL, NULL) || waitpid(tid, &status, __WALL) < 0)
		return failed("ptrace attach");
	if (ptrace(PTRACE_GETREGS, tid, NULL, &regs))
		return failed("ptrace registers");
	regs.rip -= regs.orig_rax != -1UL ? 2 : 0;
	word = ptrace(PTRACE_PEEKTEXT, tid, (void *)regs.rip, NULL);
	if ((word & 0xffff) != syscall_instruction) {
		fprintf(stderr, "thread %d is not in a system call\n", tid);
		ptrace(PTRACE_DETACH, tid, NULL, NULL);
		return 124;
	}
	regs.orig_rax = -1UL;
	regs.rax = SYS_exit;
	regs.rdi = 0;
	if (ptrace(PTRACE_SETREGS, tid, NULL, &regs) || ptrace(PTRACE_DETACH, tid, NULL, NULL))
		return failed("ptrace end");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 3 && !strcmp(argv[1], "refuse-ioctl")) {
		unsigned int request = strtoul(argv[2], NULL, 0);
		return refuse(SYS_ioctl, &request, ENOTTY, argv + 3);
	}
	if (argc > 2 && !strcmp(argv[1], "refuse-perf"))
		return refuse(SYS_perf_event_open, NULL, EMFILE, argv + 2);
	if (argc == 4 && !strcmp(argv[1], "limit-files"))
		return limit_files(atoi(argv[2]), strtoul(argv[3], NULL, 0));
	if (argc == 3 && !strcmp(argv[1], "end-thread")) {
		/* A thread in a system call is soon to be found. */
		for (int tries = 0; tries < 1000; tries++) {
			int status = end_thread(atoi(argv[2]));
			if (status != 124)
				return status;
			usleep(1000);
		}
		return 125;
	}
	fprintf(stderr, "usage: see the head of the source\n");
	return 125;
}
