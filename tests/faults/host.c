/* Preloaded: a host whose clocks can be set while a program runs, and whose name server and disk can fail.

   HOST_CLOCKS names a file of two 64-bit numbers, mapped: nanoseconds added to Unix time, and to the monotonic
   clock. HOST_NAMES names a file: while it is there, engine.test has the address that stands in it; while it is
   not, the name server does not answer. HOST_DISK names a file: while a number stands in it, each flush of
   vllm-watch.sqlite takes so many seconds more. What the kernel waits for by itself (epoll) goes on in real time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define NANO 1000000000LL

static volatile int64_t *offsets;

__attribute__((constructor)) static void map_clocks(void) {
  const char *path = getenv("HOST_CLOCKS");
  int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void *mapped = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) offsets = mapped;
  close(file);
}

static int64_t offset(clockid_t clock) {
  if (offsets == NULL) return 0;
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) return offsets[0];
  if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_BOOTTIME) return offsets[1];
  return 0;
}

static void shift(struct timespec *moment, int64_t by) {
  int64_t all = moment->tv_sec * NANO + moment->tv_nsec + by;
  moment->tv_sec = all / NANO;
  moment->tv_nsec = all % NANO;
}

int clock_gettime(clockid_t clock, struct timespec *moment) {
  static __typeof__(&clock_gettime) real;
  if (real == NULL) real = REAL(clock_gettime);
  int failed = real(clock, moment);
  if (!failed) shift(moment, offset(clock));
  return failed;
}

time_t time(time_t *out) {
  struct timespec moment;
  clock_gettime(CLOCK_REALTIME, &moment);
  if (out != NULL) *out = moment.tv_sec;
  return moment.tv_sec;
}

int gettimeofday(struct timeval *out, void *zone) {
  struct timespec moment;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &moment);
  out->tv_sec = moment.tv_sec;
  out->tv_usec = moment.tv_nsec / 1000;
  return 0;
}

/* Waits until a moment of a shifted clock: the kernel's own is meant. */
int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until) {
  struct timespec moment = *until;
  shift(&moment, -offset(clock));
  return REAL(sem_clockwait)(semaphore, clock, &moment);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until) {
  struct timespec moment = *until;
  shift(&moment, -offset(clock));
  return REAL(pthread_cond_clockwait)(condition, mutex, clock, &moment);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
  struct timespec moment = *until;
  shift(&moment, -offset(CLOCK_MONOTONIC));  /* Python makes its conditions with this clock. */
  return REAL(pthread_cond_timedwait)(condition, mutex, &moment);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
  const char *names = getenv("HOST_NAMES");
  if (names != NULL && name != NULL && strcmp(name, "engine.test") == 0) {
    char address[64] = "";
    FILE *file = fopen(names, "re");
    if (file == NULL) return EAI_AGAIN;
    if (fscanf(file, "%63s", address) != 1) address[0] = 0;
    fclose(file);
    return REAL(getaddrinfo)(address, service, hints, found);
  }
  return REAL(getaddrinfo)(name, service, hints, found);
}

static void wait_for_disk(int descriptor) {
  char link[64], path[4096];
  const char *slow = getenv("HOST_DISK");
  if (slow == NULL) return;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, path, sizeof path - 1);
  path[length < 0 ? 0 : length] = 0;
  FILE *file = strstr(path, "vllm-watch.sqlite") == NULL ? NULL : fopen(slow, "re");
  if (file == NULL) return;
  unsigned seconds = 0;
  if (fscanf(file, "%u", &seconds) != 1) seconds = 0;
  fclose(file);
  sleep(seconds);
}

int fsync(int descriptor) { wait_for_disk(descriptor); return REAL(fsync)(descriptor); }
int fdatasync(int descriptor) { wait_for_disk(descriptor); return REAL(fdatasync)(descriptor); }
