// How exactly the kernel wakes the threads of a router, see timer_slack_linux.go.

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
	usual = 50 * 1000,          // of Linux, ns; who has started us with another one meant it
	a_millisecond = 1000 * 1000 // ns
};

// serves reports whether the command line, "tandem", 0, "serve", 0 and so on, is that of a router: a
// simulated engine has to keep its times.
static int serves(void) {
	char line[4096];
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, line, sizeof line - 1);
	close(fd);
	line[n > 0 ? n : 0] = 0;
	size_t name = strlen(line) + 1;
	return n > 0 && name < (size_t)n && strcmp(line + name, "serve") == 0;
}

// It runs before Go's runtime begins, whose threads, and those of libzmq, are told by the first what it is.
__attribute__((constructor)) static void allow_slack(void) {
	if (prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0) == usual && serves())
		prctl(PR_SET_TIMERSLACK, a_millisecond, 0, 0, 0);
}
