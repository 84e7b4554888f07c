/* A wall clock that is stepped under a running program, for LD_PRELOAD. Other clocks are unchanged.
 *
 * $ANABRANCH_FAULTS_CLOCK is a mapped file of 64-bit words: the current step, the number of
 * processes that loaded this, and for each step the nanoseconds added and the number of reads of
 * the clock during it. See wall.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 16 };

struct shared {
    _Atomic uint64_t step, loaded;
    struct {
        _Atomic int64_t added;
        _Atomic uint64_t asked;
    } steps[STEPS];
};

static struct shared *shared;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void load(void) {
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("ANABRANCH_FAULTS_CLOCK");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    /* Rather no program than one with the right time. */
    if (!real || at == MAP_FAILED)
        abort();
    close(file);
    shared = at;
    atomic_fetch_add(&shared->loaded, 1);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real)
        load();
    int result = real(clock, now);
    if (result || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return result;
    uint64_t step = atomic_load(&shared->step) % STEPS;
    atomic_fetch_add(&shared->steps[step].asked, 1);
    int64_t added = atomic_load(&shared->steps[step].added), second = 1000000000;
    now->tv_sec += added / second;
    now->tv_nsec += added % second;
    if (now->tv_nsec < 0)
        now->tv_sec--, now->tv_nsec += second;
    else if (now->tv_nsec >= second)
        now->tv_sec++, now->tv_nsec -= second;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec, now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
