/* A wall clock that a test can step, for programs that are started with LD_PRELOAD.
 *
 * The file that CLOCK_OFFSET_FILE names holds an offset in seconds, as 8 bytes in the machine's order. It is mapped, so
 * a step takes effect at once. The monotonic clock is left alone. Nothing here allocates: a memory allocator may ask
 * for the time before it is ready. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static int64_t offset(void) {
    static volatile int64_t *shared;
    if (!shared) {
        const char *path = environ ? getenv("CLOCK_OFFSET_FILE") : NULL;
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (file < 0)
            return 0;
        void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (mapped == MAP_FAILED)
            return 0;
        shared = mapped;
    }
    return *shared;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += offset();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    if (!failed) {
        now->tv_sec = exact.tv_sec;
        now->tv_usec = exact.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *now) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact))
        return (time_t)-1;
    if (now)
        *now = exact.tv_sec;
    return exact.tv_sec;
}
