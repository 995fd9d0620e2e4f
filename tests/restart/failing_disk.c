/* Preloaded: while a number stands in the file named by FAILING_DISK, writes and flushes of files whose
   path holds "vllm-watch.sqlite" fail with that error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int failing(int descriptor) {
  char link[64], path[4096];
  const char *armed = getenv("FAILING_DISK");
  if (armed == NULL) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  if (strstr(path, "vllm-watch.sqlite") == NULL) return 0;
  FILE *file = fopen(armed, "re");
  if (file == NULL) return 0;
  int number = 0;
  if (fscanf(file, "%d", &number) != 1) number = 0;
  fclose(file);
  return number;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(descriptor) \
  do { int number = failing(descriptor); if (number) { errno = number; return -1; } } while (0)

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { FAIL(fd); return REAL(pwrite)(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { FAIL(fd); return REAL(pwrite64)(fd, data, size, at); }
ssize_t write(int fd, const void *data, size_t size) { FAIL(fd); return REAL(write)(fd, data, size); }
int fsync(int fd) { FAIL(fd); return REAL(fsync)(fd); }
int fdatasync(int fd) { FAIL(fd); return REAL(fdatasync)(fd); }
int ftruncate(int fd, off_t size) { FAIL(fd); return REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { FAIL(fd); return REAL(ftruncate64)(fd, size); }
