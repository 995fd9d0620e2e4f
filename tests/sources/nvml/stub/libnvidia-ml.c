/* A libnvidia-ml.so.1 that answers from a script, for tests with the real pynvml.
 *
 * The script is the text file named by NVML_STUB_STATE, looked at again at each call: lines "key value", sorted
 * by key (tests/nvml_stub.py writes it). A key that is missing answers NOT_SUPPORTED, so a test says
 * only what its GPU has. Layouts follow nvml.h as pynvml declares them.
 *
 *   driver 580.65.06              count 2                generation 1 (another one: calls need a new init)
 *   error.FUNCTION CODE           error.FUNCTION.GPU CODE
 *   hang.FUNCTION SECONDS         hang.FUNCTION.GPU SECONDS    (ends early when the key is taken away)
 *   xid.SERIAL GPU:CODE           (each serial is delivered once, ascending)
 *   gpu.I.KEY VALUE               gpu.I.mig.J.KEY VALUE
 *   release_on_exit 1             (a process that has ended is charged nothing any more)
 *   kept.PID 1                    (but this one stays listed)      leaked.PID 1  (not listed, but used)
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef unsigned int uint;
typedef unsigned long long u64;

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, ALREADY_INITIALIZED, NOT_FOUND,
       INSUFFICIENT_SIZE, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15 };
enum { GPUS = 16, SLICES = 8, LINE = 8192, ENTRIES = 2048, FUNCTIONS = 128 };

typedef struct { uint gpu, slice; } Device;                 /* slice: SLICES where it is the whole GPU */
typedef struct { u64 total, free, used; } Memory;
typedef struct { uint version; u64 total, reserved, free, used; } MemoryV2;
typedef struct { uint pid; u64 used; uint gpu_instance, compute_instance; } ProcessInfo;
typedef struct { uint pid; u64 stamp; uint sm, memory, encoder, decoder; } ProcessSample;
typedef struct { Device *device; u64 type, data; uint gpu_instance, compute_instance; } EventData;
typedef struct { uint gpu, memory; } Utilization;
typedef struct { uint version, sensor; int celsius; } Temperature;

_Static_assert(sizeof(Memory) == 24 && sizeof(MemoryV2) == 40, "memory layouts");
_Static_assert(sizeof(ProcessInfo) == 24 && sizeof(ProcessSample) == 32, "process layouts");
_Static_assert(sizeof(EventData) == 32, "event layout");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { char *key, *value; } entries[ENTRIES];
static int entry_count;
static char *text;
static struct timespec read_at;
static Device devices[GPUS][SLICES + 1];
static char registered[GPUS];
static int initialised, in_flight, overlaps;
static long generation, xid_delivered;
static struct { char name[64]; int calls; } counted[FUNCTIONS];

static void load(void) {
    const char *path = getenv("NVML_STUB_STATE");
    struct stat seen;
    if (!path || stat(path, &seen)) { entry_count = 0; return; }
    if (text && seen.st_mtim.tv_sec == read_at.tv_sec && seen.st_mtim.tv_nsec == read_at.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (!file) { entry_count = 0; return; }
    free(text);
    text = calloc(1, (size_t)seen.st_size + 1);
    size_t length = fread(text, 1, (size_t)seen.st_size, file);
    text[length] = 0;
    fclose(file);
    read_at = seen.st_mtim;
    entry_count = 0;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) && entry_count < ENTRIES) {
        char *value = strchr(line, ' ');
        if (!value) continue;
        *value = 0;
        entries[entry_count].key = line;
        entries[entry_count++].value = value + 1;
    }
}

static const char *find(const char *key) {
    int low = 0, high = entry_count - 1;
    while (low <= high) {
        int middle = (low + high) / 2, order = strcmp(key, entries[middle].key);
        if (!order) return entries[middle].value;
        if (order < 0) high = middle - 1; else low = middle + 1;
    }
    return NULL;
}

static const char *global(const char *prefix, const char *name, const Device *device) {
    char key[160];
    if (device) {
        snprintf(key, sizeof key, "%s.%s.%u", prefix, name, device->gpu);
        const char *value = find(key);
        if (value) return value;
    }
    snprintf(key, sizeof key, "%s.%s", prefix, name);
    return find(key);
}

static void count_call(const char *name) {
    for (int i = 0; i < FUNCTIONS; i++) {
        if (!counted[i].name[0]) snprintf(counted[i].name, sizeof counted[i].name, "%s", name);
        if (!strcmp(counted[i].name, name)) { counted[i].calls++; return; }
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Sleep while the script says so. The lock is let go of, as a real driver call holds none of ours. */
static void hang(const char *name, const Device *device) {
    double begun = now();
    for (;;) {
        const char *seconds = global("hang", name, device);
        if (!seconds || now() - begun >= atof(seconds)) return;
        pthread_mutex_unlock(&lock);
        nanosleep(&(struct timespec){0, 5000000}, NULL);
        pthread_mutex_lock(&lock);
        load();
    }
}

/* What every call does first; the lock is held until leave(). */
static int enter(const char *name, const Device *device) {
    pthread_mutex_lock(&lock);
    if (in_flight++) overlaps++;
    load();
    count_call(name);
    hang(name, device);
    const char *error = global("error", name, device);
    if (error && atoi(error)) return atoi(error);
    if (strcmp(name, "nvmlInitWithFlags")) {
        const char *wanted = find("generation");
        if (!initialised || !entry_count || (wanted && atol(wanted) != generation)) return UNINITIALIZED;
    }
    if (device) {
        char key[64];
        snprintf(key, sizeof key, "gpu.%u.lost", device->gpu);
        if (find(key)) return GPU_IS_LOST;
    }
    return OK;
}

static int leave(int code) {
    in_flight--;
    pthread_mutex_unlock(&lock);
    return code;
}

static const char *field(const Device *device, const char *name) {
    char key[128];
    if (device->slice < SLICES) snprintf(key, sizeof key, "gpu.%u.mig.%u.%s", device->gpu, device->slice, name);
    else snprintf(key, sizeof key, "gpu.%u.%s", device->gpu, name);
    return find(key);
}

static int number(const Device *device, const char *name, u64 *value) {
    const char *found = field(device, name);
    if (!found) return NOT_SUPPORTED;
    *value = (u64)(found[0] == '-' ? (u64)strtoll(found, NULL, 10) : strtoull(found, NULL, 10));
    return OK;
}

static int uint_field(const char *function, const Device *device, const char *name, uint *value) {
    u64 wide = 0;
    int code = enter(function, device);
    if (!code && !(code = number(device, name, &wide))) *value = (uint)wide;
    return leave(code);
}

static int text_field(const char *function, const Device *device, const char *name, char *buffer, uint size) {
    int code = enter(function, device);
    const char *found = code ? NULL : field(device, name);
    if (!code && !found) code = NOT_SUPPORTED;
    if (!code) snprintf(buffer, size, "%s", found);
    return leave(code);
}

int nvmlInitWithFlags(uint flags) {
    (void)flags;
    int code = enter("nvmlInitWithFlags", NULL);
    if (!code && !entry_count) code = DRIVER_NOT_LOADED;
    if (!code) {
        const char *wanted = find("generation");
        generation = wanted ? atol(wanted) : 0;
        initialised++;
    }
    return leave(code);
}

int nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    load();
    count_call("nvmlShutdown");
    if (in_flight++) overlaps++;
    hang("nvmlShutdown", NULL);
    int code = initialised ? OK : UNINITIALIZED;
    if (initialised) initialised--;
    memset(registered, 0, sizeof registered);
    return leave(code);
}

const char *nvmlErrorString(int code) {
    static char words[32];
    snprintf(words, sizeof words, "stub error %d", code);
    return words;
}

int nvmlSystemGetDriverVersion(char *buffer, uint size) {
    int code = enter("nvmlSystemGetDriverVersion", NULL);
    const char *found = code ? NULL : find("driver");
    if (!code && !found) code = NOT_SUPPORTED;
    if (!code) snprintf(buffer, size, "%s", found);
    return leave(code);
}

int nvmlDeviceGetCount_v2(uint *count) {
    int code = enter("nvmlDeviceGetCount_v2", NULL);
    const char *found = find("count");
    if (!code) *count = found ? (uint)atoi(found) : 0;
    return leave(code);
}

int nvmlDeviceGetHandleByIndex_v2(uint index, Device **device) {
    if (index >= GPUS) return INVALID_ARGUMENT;
    devices[index][SLICES] = (Device){index, SLICES};
    int code = enter("nvmlDeviceGetHandleByIndex_v2", &devices[index][SLICES]);
    if (!code) *device = &devices[index][SLICES];
    return leave(code);
}

int nvmlDeviceGetName(Device *device, char *buffer, uint size) {
    return text_field("nvmlDeviceGetName", device, "name", buffer, size);
}

int nvmlDeviceGetUUID(Device *device, char *buffer, uint size) {
    return text_field("nvmlDeviceGetUUID", device, "uuid", buffer, size);
}

/* Has this process ended, so that the driver lists it no more? A zombie has. */
static int is_released(const char *pid) {
    char path[64], line[512], key[64];
    if (!find("release_on_exit")) return 0;
    snprintf(key, sizeof key, "kept.%s", pid);
    if (find(key)) return 0;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 1;
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = 0;
    char *end = strrchr(line, ')');
    return !end || end[2] == 'Z' || end[2] == 'X';
}

/* What the compute processes that have ended gave back. */
static u64 released(const Device *device) {
    const char *found = field(device, "compute");
    char copy[LINE], key[64], *rest = copy, *item;
    u64 bytes = 0;
    snprintf(copy, sizeof copy, "%s", found ? found : "");
    while ((item = strsep(&rest, ","))) {
        char *pid = strsep(&item, ":");
        snprintf(key, sizeof key, "leaked.%s", pid);
        if (item && *item != '-' && is_released(pid) && !find(key)) bytes += strtoull(item, NULL, 10);
    }
    return bytes;
}

static int memory(const Device *device, u64 *total, u64 *used, u64 *reserved) {
    int code = number(device, "memory_total", total);
    if (!code) code = number(device, "memory_used", used);
    if (!code) *used -= released(device);
    if (!code && number(device, "memory_reserved", reserved)) *reserved = 0;
    return code;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *answer) {
    u64 total, used, reserved;
    int code = enter("nvmlDeviceGetMemoryInfo", device);
    if (!code && !(code = memory(device, &total, &used, &reserved)))
        *answer = (Memory){total, total - used - reserved, used + reserved};
    return leave(code);
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *answer) {
    u64 total, used, reserved;
    int code = enter("nvmlDeviceGetMemoryInfo_v2", device);
    if (!code && answer->version != 0x02000028) code = 25; /* ARGUMENT_VERSION_MISMATCH */
    if (!code && !(code = memory(device, &total, &used, &reserved)))
        *answer = (MemoryV2){answer->version, total, reserved, total - used - reserved, used};
    return leave(code);
}

/* "PID:BYTES[:GPU_INSTANCE:COMPUTE_INSTANCE],..."; "-" for bytes or an instance is all ones. */
static int processes(const char *function, const Device *device, const char *name, uint *count, ProcessInfo *infos) {
    int code = enter(function, device);
    const char *found = code ? NULL : field(device, name);
    if (!code && !found) code = NOT_SUPPORTED;
    if (code) return leave(code);
    char copy[LINE];
    snprintf(copy, sizeof copy, "%s", found);
    uint room = *count, seen = 0;
    char *rest = copy, *item;
    while ((item = strsep(&rest, ","))) {
        if (!*item) continue;
        char *pid = strsep(&item, ":");
        if (is_released(pid)) continue;
        char *used = strsep(&item, ":"), *gpu = strsep(&item, ":"), *compute = item;
        if (infos && seen < room)
            infos[seen] = (ProcessInfo){
                (uint)strtoul(pid, NULL, 10), used && *used != '-' ? strtoull(used, NULL, 10) : ~0ULL,
                gpu && *gpu != '-' ? (uint)atoi(gpu) : ~0U, compute && *compute != '-' ? (uint)atoi(compute) : ~0U};
        seen++;
    }
    *count = seen;
    return leave(seen > room ? INSUFFICIENT_SIZE : OK);
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, uint *count, ProcessInfo *infos) {
    return processes("nvmlDeviceGetComputeRunningProcesses_v3", device, "compute", count, infos);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *device, uint *count, ProcessInfo *infos) {
    return processes("nvmlDeviceGetGraphicsRunningProcesses_v3", device, "graphics", count, infos);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device *device, uint *count, ProcessInfo *infos) {
    return processes("nvmlDeviceGetMPSComputeRunningProcesses_v3", device, "mps", count, infos);
}

/* "PID:STAMP_MICROSECONDS:SM_PERCENT,..." */
int nvmlDeviceGetProcessUtilization(Device *device, ProcessSample *samples, uint *count, u64 last_seen) {
    int code = enter("nvmlDeviceGetProcessUtilization", device);
    const char *found = code ? NULL : field(device, "process_utilization");
    if (!code && !found) code = NOT_SUPPORTED;
    if (code) return leave(code);
    char copy[LINE];
    snprintf(copy, sizeof copy, "%s", found);
    uint room = *count, seen = 0;
    char *rest = copy, *item;
    while ((item = strsep(&rest, ","))) {
        ProcessSample sample = {0};
        if (sscanf(item, "%u:%llu:%u", &sample.pid, &sample.stamp, &sample.sm) != 3) continue;
        if (sample.stamp <= last_seen) continue;
        if (samples && seen < room) samples[seen] = sample;
        seen++;
    }
    *count = seen;
    if (!seen) return leave(field(device, "process_utilization_sizes") ? OK : NOT_FOUND);
    return leave(seen > room ? INSUFFICIENT_SIZE : OK);
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilization *answer) {
    u64 percent = 0;
    int code = enter("nvmlDeviceGetUtilizationRates", device);
    if (!code && !(code = number(device, "utilization", &percent))) *answer = (Utilization){(uint)percent, 0};
    return leave(code);
}

int nvmlDeviceGetTemperature(Device *device, uint sensor, uint *celsius) {
    (void)sensor;
    return uint_field("nvmlDeviceGetTemperature", device, "temperature", celsius);
}

int nvmlDeviceGetTemperatureV(Device *device, Temperature *answer) {
    return uint_field("nvmlDeviceGetTemperatureV", device, "temperature", (uint *)&answer->celsius);
}

int nvmlDeviceGetFanSpeed(Device *device, uint *percent) {
    return uint_field("nvmlDeviceGetFanSpeed", device, "fan", percent);
}

int nvmlDeviceGetPowerUsage(Device *device, uint *milliwatts) {
    return uint_field("nvmlDeviceGetPowerUsage", device, "power", milliwatts);
}

int nvmlDeviceGetEnforcedPowerLimit(Device *device, uint *milliwatts) {
    return uint_field("nvmlDeviceGetEnforcedPowerLimit", device, "power_limit", milliwatts);
}

int nvmlDeviceGetClockInfo(Device *device, uint clock, uint *megahertz) {
    return uint_field("nvmlDeviceGetClockInfo", device, clock == 1 ? "sm_clock" : "other_clock", megahertz);
}

int nvmlDeviceGetMaxClockInfo(Device *device, uint clock, uint *megahertz) {
    return uint_field("nvmlDeviceGetMaxClockInfo", device, clock == 1 ? "sm_clock_max" : "other_clock_max", megahertz);
}

static int reasons(const char *function, const Device *device, u64 *bits) {
    int code = enter(function, device);
    if (!code) code = number(device, "clock_event_reasons", bits);
    return leave(code);
}

int nvmlDeviceGetCurrentClocksEventReasons(Device *device, u64 *bits) {
    return reasons("nvmlDeviceGetCurrentClocksEventReasons", device, bits);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, u64 *bits) {
    return reasons("nvmlDeviceGetCurrentClocksThrottleReasons", device, bits);
}

int nvmlDeviceGetTotalEccErrors(Device *device, uint type, uint counter, u64 *errors) {
    int code = enter("nvmlDeviceGetTotalEccErrors", device);
    if (!code) code = number(device, type == 1 && counter == 0 ? "ecc_uncorrected" : "ecc_other", errors);
    return leave(code);
}

int nvmlDeviceGetRemappedRows(Device *device, uint *correctable, uint *uncorrectable, uint *pending, uint *failed) {
    uint four[4];
    int code = enter("nvmlDeviceGetRemappedRows", device);
    const char *found = code ? NULL : field(device, "remapped_rows");
    if (!code && (!found || sscanf(found, "%u:%u:%u:%u", four, four + 1, four + 2, four + 3) != 4)) code = NOT_SUPPORTED;
    if (!code) { *correctable = four[0]; *uncorrectable = four[1]; *pending = four[2]; *failed = four[3]; }
    return leave(code);
}

int nvmlDeviceGetMigMode(Device *device, uint *current, uint *pending) {
    int code = uint_field("nvmlDeviceGetMigMode", device, "mig_mode", current);
    if (!code) *pending = *current;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, uint *count) {
    return uint_field("nvmlDeviceGetMaxMigDeviceCount", device, "mig_devices_max", count);
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, uint index, Device **slice) {
    int code = enter("nvmlDeviceGetMigDeviceHandleByIndex", device);
    if (!code && index >= SLICES) code = INVALID_ARGUMENT;
    if (!code) {
        Device *found = &devices[device->gpu][index];
        *found = (Device){device->gpu, index};
        if (field(found, "uuid")) *slice = found; else code = NOT_FOUND;
    }
    return leave(code);
}

int nvmlDeviceGetGpuInstanceId(Device *device, uint *id) {
    return uint_field("nvmlDeviceGetGpuInstanceId", device, "gpu_instance", id);
}
int nvmlDeviceGetComputeInstanceId(Device *device, uint *id) {
    return uint_field("nvmlDeviceGetComputeInstanceId", device, "compute_instance", id);
}

int nvmlEventSetCreate(void **set) {
    static int the_set;
    int code = enter("nvmlEventSetCreate", NULL);
    memset(registered, 0, sizeof registered);
    if (!code) *set = &the_set;
    return leave(code);
}

int nvmlDeviceRegisterEvents(Device *device, u64 types, void *set) {
    (void)set;
    int code = enter("nvmlDeviceRegisterEvents", device);
    if (!code && !(types & 8)) code = INVALID_ARGUMENT;
    if (!code) registered[device->gpu] = 1;
    return leave(code);
}

/* Also fails as a whole while a GPU that is listened to is lost, once the queue is empty. */
int nvmlEventSetWait_v2(void *set, EventData *event, uint timeout_milliseconds) {
    (void)set;
    int code = enter("nvmlEventSetWait_v2", NULL);
    const char *chosen = NULL;
    long serial = 0;
    for (int i = 0; !code && i < entry_count; i++) {
        if (strncmp(entries[i].key, "xid.", 4)) continue;
        long found = atol(entries[i].key + 4);
        uint gpu = (uint)atoi(entries[i].value);
        if (found <= xid_delivered || gpu >= GPUS || !registered[gpu]) continue;
        if (!chosen || found < serial) { chosen = entries[i].value; serial = found; }
    }
    if (!code && chosen) {
        uint gpu = 0;
        u64 xid = 0;
        sscanf(chosen, "%u:%llu", &gpu, &xid);
        *event = (EventData){&devices[gpu][SLICES], 8, xid, ~0U, ~0U};
        xid_delivered = serial;
        return leave(OK);
    }
    for (uint gpu = 0; !code && gpu < GPUS; gpu++) {
        char key[64];
        snprintf(key, sizeof key, "gpu.%u.lost", gpu);
        if (registered[gpu] && find(key)) code = GPU_IS_LOST;
    }
    if (!code && timeout_milliseconds) code = INVALID_ARGUMENT; /* nobody here may wait inside the driver */
    return leave(code ? code : TIMEOUT);
}

int nvmlEventSetFree(void *set) {
    (void)set;
    return leave(enter("nvmlEventSetFree", NULL));
}

/* For tests in the same process. */
int stub_calls(const char *name) {
    int calls = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FUNCTIONS; i++)
        if (!strcmp(counted[i].name, name)) calls = counted[i].calls;
    pthread_mutex_unlock(&lock);
    return calls;
}
int stub_overlaps(void) { return overlaps; }
