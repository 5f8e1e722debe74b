/* A libnvidia-ml.so.1 that tells what a file describes: the tests' GPUs, asked through the real binding in real processes.
 *
 * $NVML_STUB names the file, which is read when a process starts NVML, and again when it does so after a shutdown, with all
 * counts and times from the beginning; each line is one of
 *
 *   init CODE                                              what nvmlInit answers
 *   driver VERSION                                         550.54.15 if it is not given
 *   cuda VERSION                                           what the driver is good for, as 12040; 12040 if not given
 *   gpu DOMAIN:BUS.DEVICE ERROR MIGMODE MEMORY CAPABILITY UUID NAME...    ERROR: what opening it answers, 0 for none
 *   mig GPUINSTANCE COMPUTEINSTANCE MEMORY UUID NAME...    a slice of the GPU above
 *   # a comment, or an empty line
 *
 * A memory of 0 is "not supported", a MIGMODE of -1 too. Lines after a `gpu` or a `mig` tell more of it, and of two that tell
 * the same the later one holds; what is not told is "not supported", and what is told as `-` too.
 *
 *   used BYTES                          of its memory; 0 if not given
 *   utilization PERCENT PERCENT         of its processors and of its memory's time
 *   power MILLIWATTS                    power_limit MILLIWATTS
 *   temperature CELSIUS                 slowdown CELSIUS: where it throttles
 *   clocks GRAPHICS SM MEMORY VIDEO     MHz, now; max_clocks likewise
 *   throttle BITS                       why its clocks are lower than they could be; hexadecimal with 0x
 *   ecc MODE CORRECTED UNCORRECTED      MODE 0 or 1; errors since the driver was loaded
 *   ecc_total CORRECTED UNCORRECTED     errors of its whole life
 *   retired SINGLE DOUBLE PENDING       pages retired for errors of one bit, of two bits, and whether more wait for a reset
 *   remapped CORRECTED UNCORRECTED PENDING FAILED           rows of memory
 *   compute_mode MODE                   0 default, 2 prohibited, 3 one process
 *   persistence MODE                    0 or 1
 *   pcie GENERATION WIDTH MAXGENERATION MAXWIDTH
 *   process PID BYTES                   one that computes on it; a line for each
 *   p2p OTHER STATUS                    to the GPU of that number in this file, from 0; both ways. 0 if not given
 *   ancestor OTHER LEVEL                the topology between the two: 10 one switch, 20 several, 30 bridge, 40 node, 50 system
 *   answer FUNCTION CODE                what a function answers instead: 3 not supported, 4 no permission, 15 lost, 999
 *                                       unknown; * for every function. FUNCTION is the name without nvmlDeviceGet,
 *                                       nvmlSystemGet and _v2: UtilizationRates, MemoryInfo, DriverVersion
 *   after N FUNCTION                    the lines from here on hold once it was asked N times for this
 *   after N questions                   … once it was asked N questions of any kind
 *   after N seconds                     … N seconds after NVML was started
 *
 * `answer` and `after` before the first `gpu` are about all of them. A GPU that falls off the bus at the third sample:
 *
 *   gpu 0:3b.0 0 -1 85899345920 9.0 GPU-a0 NVIDIA H100
 *   utilization 97 40
 *   after 2 UtilizationRates
 *   answer * 15
 *
 * A question is counted before it is answered, so that after `after 2` the third answer is the first of the new kind.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LIMIT = 64 };

typedef struct {
    double after;
    char of[40], key[88], value[80];
} fact;

typedef struct device {
    unsigned domain, bus, slot, gi, ci, number;
    int error, mode, major, minor, slices, facts, asked;
    unsigned long long memory;
    char uuid[96], name[96];
    struct device *slice[LIMIT], *parent;
    fact fact[LIMIT];
    struct { char function[40]; long times; } count[LIMIT];
} device;

typedef struct { char legacy[16]; unsigned domain, bus, slot, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { unsigned long long total, free, used; } memory_info;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_info_v2;
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } process_info;

static device *gpus[LIMIT], *machine, *latest;
static unsigned count, starts;
static int init_answer, cuda;
static char driver[80];
static double began;
static fact pending; /* the `after` in force while the file is read */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Reading the file */

static const char words[] = " used utilization power power_limit temperature slowdown clocks max_clocks throttle ecc ecc_total"
                            " retired remapped compute_mode persistence pcie process p2p ancestor answer ";

static void begin(device *d) { latest = d, memset(&pending, 0, sizeof pending); }

static int read_fact(const char *line) {
    fact f = pending;
    int at = 0;
    char word[40], known[48];
    if (sscanf(line, "after %lf %39s", &pending.after, pending.of) == 2) return 1;
    if (sscanf(line, "%39s %n", word, &at) != 1) return 0;
    snprintf(known, sizeof known, " %s ", word);
    if (!strstr(words, known)) return 0;
    if (!strcmp(word, "answer") || !strcmp(word, "p2p") || !strcmp(word, "ancestor")) {
        int more = 0;
        char which[40];
        if (sscanf(line + at, "%39s %n", which, &more) != 1) return 0;
        snprintf(f.key, sizeof f.key, "%s %s", word, which), at += more;
    } else
        snprintf(f.key, sizeof f.key, "%s", word);
    if (latest->facts == LIMIT || !strchr("-0123456789", line[at]) || !line[at]) return 0;
    snprintf(f.value, sizeof f.value, "%s", line + at);
    return latest->fact[latest->facts++] = f, 1;
}

static void read_line(const char *line) {
    device *d = calloc(1, sizeof *d);
    if (line[0] == '#' || line[strspn(line, " \t\r\n")] == 0) return;
    if (sscanf(line, "init %d", &init_answer) == 1 || sscanf(line, "driver %79s", driver) == 1) return;
    if (sscanf(line, "cuda %d", &cuda) == 1) return;
    if (count < LIMIT && sscanf(line, "gpu %x:%x.%x %d %d %llu %d.%d %95s %95[^\n]", &d->domain, &d->bus, &d->slot,
                                &d->error, &d->mode, &d->memory, &d->major, &d->minor, d->uuid, d->name) == 10)
        d->number = count, begin(gpus[count++] = d);
    else if (count && gpus[count - 1]->slices < LIMIT &&
             sscanf(line, "mig %u %u %llu %95s %95[^\n]", &d->gi, &d->ci, &d->memory, d->uuid, d->name) == 5)
        d->parent = gpus[count - 1], d->mode = -1, begin(d->parent->slice[d->parent->slices++] = d);
    else if (!read_fact(line))
        fprintf(stderr, "nvml_stub: cannot read: %s", line), abort();
}

int nvmlInitWithFlags(unsigned flags) {
    char line[512];
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) fprintf(stderr, "nvml_stub: NVML_STUB names no file: %s\n", path ? path : "it is not set"), abort();
    /* As in NVML, a second start changes nothing: what the first one gave stays valid. */
    if (starts == 0) {
        count = 0, init_answer = 0, cuda = 12040, began = now(), strcpy(driver, "550.54.15");
        begin(machine = calloc(1, sizeof *machine));
        while (fgets(line, sizeof line, file)) read_line(line);
    }
    fclose(file);
    return starts += init_answer == 0, init_answer;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return starts -= starts > 0, SUCCESS; }

/* Questions */

static long asked(device *d, const char *function) {
    for (int i = 0; i < LIMIT; i++)
        if (!strcmp(d->count[i].function, function)) return d->count[i].times;
    return 0;
}

static void note(device *d, const char *function) {
    d->asked++;
    for (int i = 0; i < LIMIT; i++)
        if (!d->count[i].function[0] || !strcmp(d->count[i].function, function)) {
            snprintf(d->count[i].function, sizeof d->count[i].function, "%s", function), d->count[i].times++;
            return;
        }
}

static int holds(device *d, const fact *f) {
    if (!f->of[0]) return 1;
    if (!strcmp(f->of, "seconds")) return now() - began >= f->after;
    return (!strcmp(f->of, "questions") ? d->asked : asked(d, f->of)) > f->after;
}

/* What is told of a device under a key now, or NULL. */
static const char *told(device *d, const char *key) {
    for (int i = d->facts - 1; i >= 0; i--)
        if (!strcmp(d->fact[i].key, key) && holds(d, &d->fact[i])) return d->fact[i].value;
    return NULL;
}

/* The code with which the device, its GPU or the machine answers a function whatever it would have to say. */
static int ask(device *d, const char *function) {
    device *those[] = {d, d->parent, machine};
    char key[88];
    snprintf(key, sizeof key, "answer %s", function);
    for (int i = 0; i < 3; i++) {
        if (!those[i] || (i == 2 && d == machine)) continue;
        note(those[i], function);
        const char *code = told(those[i], key);
        if (code || (code = told(those[i], "answer *"))) {
            if (atoi(code)) return atoi(code);
        }
    }
    return SUCCESS;
}

/* The number in the place `index` of what is told. */
static int number(device *d, const char *function, const char *key, int index, unsigned long long *out) {
    const char *text;
    char *end;
    int code = ask(d, function);
    if (code) return code;
    if (!(text = told(d, key)) || text[0] == '-') return NOT_SUPPORTED;
    for (; *out = strtoull(text, &end, 0), index--; text = end)
        if (end == text) return NOT_SUPPORTED;
    return end == text ? NOT_SUPPORTED : SUCCESS;
}

#define NUMBER(function, type, key, index)                                          \
    int nvmlDeviceGet##function(device *d, type *out) {                             \
        unsigned long long value = 0;                                               \
        int code = number(d, #function, key, index, &value);                        \
        return *out = (type)value, code;                                            \
    }

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    return snprintf(text, size, "%s", driver), ask(machine, "DriverVersion");
}
int nvmlSystemGetCudaDriverVersion(int *v) { return *v = cuda, ask(machine, "CudaDriverVersion"); }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { return nvmlSystemGetCudaDriverVersion(v); }
int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size) { return NOT_FOUND; }

int nvmlDeviceGetCount_v2(unsigned *n) { return *n = count, ask(machine, "Count"); }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device **d) {
    int code = ask(machine, "HandleByIndex");
    if (code) return code;
    return i < count ? (*d = gpus[i], gpus[i]->error) : NOT_FOUND;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device **d) {
    int code = ask(machine, "HandleByUUID");
    if (code) return code;
    for (unsigned i = 0; i < count; i++) {
        if (!strcmp(gpus[i]->uuid, uuid)) return *d = gpus[i], gpus[i]->error;
        for (int j = 0; j < gpus[i]->slices; j++)
            if (!strcmp(gpus[i]->slice[j]->uuid, uuid)) return *d = gpus[i]->slice[j], gpus[i]->error;
    }
    return NOT_FOUND;
}
int nvmlDeviceGetName(device *d, char *text, unsigned size) {
    return snprintf(text, size, "%s", d->name), ask(d, "Name");
}
int nvmlDeviceGetUUID(device *d, char *text, unsigned size) {
    return snprintf(text, size, "%s", d->uuid), ask(d, "UUID");
}
int nvmlDeviceGetIndex(device *d, unsigned *i) { return *i = d->number, ask(d, "Index"); }
int nvmlDeviceGetMinorNumber(device *d, unsigned *i) { return *i = d->number, ask(d, "MinorNumber"); }
int nvmlDeviceGetPciInfo_v3(device *d, pci_info *p) {
    memset(p, 0, sizeof *p), p->domain = d->domain, p->bus = d->bus, p->slot = d->slot;
    snprintf(p->bus_id, sizeof p->bus_id, "%08x:%02x:%02x.0", d->domain, d->bus, d->slot);
    return ask(d, "PciInfo");
}
int nvmlDeviceGetMemoryInfo(device *d, memory_info *m) {
    int code = ask(d, "MemoryInfo");
    const char *used = told(d, "used");
    m->total = d->memory, m->used = used ? strtoull(used, NULL, 0) : 0, m->free = m->total - m->used;
    return code ? code : d->memory && !(used && used[0] == '-') ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetMemoryInfo_v2(device *d, memory_info_v2 *m) {
    memory_info one;
    int code = nvmlDeviceGetMemoryInfo(d, &one);
    return m->total = one.total, m->reserved = 0, m->free = one.free, m->used = one.used, code;
}
int nvmlDeviceGetCudaComputeCapability(device *d, int *major, int *minor) {
    return *major = d->major, *minor = d->minor, ask(d, "CudaComputeCapability");
}
int nvmlDeviceGetMigMode(device *d, unsigned *now, unsigned *pending) {
    int code = ask(d, "MigMode");
    return *now = *pending = (unsigned)d->mode, code ? code : d->mode < 0 ? NOT_SUPPORTED : SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *n) { return *n = 7, ask(d, "MaxMigDeviceCount"); }
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned i, device **slice) {
    int code = ask(d, "MigDeviceHandleByIndex");
    return *slice = i < (unsigned)d->slices ? d->slice[i] : NULL, code ? code : *slice ? SUCCESS : NOT_FOUND;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device *d, device **gpu) {
    return *gpu = d->parent, d->parent ? SUCCESS : NOT_FOUND;
}
int nvmlDeviceGetGpuInstanceId(device *d, unsigned *id) { return *id = d->gi, ask(d, "GpuInstanceId"); }
int nvmlDeviceGetComputeInstanceId(device *d, unsigned *id) { return *id = d->ci, ask(d, "ComputeInstanceId"); }

int nvmlDeviceGetUtilizationRates(device *d, unsigned *two) {
    unsigned long long value[2] = {0, 0};
    int code = number(d, "UtilizationRates", "utilization", 0, &value[0]);
    const char *text = told(d, "utilization");
    if (!code) sscanf(text, "%*s %llu", &value[1]);
    return two[0] = (unsigned)value[0], two[1] = (unsigned)value[1], code;
}
NUMBER(PowerUsage, unsigned, "power", 0)
NUMBER(PowerManagementLimit, unsigned, "power_limit", 0)
NUMBER(EnforcedPowerLimit, unsigned, "power_limit", 0)
NUMBER(ComputeMode, unsigned, "compute_mode", 0)
NUMBER(PersistenceMode, unsigned, "persistence", 0)
NUMBER(CurrentClocksThrottleReasons, unsigned long long, "throttle", 0)
NUMBER(CurrentClocksEventReasons, unsigned long long, "throttle", 0)
NUMBER(CurrPcieLinkGeneration, unsigned, "pcie", 0)
NUMBER(CurrPcieLinkWidth, unsigned, "pcie", 1)
NUMBER(MaxPcieLinkGeneration, unsigned, "pcie", 2)
NUMBER(MaxPcieLinkWidth, unsigned, "pcie", 3)
NUMBER(RetiredPagesPendingStatus, unsigned, "retired", 2)

static int unsigned_number(device *d, const char *function, const char *key, int index, unsigned *out) {
    unsigned long long value = 0;
    int code = number(d, function, key, index, &value);
    return *out = (unsigned)value, code;
}
int nvmlDeviceGetTemperature(device *d, unsigned sensor, unsigned *t) {
    return unsigned_number(d, "Temperature", "temperature", 0, t);
}
int nvmlDeviceGetTemperatureV(device *d, unsigned *versioned) { /* version, sensor, degrees */
    return unsigned_number(d, "Temperature", "temperature", 0, &versioned[2]);
}
int nvmlDeviceGetTemperatureThreshold(device *d, unsigned kind, unsigned *t) {
    return unsigned_number(d, "TemperatureThreshold", "slowdown", 0, t);
}
int nvmlDeviceGetClockInfo(device *d, unsigned kind, unsigned *mhz) {
    return unsigned_number(d, "ClockInfo", "clocks", (int)kind, mhz);
}
int nvmlDeviceGetMaxClockInfo(device *d, unsigned kind, unsigned *mhz) {
    return unsigned_number(d, "MaxClockInfo", "max_clocks", (int)kind, mhz);
}
int nvmlDeviceGetEccMode(device *d, unsigned *now, unsigned *pending) {
    int code = unsigned_number(d, "EccMode", "ecc", 0, now);
    return *pending = *now, code;
}
int nvmlDeviceGetTotalEccErrors(device *d, unsigned uncorrected, unsigned whole_life, unsigned long long *n) {
    return *n = 0, number(d, "TotalEccErrors", whole_life ? "ecc_total" : "ecc", !whole_life + (int)uncorrected, n);
}
static int retired_pages(device *d, unsigned cause, unsigned *n, unsigned long long *addresses) {
    unsigned room = *n, wanted;
    int code = unsigned_number(d, "RetiredPages", "retired", (int)cause, &wanted);
    *n = code ? 0 : wanted;
    if (code || !wanted) return code;
    if (room < wanted || !addresses) return TOO_SMALL;
    for (unsigned i = 0; i < wanted; i++) addresses[i] = 0x1000ull * (i + 1);
    return SUCCESS;
}
int nvmlDeviceGetRetiredPages(device *d, unsigned cause, unsigned *n, unsigned long long *addresses) {
    return retired_pages(d, cause, n, addresses);
}
int nvmlDeviceGetRetiredPages_v2(device *d, unsigned cause, unsigned *n, unsigned long long *at, unsigned long long *when) {
    int code = retired_pages(d, cause, n, at);
    for (unsigned i = 0; !code && when && i < *n; i++) when[i] = 0;
    return code;
}
int nvmlDeviceGetRemappedRows(device *d, unsigned *corrected, unsigned *uncorrected, unsigned *waiting, unsigned *failed) {
    unsigned *out[] = {corrected, uncorrected, waiting, failed};
    unsigned long long value;
    int code = number(d, "RemappedRows", "remapped", 0, &value);
    const char *text = told(d, "remapped");
    char *end;
    for (int i = 0; i < 4; i++, text = code ? NULL : end) *out[i] = code ? 0 : (unsigned)strtoull(text, &end, 0);
    return code;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *n, process_info *out) {
    unsigned room = *n, found = 0;
    int code = ask(d, "ComputeRunningProcesses");
    for (int i = 0; i < d->facts && !code; i++)
        if (!strcmp(d->fact[i].key, "process") && holds(d, &d->fact[i]) && found++ < room && out) {
            process_info *p = memset(&out[found - 1], 0xff, sizeof *p);
            sscanf(d->fact[i].value, "%u %llu", &p->pid, &p->memory);
        }
    return *n = found, code ? code : found && (found > room || !out) ? TOO_SMALL : SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v2(device *d, unsigned *n, process_info *out) {
    return nvmlDeviceGetComputeRunningProcesses_v3(d, n, out);
}

/* Between two GPUs: what either tells of the other. */
static int between(device *a, device *b, const char *function, const char *word, unsigned *out) {
    char key[88];
    const char *text;
    int code = ask(a, function);
    if (code || (code = ask(b, function))) return code;
    snprintf(key, sizeof key, "%s %u", word, b->number);
    if (!(text = told(a, key))) snprintf(key, sizeof key, "%s %u", word, a->number), text = told(b, key);
    if (text && text[0] == '-') return NOT_SUPPORTED;
    return text ? (*out = (unsigned)strtoul(text, NULL, 0), SUCCESS) : NOT_FOUND;
}
int nvmlDeviceGetP2PStatus(device *a, device *b, unsigned kind, unsigned *status) {
    int code = between(a, b, "P2PStatus", "p2p", status);
    return code == NOT_FOUND ? (*status = 0, SUCCESS) : code;
}
int nvmlDeviceGetTopologyCommonAncestor(device *a, device *b, unsigned *level) {
    int code = between(a, b, "TopologyCommonAncestor", "ancestor", level);
    return code == NOT_FOUND ? NOT_SUPPORTED : code;
}
