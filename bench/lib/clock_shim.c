/* Preloaded into a program it makes another clock of its clocks: time passes faster by
 * CLOCK_FAST_PPM from the start on, and the time of day is an hour later from when the file
 * CLOCK_STEP exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef int reading(clockid_t, struct timespec *);

static reading *real;
static long long begun[2];
static long long fast;
static const char *step;

static long long nanoseconds(const struct timespec *at)
{
    return at->tv_sec * 1000000000LL + at->tv_nsec;
}

__attribute__((constructor)) static void begin(void)
{
    struct timespec at;
    const char *ppm = getenv("CLOCK_FAST_PPM");
    real = (reading *)dlsym(RTLD_NEXT, "clock_gettime");
    fast = ppm ? atoll(ppm) : 0;
    step = getenv("CLOCK_STEP");
    for (clockid_t clock = CLOCK_REALTIME; clock <= CLOCK_MONOTONIC; clock++) {
        real(clock, &at);
        begun[clock] = nanoseconds(&at);
    }
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    if (!real)
        begin();
    int failed = real(clock, at);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC))
        return failed;
    long long now = nanoseconds(at);
    now += (now - begun[clock]) / 1000000 * fast;
    if (clock == CLOCK_REALTIME && step && access(step, F_OK) == 0)
        now += 3600 * 1000000000LL;
    at->tv_sec = now / 1000000000;
    at->tv_nsec = now % 1000000000;
    return 0;
}
